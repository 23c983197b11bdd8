//! What can be asked for.
use std::path::PathBuf;

use fedeq_core::Training;
use serde::Deserialize;
use serde_json::Value;

use crate::Result;
use crate::setting::Setting;

/// One job, as the driver writes it.
#[derive(Debug, Deserialize)]
#[serde(tag = "job", rename_all = "kebab-case", deny_unknown_fields)]
pub(crate) enum Job {
    /// Writes samples, the order of batches and weights for both sides.
    Prepare(Prepare),
    /// The loss and the size of its gradient on the first batch, and the mean loss over an epoch of training.
    Check(Step),
    /// Milliseconds a training step.
    Step(Step),
    /// Seconds a round.
    Round(Round),
    /// What one core can do at most, and what share of it the cell's forward pass reaches.
    Peak(Peak),
}

/// Which samples to write, and which weights.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Prepare {
    pub(crate) setting: Setting,
    /// Where to write.
    pub(crate) folder: PathBuf,
    /// A file of LEAF's FEMNIST to take writers from; otherwise samples are made up.
    #[serde(default)]
    pub(crate) femnist: Option<PathBuf>,
    pub(crate) clients: usize,
    /// Samples of a client on average; at most so many where they are real.
    pub(crate) samples: usize,
    pub(crate) training: Training,
}

/// Training steps on the samples of the first client.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Step {
    pub(crate) setting: Setting,
    pub(crate) folder: PathBuf,
    pub(crate) training: Training,
    pub(crate) threads: usize,
    /// Passes that are counted.
    pub(crate) repeats: usize,
}

/// Rounds of a federation.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Round {
    pub(crate) setting: Setting,
    pub(crate) folder: PathBuf,
    pub(crate) training: Training,
    /// `fedeq`, `fedavg`, `fedrep`.
    pub(crate) method: String,
    pub(crate) clients: usize,
    /// How many of them take part in a round.
    pub(crate) cohort: usize,
    pub(crate) rounds: usize,
    /// Clients that train side by side.
    pub(crate) workers: usize,
    /// `cpu` or `cuda`.
    #[serde(default)]
    pub(crate) device: On,
    /// Of a GPU.
    #[serde(default)]
    pub(crate) precision: Precision,
    /// Whether to say what every kernel of a GPU takes, instead of how long rounds take.
    #[serde(default)]
    pub(crate) profile: bool,
}

/// Where clients train.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum On {
    #[default]
    Cpu,
    Cuda,
}

/// How precisely a GPU computes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Precision {
    #[default]
    Mixed,
    Exact,
}

/// A forward pass to hold against the machine's limit.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Peak {
    pub(crate) setting: Setting,
    pub(crate) batch: usize,
    pub(crate) repeats: usize,
}

impl Job {
    pub(crate) fn threads(&self) -> usize {
        match self {
            Self::Prepare(_) | Self::Peak(_) => 1,
            Self::Check(step) | Self::Step(step) => step.threads,
            Self::Round(round) => round.workers,
        }
    }

    pub(crate) fn run(&self) -> Result<Value> {
        match self {
            Self::Prepare(prepare) => prepare.run(),
            Self::Check(step) => step.check(),
            Self::Step(step) => step.time(),
            Self::Round(round) => round.time(),
            Self::Peak(peak) => peak.measure(),
        }
    }
}
