//! Lines of the journal of evaluations without what only a drill-down needs: every client's score, which is most of them.
use std::fmt;

use fedeq_core::{Quality, TheorySums, Traffic};
use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// A [`Quality`] without every client's.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QualityPoint {
    pub(crate) accuracy: f64,
    pub(crate) weighted: f64,
    pub(crate) worst: f64,
    pub(crate) deviation: f64,
    pub(crate) loss: f64,
}

impl QualityPoint {
    /// Nothing where no client tells its score.
    pub(crate) fn of(quality: &Quality) -> Option<Self> {
        let Quality { mean, weighted, worst_decile, deviation, mean_loss, .. } = *quality.known()?;
        Some(Self { accuracy: mean, weighted, worst: worst_decile, deviation, loss: mean_loss })
    }
}

/// An [`Evaluation`](fedeq_core::Evaluation), as far as curves show it.
#[derive(Deserialize)]
pub(crate) struct EvaluationLine {
    pub(crate) round: u64,
    pub(crate) local: QualityLine,
    pub(crate) shared: Option<QualityLine>,
    pub(crate) gap: f64,
    pub(crate) dual_norm: f64,
    pub(crate) theory: Option<TheorySums>,
    pub(crate) traffic: Traffic,
}

/// A [`Quality`] as it is written.
#[derive(Deserialize)]
pub(crate) struct QualityLine {
    weighted: f64,
    mean: f64,
    deviation: f64,
    worst_decile: f64,
    #[serde(default)]
    mean_loss: f64,
    clients: Scores,
}

impl QualityLine {
    /// Nothing where no client tells its score.
    pub(crate) fn point(&self) -> Option<QualityPoint> {
        let Self { weighted, mean, deviation, worst_decile, mean_loss, clients } = *self;
        clients.are_known().then_some(QualityPoint { accuracy: mean, weighted, worst: worst_decile, deviation, loss: mean_loss })
    }
}

/// How many clients there are, and how many of them tell their scores.
#[derive(Clone, Copy)]
struct Scores {
    clients: usize,
    told: usize,
}

impl Scores {
    /// As [`Quality::known`].
    fn are_known(self) -> bool {
        self.clients == 0 || self.told > 0
    }
}

impl<'de> Deserialize<'de> for Scores {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(Counting)
    }
}

/// Counts numbers without reading them.
struct Counting;

impl<'de> Visitor<'de> for Counting {
    type Value = Scores;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list of scores")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut scores: A) -> Result<Scores, A::Error> {
        let mut found = Scores { clients: 0, told: 0 };
        while let Some(score) = scores.next_element::<Option<IgnoredAny>>()? {
            found.clients += 1;
            found.told += usize::from(score.is_some());
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use fedeq_core::{Evaluation, Score};

    use super::*;

    #[test]
    fn a_line_says_what_the_whole_evaluation_says() {
        let score = |correct| Score { predictions: 10, correct, loss: 3.0 };
        for scores in [vec![], vec![Score::default(); 2], vec![score(3), Score::default(), score(9)]] {
            let local = Quality::of(&scores);
            for shared in [None, Some(Quality::of(&scores[..scores.len().min(1)]))] {
                let evaluation = Evaluation { round: 7, local: local.clone(), shared, gap: 0.25, ..Evaluation::default() };
                let text = serde_json::to_string(&evaluation).expect("JSON");
                let line: EvaluationLine = serde_json::from_str(&text).expect("a line");
                assert_eq!((line.round, line.gap, line.traffic), (7, 0.25, evaluation.traffic));
                assert_eq!(line.local.point(), QualityPoint::of(&evaluation.local));
                let shared = evaluation.shared.as_ref().map(QualityPoint::of);
                assert_eq!(line.shared.as_ref().map(QualityLine::point), shared);
            }
        }
    }
}
