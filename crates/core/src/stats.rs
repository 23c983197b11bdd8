//! What local work is measured by: scores, training statistics, what it took.
use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};

use crate::disclosure::Disclosure;
use crate::work::{Phase, Slot};

/// Which of a client's data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Portion {
    /// What it trains on.
    Train,
    /// What it sets aside for tuning.
    Validation,
    /// What it is evaluated by.
    Test,
}

/// A prediction mixed from the network's and that of the nearest training samples.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Neighbours {
    /// How many neighbours vote.
    #[schemars(range(min = 1))]
    pub count: usize,
    /// The weight of the neighbours' vote, against the network's.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub mixing: f64,
}

impl Default for Neighbours {
    fn default() -> Self {
        Self { count: 10, mixing: 0.5 }
    }
}

/// How local training went. It travels in messages, whose size must not depend on the clock or on a measurement: there, seconds and bytes
/// are written as texts of a fixed width.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrainStats {
    /// Gradient steps taken.
    pub steps: u64,
    /// The mean loss over the last epoch.
    pub loss: f64,
    /// What the equilibrium solves took.
    pub solves: SolveTally,
    /// Where the time went.
    #[serde(with = "fixed_seconds")]
    pub seconds: PhaseSeconds,
    /// What memory it took.
    #[serde(default, with = "fixed_bytes")]
    pub memory: PhaseBytes,
    /// How much of this the client tells.
    #[serde(default, skip_serializing_if = "Disclosure::is_everything")]
    pub disclosure: Disclosure,
}

impl TrainStats {
    /// What two phases took together; the loss is that of the later one.
    pub fn then(self, later: Self) -> Self {
        Self {
            steps: self.steps + later.steps,
            loss: later.loss,
            solves: self.solves.plus(&later.solves),
            seconds: self.seconds.plus(&later.seconds),
            memory: self.memory.or_more(&later.memory),
            disclosure: later.disclosure,
        }
    }
}

/// How the phases of a client's update went, put together as they end.
#[derive(Clone, Debug, Default)]
pub struct UpdateStats {
    all: TrainStats,
    /// Of every model that is trained batch by batch: the sum of its losses in the epoch so far, and how many these are.
    losses: BTreeMap<Slot, (f64, u64)>,
}

impl UpdateStats {
    /// Adds a phase. The loss of a phase that is one batch is the mean over its model's epoch so far.
    pub fn add(&mut self, phase: &Phase, stats: TrainStats) {
        let loss = phase.batch.map_or(stats.loss, |batch| self.mean_loss(phase.slot, batch, stats.loss));
        self.all = std::mem::take(&mut self.all).then(TrainStats { loss, ..stats });
    }

    fn mean_loss(&mut self, slot: Slot, batch: u64, loss: f64) -> f64 {
        let (sum, count) = self.losses.entry(slot).or_default();
        if batch == 0 {
            (*sum, *count) = (0.0, 0);
        }
        (*sum, *count) = (*sum + loss, *count + 1);
        *sum / *count as f64
    }

    /// All phases together.
    pub fn all(self) -> TrainStats {
        self.all
    }
}

/// What equilibrium solves took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SolveTally {
    /// Samples solved for.
    pub samples: u64,
    /// Cell evaluations, summed over samples.
    pub steps: u64,
    /// Relative residuals, summed over samples whose residual is finite.
    pub residual: f64,
    /// Samples that did not meet their tolerance.
    pub unconverged: u64,
    /// Samples whose solve became NaN or infinite.
    pub not_finite: u64,
    /// Samples whose solve started where an earlier one of the same sample ended.
    #[serde(default)]
    pub warm: u64,
}

impl SolveTally {
    /// Steps, relative residual and share of the unconverged, a sample; nothing if nothing was solved.
    pub fn means(&self) -> Option<[f64; 3]> {
        let samples = self.samples as f64;
        let sums = [self.steps as f64, self.residual, self.unconverged as f64];
        (self.samples > 0).then(|| sums.map(|sum| sum / samples))
    }

    /// The share of samples that started warm; nothing if nothing was solved.
    pub fn warm_share(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.warm as f64 / self.samples as f64)
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            steps: self.steps + other.steps,
            residual: self.residual + other.residual,
            unconverged: self.unconverged + other.unconverged,
            not_finite: self.not_finite + other.not_finite,
            warm: self.warm + other.warm,
        }
    }
}

