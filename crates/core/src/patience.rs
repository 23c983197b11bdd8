//! Training that ends once validation accuracy stands still.
//!
//! Every evaluation that finds no better accuracy than one before it costs patience. When none is left, the round after is the last one: so what a method does at
//! the end of training, and the evaluation after it, happen as they do at the end of the plan.
use fedeq_models::store::Metadata;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::metrics::Evaluation;

/// How validation accuracy has gone so far: what the server remembers of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValidationRecord {
    /// The best so far, mean over clients.
    pub best: f64,
    /// Evaluations since then.
    pub since: u64,
    /// The last round, once that is decided.
    pub last_round: Option<u64>,
}

/// That training ends before the plan does, since validation accuracy stands still.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoodStill {
    /// The last round of training.
    pub last_round: u64,
    /// Rounds that were planned.
    pub planned: u64,
    /// The best validation accuracy, mean over clients.
    pub best: f64,
    /// Evaluations since then, none of which found a better one.
    pub evaluations: u64,
}

impl ValidationRecord {
    /// What is remembered after an evaluation. One in which no client tells of validation samples says nothing.
    pub(crate) fn after(known: Option<Self>, evaluation: &Evaluation) -> Option<Self> {
        let Some(found) = evaluation.validation.as_ref().and_then(|quality| quality.known()) else { return known };
        match known {
            Some(record) if found.mean <= record.best => Some(Self { since: record.since + 1, ..record }),
            _ => Some(Self { best: found.mean, since: 0, last_round: None }),
        }
    }

    /// Decides that the round after this one is the last, where patience is over and the plan has more.
    pub(crate) fn decide(&mut self, patience: u64, round: u64, planned: u64) -> Option<StoodStill> {
        if self.since < patience || round + 1 >= planned {
            return None;
        }
        self.last_round = Some(round + 1);
        Some(StoodStill { last_round: round + 1, planned, best: self.best, evaluations: self.since })
    }

    pub(crate) fn write(&self, notes: &mut Metadata) {
        notes.insert(BEST.into(), format!("{:?}", self.best));
        notes.insert(SINCE.into(), self.since.to_string());
        notes.extend(self.last_round.map(|round| (LAST_ROUND.into(), round.to_string())));
    }

    /// What was written; nothing where nothing was.
    pub(crate) fn read(notes: &Metadata) -> Result<Option<Self>> {
        let Some(best) = number(notes, BEST)? else { return Ok(None) };
        let since = number(notes, SINCE)?.ok_or_else(|| Error::message(format!("its `{SINCE}` is missing")))?;
        Ok(Some(Self { best, since, last_round: number(notes, LAST_ROUND)? }))
    }
}

const BEST: &str = "validation-best";
const SINCE: &str = "validation-since";
const LAST_ROUND: &str = "last-round";

fn number<N: std::str::FromStr>(notes: &Metadata, key: &str) -> Result<Option<N>> {
    let parsed = |text: &String| text.parse().map_err(|_| Error::message(format!("its `{key}` is not a number")));
    notes.get(key).map(parsed).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Quality;

    fn evaluation(validation: Option<f64>) -> Evaluation {
        let quality = |mean| Quality { mean, clients: vec![Some(mean)], ..Quality::default() };
        Evaluation { validation: validation.map(quality), ..Evaluation::default() }
    }

    #[test]
    fn only_a_better_accuracy_gives_new_patience() {
        let mut record = None;
        let mut since = |accuracy| {
            record = ValidationRecord::after(record, &evaluation(accuracy));
            record.map(|record| record.since)
        };
        assert_eq!(since(None), None, "nothing is known");
        let found = [0.5, 0.5, 0.6, 0.59, 0.6].map(|accuracy| since(Some(accuracy)));
        assert_eq!(found, [0, 1, 0, 1, 2].map(Some), "as good is no better");
        assert_eq!(since(None), Some(2), "what says nothing counts for nothing");
    }

    #[test]
    fn the_round_after_the_last_patience_is_the_last_unless_the_plan_ends_there() {
        let record = ValidationRecord { best: 0.5, since: 2, last_round: None };
        let decided = |patience, round, planned| {
            let mut record = record;
            (record.decide(patience, round, planned), record.last_round)
        };
        assert_eq!(decided(3, 10, 20), (None, None));
        let end = StoodStill { last_round: 11, planned: 20, best: 0.5, evaluations: 2 };
        assert_eq!(decided(2, 10, 20), (Some(end), Some(11)));
        assert_eq!(decided(2, 19, 20), (None, None));
    }

    #[test]
    fn what_is_written_is_read_to_the_last_bit() {
        let mut notes = Metadata::new();
        assert_eq!(ValidationRecord::read(&notes).expect("nothing"), None);
        let record = ValidationRecord { best: 0.1 + 0.2, since: 4, last_round: Some(17) };
        record.write(&mut notes);
        assert_eq!(ValidationRecord::read(&notes).expect("sound"), Some(record));
        notes.remove(SINCE);
        assert!(ValidationRecord::read(&notes).is_err());
    }
}
