//! How much a client tells about itself beside its weights.
use fedeq_data::named;
use serde::{Deserialize, Serialize};

use crate::algorithm::{Update, Weighting};
use crate::message::{Reply, Scores, Theory};
use crate::stats::{PhaseBytes, PhaseSeconds, Score, SolveTally, TrainStats};

named! {
    /// How much a client tells about itself beside its weights. Its own setting, which no server can change.
    ///
    /// | | `everything` | `coarse` | `none` |
    /// |---|---|---|---|
    /// | training samples, where the mean counts clients by them | exact | one digit | one digit |
    /// | training samples elsewhere | exact | 1 | 1 |
    /// | accuracies | correct of all predictions | steps of 5 %, as correct of 20 | not told |
    /// | losses, gap, norm of the dual, the theory's numbers | exact | two digits | not told |
    /// | gradient steps | exact | one digit | not told |
    /// | solver's work, seconds and memory a phase, fixed points | exact | not told | not told |
    /// | how often it took part, which the server knows | exact | exact | exact |
    ///
    /// Numbers that are not told are sent as zeros, and [`tells`](Self::tells) is false, so that they are not taken for measurements.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    pub enum Disclosure {
        /// Every number, as it is.
        #[default]
        Everything = "everything",
        /// Rounded numbers, and no timings.
        Coarse = "coarse",
        /// None.
        None = "none",
    }
}

/// A coarse accuracy is a number of correct predictions among so many.
const COARSE_PREDICTIONS: u64 = 20;

impl Disclosure {
    /// Whether the numbers of a client mean something.
    pub fn tells(self) -> bool {
        self != Self::None
    }

    /// Whether it is the usual, which messages do not name.
    pub(crate) fn is_everything(&self) -> bool {
        *self == Self::Everything
    }

    /// A reply as it leaves the client. `weighting` is how clients count in the mean: the number of samples is part of an update where they count by it.
    pub fn apply(self, reply: Reply, weighting: Weighting) -> Reply {
        if self.is_everything() {
            return reply;
        }
        match reply {
            Reply::Update(Update { weights, samples, gap, stats }) => {
                let samples = if weighting == Weighting::Uniform { 1 } else { one_digit(samples).max(1) };
                Reply::Update(Update { weights, samples, gap: self.number(gap), stats: self.stats(&stats) })
            }
            Reply::Scores(scores) => Reply::Scores(Box::new(self.scores(&scores))),
            Reply::Done(stats) => Reply::Done(self.stats(&stats)),
            Reply::Aggregation(message) => Reply::Aggregation(message),
        }
    }

    fn number(self, value: f64) -> f64 {
        match self {
            Self::Everything => value,
            Self::Coarse => two_digits(value),
            Self::None => 0.0,
        }
    }

    fn stats(self, stats: &TrainStats) -> TrainStats {
        let steps = if self.tells() { one_digit(stats.steps) } else { 0 };
        TrainStats {
            steps,
            loss: self.number(stats.loss),
            solves: SolveTally::default(),
            seconds: PhaseSeconds::default(),
            memory: PhaseBytes::default(),
            disclosure: self,
        }
    }

    fn scores(self, scores: &Scores) -> Scores {
        let Scores { local, shared, validation, participations, gap, dual_norm, theory, .. } = scores;
        Scores {
            local: self.score(*local),
            shared: shared.map(|score| self.score(score)),
            validation: validation.filter(|_| self.tells()).map(|score| self.score(score)),
            participations: *participations,
            gap: self.number(*gap),
            dual_norm: self.number(*dual_norm),
            theory: theory.as_ref().map(|theory| self.theory(theory)),
            fixed_points: None,
            disclosure: self,
        }
    }

    fn score(self, score: Score) -> Score {
        match (self, score.accuracy(), score.mean_loss()) {
            (Self::Coarse, Some(accuracy), Some(loss)) => Score {
                predictions: COARSE_PREDICTIONS,
                correct: (accuracy * COARSE_PREDICTIONS as f64).round() as u64,
                loss: two_digits(loss) * COARSE_PREDICTIONS as f64,
            },
            _ => Score::default(),
        }
    }

    fn theory(self, theory: &Theory) -> Theory {
        let Theory { lagrangian, stationarity, head_gradient } = theory;
        Theory {
            lagrangian: self.number(*lagrangian),
            stationarity: self.number(*stationarity),
            head_gradient: self.number(*head_gradient),
        }
    }
}

/// A count rounded to its first digit: 14 is 10, 1,650 is 2,000.
fn one_digit(count: u64) -> u64 {
    let unit = 10u64.pow(count.checked_ilog10().unwrap_or_default());
    // No count is near the largest that there is.
    count.saturating_add(unit / 2) / unit * unit
}

