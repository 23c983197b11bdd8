//! Evaluations as a table for other programs.
use fedeq_core::{Evaluation, FixedPoints, Quality, Round, TheorySums};

/// The first line of `metrics.csv`.
pub(super) const HEADING: &str = "round,\
local_mean,local_weighted,local_worst_decile,local_deviation,local_mean_loss,local_weighted_loss,\
shared_mean,shared_weighted,shared_worst_decile,shared_deviation,shared_mean_loss,shared_weighted_loss,\
validation_mean,untrained,gap,dual_norm,lagrangian,stationarity,head_gradient,bytes_up,bytes_down,\
train_loss,solver_steps,solver_residual,solver_unconverged,solver_warm,\
fixed_points_several,fixed_points_answers_differ,fixed_points_unsettled,fixed_points_unstable,\
fixed_points_distance,spectral_radius,spectral_radius_largest";

/// An evaluation, and the round before it, as a line of the table; what there is not is left empty.
pub(super) fn row(evaluation: &Evaluation, before: &Round) -> String {
    let Evaluation { round, local, shared, validation, untrained, gap, dual_norm, theory, fixed_points, traffic } = evaluation;
    let mut cells = vec![round.to_string()];
    cells.extend(numbers(Some(qualities(local))));
    cells.extend(numbers(shared.as_ref().map(qualities)));
    cells.extend(numbers(validation.as_ref().map(|quality| [quality.mean])));
    cells.push(untrained.to_string());
    cells.extend(numbers(Some([*gap, *dual_norm])));
    cells.extend(numbers(theory.as_ref().map(sums)));
    cells.extend([traffic.up.to_string(), traffic.down.to_string()]);
    cells.extend(numbers(Some([before.loss])));
    cells.extend(numbers(before.solves.means()));
    cells.extend(numbers(before.solves.warm_share().map(|share| [share])));
    cells.extend(numbers(fixed_points.as_ref().and_then(FixedPoints::shares)));
    cells.extend(numbers(fixed_points.as_ref().and_then(distance_and_radii)));
    cells.join(",")
}

fn qualities(quality: &Quality) -> [f64; 6] {
    [quality.mean, quality.weighted, quality.worst_decile, quality.deviation, quality.mean_loss, quality.loss]
}

fn sums(theory: &TheorySums) -> [f64; 3] {
    [theory.lagrangian, theory.stationarity, theory.head_gradient]
}

fn distance_and_radii(found: &FixedPoints) -> Option<[f64; 3]> {
    found.mean_radius().map(|mean| [found.distance, mean, found.largest_radius])
}

fn numbers<const N: usize>(numbers: Option<[f64; N]>) -> [String; N] {
    numbers.map_or_else(|| [const { String::new() }; N], |numbers| numbers.map(|number| number.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_columns_as_the_heading() {
        let columns = HEADING.split(',').count();
        let alone = Evaluation::default();
        let quality = Some(Quality::default());
        let theory = Some(TheorySums::default());
        let fixed_points = Some(FixedPoints { samples: 1, ..FixedPoints::default() });
        let whole = Evaluation { shared: quality.clone(), validation: quality, theory, fixed_points, ..alone.clone() };
        let count = |evaluation: &Evaluation| row(evaluation, &Round::default()).split(',').count();
        assert!([alone, whole].iter().all(|evaluation| count(evaluation) == columns));
    }
}
