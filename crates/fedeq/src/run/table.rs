//! Evaluations as a table for other programs.
use fedeq_core::{Evaluation, Quality};

/// The first line of `metrics.csv`.
pub(super) const HEADING: &str = "round,\
local_mean,local_weighted,local_worst_decile,local_deviation,local_loss,\
shared_mean,shared_weighted,shared_worst_decile,shared_deviation,shared_loss,\
validation_mean,untrained,gap,dual_norm,bytes_up,bytes_down";

/// An evaluation as a line of the table; what there is not is left empty.
pub(super) fn row(evaluation: &Evaluation) -> String {
    let Evaluation { round, local, shared, validation, untrained, gap, dual_norm, traffic, .. } = evaluation;
    let validation = validation.as_ref().map_or(String::new(), |quality| quality.mean.to_string());
    let (local, shared) = (columns(Some(local)), columns(shared.as_ref()));
    format!("{round},{local},{shared},{validation},{untrained},{gap},{dual_norm},{},{}", traffic.up, traffic.down)
}

fn columns(quality: Option<&Quality>) -> String {
    let numbers = |quality: &Quality| [quality.mean, quality.weighted, quality.worst_decile, quality.deviation, quality.loss];
    quality.map_or_else(|| ",,,,".into(), |quality| numbers(quality).map(|number| number.to_string()).join(","))
}

/// Whether a line belongs to the heading or to the first `rounds` rounds.
pub(super) fn is_before(line: &str, rounds: u64) -> bool {
    let first = line.split(',').next().unwrap_or_default();
    first.parse::<u64>().map_or(line == HEADING, |round| round <= rounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_columns_as_the_heading() {
        let columns = HEADING.split(',').count();
        let alone = Evaluation::default();
        let shared = Evaluation { shared: Some(Quality::default()), validation: Some(Quality::default()), ..alone.clone() };
        assert!([alone, shared].iter().all(|evaluation| row(evaluation).split(',').count() == columns));
    }
}
