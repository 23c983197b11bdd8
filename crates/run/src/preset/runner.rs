//! The values of the authors' run scripts, by data set, and values in their spirit for data they did not have.
use std::num::NonZeroUsize;

use fedeq_data::source::Source;

/// What does not depend on the preset.
pub(super) struct Runner {
    /// T.
    pub(super) rounds: u64,
    /// The share of clients a round.
    pub(super) fraction: f64,
    /// Rounds between evaluations.
    pub(super) evaluate_every: u64,
    /// Samples a gradient step.
    pub(super) batch: NonZeroUsize,
    /// The learning rate of the methods FeDEQ is compared with.
    pub(super) rate: f64,
    /// The learning rate of FeDEQ.
    pub(super) fedeq_rate: f64,
    /// The model of FeDEQ.
    pub(super) equilibrium: &'static str,
    /// The model of the methods it is compared with.
    pub(super) explicit: &'static str,
    /// Ditto's penalty.
    pub(super) penalty: f64,
    /// Whether samples are text.
    pub(super) is_text: bool,
}

impl Runner {
    /// The values for a data set.
    pub(super) fn of(source: &Source) -> Self {
        match source {
            Source::Digits {} => Self {
                rounds: 60,
                fraction: 0.2,
                evaluate_every: 5,
                rate: 0.05,
                fedeq_rate: 0.05,
                ..Self::images("deq-resnet-xs", "resnet-xs", 10)
            },
            Source::Femnist {} | Source::Images(_) => Self::images("deq-resnet-s", "resnet-20", 10),
            Source::Cifar10 {} => Self::images("deq-resnet-m", "resnet-34", 20),
            Source::Cifar100 {} => Self { rate: 0.05, ..Self::images("deq-resnet-m", "resnet-34", 20) },
            Source::Shakespeare(_) | Source::Text(_) => Self::text(),
            Source::Csv(_) | Source::Synthetic(_) => Self::images("deq-mlp", "mlp", 10),
        }
    }

    fn images(equilibrium: &'static str, explicit: &'static str, batch: usize) -> Self {
        Self {
            rounds: 150,
            fraction: 0.1,
            evaluate_every: 10,
            batch: NonZeroUsize::new(batch).unwrap_or(NonZeroUsize::MIN),
            rate: 0.01,
            fedeq_rate: 0.01,
            equilibrium,
            explicit,
            penalty: 0.3,
            is_text: false,
        }
    }

    fn text() -> Self {
        let text = Self::images("deq-transformer", "transformer-8", 16);
        Self { rounds: 400, rate: 0.1, fedeq_rate: 0.1, penalty: 0.1, is_text: true, ..text }
    }
}