/// A number rounded to two digits. Through text, so that it is the number that people read.
fn two_digits(value: f64) -> f64 {
    format!("{value:.1e}").parse().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::acceptance::{Acceptance, Limits};
    use crate::algorithm::{Algorithm, FedEq};
    use crate::message::{ClientTask, Request};

    #[test]
    fn numbers_are_rounded_as_people_round() {
        let counts = [(0, 0), (1, 1), (9, 9), (14, 10), (15, 20), (96, 100), (1_650, 2_000), (10, 10)];
        assert!(counts.into_iter().all(|(count, rounded)| one_digit(count) == rounded));
        assert_eq!([0.0, 0.123_4, -7.77, 149_000.0].map(two_digits), [0.0, 0.12, -7.8, 150_000.0]);
    }

    fn scores() -> Scores {
        let score = Score { predictions: 37, correct: 31, loss: 37.0 * 0.4321 };
        Scores {
            local: score,
            shared: Some(score),
            validation: Some(score),
            participations: 3,
            gap: 1.234_5,
            dual_norm: 0.033_33,
            theory: Some(Theory { lagrangian: 1.111, stationarity: 2.222, head_gradient: 3.333 }),
            ..Scores::default()
        }
    }

    fn update() -> Update {
        let solves = SolveTally { samples: 37, steps: 99, residual: 0.1, ..SolveTally::default() };
        let seconds = PhaseSeconds { solve: 1.5, backward: 2.5, update: 0.5 };
        let memory = PhaseBytes { solve: 11, backward: 22, update: 33 };
        let stats = TrainStats { steps: 185, loss: 0.654_32, solves, seconds, memory, ..TrainStats::default() };
        Update { weights: Default::default(), samples: 37, gap: 1.234_5, stats }
    }

    #[test]
    fn coarse_scores_have_no_exact_count_in_them() {
        let Reply::Scores(coarse) = Disclosure::Coarse.apply(Reply::Scores(Box::new(scores())), Weighting::Uniform) else {
            panic!("scores")
        };
        // 31 of 37 are 84 %, which is nearest to 17 of 20.
        assert_eq!(coarse.local, Score { predictions: 20, correct: 17, loss: 20.0 * 0.43 });
        assert_eq!((coarse.shared, coarse.validation), (Some(coarse.local), Some(coarse.local)));
        assert_eq!((coarse.gap, coarse.dual_norm, coarse.participations), (1.2, 0.033, 3));
        assert_eq!(coarse.theory, Some(Theory { lagrangian: 1.1, stationarity: 2.2, head_gradient: 3.3 }));
        assert!(coarse.disclosure.tells());
    }

    #[test]
    fn what_is_not_told_is_marked_and_zero() {
        let Reply::Scores(none) = Disclosure::None.apply(Reply::Scores(Box::new(scores())), Weighting::Uniform) else {
            panic!("scores")
        };
        let silent = Scores {
            shared: Some(Score::default()),
            theory: Some(Theory::default()),
            participations: 3,
            disclosure: Disclosure::None,
            ..Scores::default()
        };
        assert_eq!(*none, silent);
        let Reply::Done(stats) = Disclosure::None.apply(Reply::Done(update().stats), Weighting::Uniform) else {
            panic!("statistics")
        };
        assert_eq!(stats, TrainStats { disclosure: Disclosure::None, ..TrainStats::default() });
    }

    #[test]
    fn an_update_tells_its_samples_only_where_clients_count_by_them() {
        for (weighting, samples) in [(Weighting::Uniform, 1), (Weighting::Samples, 40)] {
            for disclosure in [Disclosure::Coarse, Disclosure::None] {
                let reply = disclosure.apply(Reply::Update(update()), weighting);
                let Reply::Update(Update { samples: told, stats, .. }) = reply else { panic!("an update") };
                assert_eq!(told, samples, "{disclosure:?}");
                assert_eq!(stats.seconds, PhaseSeconds::default());
                assert_eq!((stats.memory, stats.solves), (PhaseBytes::default(), SolveTally::default()));
            }
        }
    }

    #[test]
    fn a_server_accepts_all_three() {
        let acceptance = Acceptance { limits: Some(Limits::default()), ..Acceptance::default() };
        let method = FedEq::default();
        for disclosure in [Disclosure::Everything, Disclosure::Coarse, Disclosure::None] {
            let replies = [
                (ClientTask::Train, disclosure.apply(Reply::Update(update()), method.weighting())),
                (ClientTask::Measure, disclosure.apply(Reply::Scores(Box::new(scores())), method.weighting())),
            ];
            for (task, reply) in replies {
                let request = Request { task, round: 0, rounds: 3, rho: Some(0.1), weights: Default::default() };
                assert_eq!(acceptance.check(&reply, &request, &method), Ok(()), "{disclosure:?} {task:?}");
            }
        }
    }

    #[test]
    fn everything_is_the_usual_and_adds_nothing_to_a_message() {
        let reply = Reply::Update(update());
        assert_eq!(Disclosure::Everything.apply(reply.clone(), Weighting::Uniform), reply);
        assert!(!reply.header().expect("writable").contains("disclosure"));
        let coarse = Disclosure::Coarse.apply(reply, Weighting::Samples);
        assert!(coarse.header().expect("writable").contains(r#""disclosure":"coarse""#));
        let text = coarse.header().expect("writable");
        assert_eq!(Reply::from_parts(&text, Default::default()).expect("readable"), coarse);
        assert!(Disclosure::NAMES.iter().all(|name| Disclosure::named(name).is_some()));
    }
}