/// Where the time of local work went, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseSeconds {
    /// Forward passes, solves included.
    pub solve: f64,
    /// Backward passes.
    pub backward: f64,
    /// Parameter updates.
    pub update: f64,
}

/// The most memory that local work held at a time, in bytes, beyond what was there before it: parameters, gradients and everything in
/// between. Zero where memory is not counted, see [`fedeq_memory`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PhaseBytes {
    /// During forward passes, solves included.
    #[serde(deserialize_with = "count")]
    pub solve: u64,
    /// During backward passes.
    #[serde(deserialize_with = "count")]
    pub backward: u64,
    /// During parameter updates.
    #[serde(deserialize_with = "count")]
    pub update: u64,
}

impl PhaseBytes {
    /// The most in any phase.
    pub fn most(&self) -> u64 {
        self.solve.max(self.backward).max(self.update)
    }

    /// The larger of both, phase by phase.
    pub fn or_more(&self, other: &Self) -> Self {
        Self {
            solve: self.solve.max(other.solve),
            backward: self.backward.max(other.backward),
            update: self.update.max(other.update),
        }
    }
}

/// A count; runs of earlier versions wrote it as text.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum NumberOrText {
        Number(u64),
        Text(String),
    }
    match NumberOrText::deserialize(deserializer)? {
        NumberOrText::Number(count) => Ok(count),
        NumberOrText::Text(text) => text.parse().map_err(|_| serde::de::Error::custom(format!("`{text}` is not a count"))),
    }
}

/// Three texts of a fixed width, by phase.
#[derive(Serialize, Deserialize)]
struct Fixed {
    solve: String,
    backward: String,
    update: String,
}

/// Seconds as nine digits before and six after the point.
mod fixed_seconds {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::{Fixed, PhaseSeconds};

    pub(super) fn serialize<S: Serializer>(seconds: &PhaseSeconds, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |seconds: f64| format!("{:016.6}", seconds.clamp(0.0, 999_999_999.0));
        let PhaseSeconds { solve, backward, update } = *seconds;
        Fixed { solve: text(solve), backward: text(backward), update: text(update) }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PhaseSeconds, D::Error> {
        let Fixed { solve, backward, update } = Fixed::deserialize(deserializer)?;
        let number = |text: String| text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a number of seconds")));
        Ok(PhaseSeconds { solve: number(solve)?, backward: number(backward)?, update: number(update)? })
    }
}

/// Counts of bytes as fifteen digits.
mod fixed_bytes {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::{Fixed, PhaseBytes};

    pub(super) fn serialize<S: Serializer>(bytes: &PhaseBytes, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |count: u64| format!("{:015}", count.min(999_999_999_999_999));
        let PhaseBytes { solve, backward, update } = *bytes;
        Fixed { solve: text(solve), backward: text(backward), update: text(update) }.serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PhaseBytes, D::Error> {
        let Fixed { solve, backward, update } = Fixed::deserialize(deserializer)?;
        let count = |text: String| text.parse().map_err(|_| D::Error::custom(format!("`{text}` is not a count")));
        Ok(PhaseBytes { solve: count(solve)?, backward: count(backward)?, update: count(update)? })
    }
}

impl PhaseSeconds {
    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self { solve: self.solve + other.solve, backward: self.backward + other.backward, update: self.update + other.update }
    }
}

/// How well weights do: sums, so that scores of clients add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Predictions made: samples, or positions of text that are not padding.
    pub predictions: u64,
    /// Of which right.
    pub correct: u64,
    /// The loss, summed over predictions.
    pub loss: f64,
}

impl Score {
    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            predictions: self.predictions + other.predictions,
            correct: self.correct + other.correct,
            loss: self.loss + other.loss,
        }
    }

    /// The share that is right; nothing if nothing was predicted.
    pub fn accuracy(&self) -> Option<f64> {
        (self.predictions > 0).then(|| self.correct as f64 / self.predictions as f64)
    }

    /// The mean loss; nothing if nothing was predicted.
    pub fn mean_loss(&self) -> Option<f64> {
        (self.predictions > 0).then(|| self.loss / self.predictions as f64)
    }
}
