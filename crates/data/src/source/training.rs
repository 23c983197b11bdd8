//! How models usually learn from a data set: the numbers of the paper's run scripts, where there are any.
use std::num::NonZeroUsize;

use super::SampleKind;

/// What an experiment has for a data set where it says nothing itself, whatever the preset.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UsualTraining {
    /// T.
    pub rounds: u64,
    /// The share of clients a round.
    pub fraction: f64,
    /// Rounds between evaluations.
    pub evaluate_every: u64,
    /// Samples a gradient step.
    pub batch: NonZeroUsize,
    /// The learning rate of the methods that FeDEQ is compared with.
    pub rate: f64,
    /// The learning rate of FeDEQ.
    pub fedeq_rate: f64,
    /// The model of FeDEQ, by its name.
    pub equilibrium: &'static str,
    /// The model of the methods that it is compared with.
    pub explicit: &'static str,
}

/// A batch of so many samples.
pub(super) const fn batch(samples: usize) -> NonZeroUsize {
    NonZeroUsize::new(samples).expect("a batch has samples")
}

impl UsualTraining {
    /// Pictures of which nothing else is known.
    pub const IMAGES: Self = Self {
        rounds: 150,
        fraction: 0.1,
        evaluate_every: 10,
        batch: batch(10),
        rate: 0.01,
        fedeq_rate: 0.01,
        equilibrium: "deq-resnet-s",
        explicit: "resnet-20",
    };
    /// Rows of numbers.
    pub const NUMBERS: Self = Self { equilibrium: "deq-mlp", explicit: "mlp", ..Self::IMAGES };
    /// Text.
    pub const TEXT: Self = Self {
        rounds: 400,
        batch: batch(16),
        rate: 0.1,
        fedeq_rate: 0.1,
        equilibrium: "deq-transformer",
        explicit: "transformer-8",
        ..Self::IMAGES
    };

    /// What samples of a kind have.
    pub const fn of(kind: SampleKind) -> Self {
        match kind {
            SampleKind::Images => Self::IMAGES,
            SampleKind::Text => Self::TEXT,
            SampleKind::Numbers => Self::NUMBERS,
        }
    }
}
