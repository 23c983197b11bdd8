//! The small files of a run folder: how the run stands, which program made it, who its clients are.
use std::path::Path;

use fedeq_core::{Error, Result};
use fedeq_data::partition::{ClientIndices, Tally};
use serde::{Deserialize, Serialize};

use super::files::{read_json, write_json};
use crate::experiment::{EngineSettings, Precision, Prepared};
use crate::machine::{Gpu, cores, processor};

/// What `status.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// How it stands.
    pub state: RunState,
    /// The process that wrote this. A run that says it is running while no process [works on it](super::Heartbeat) was killed.
    pub pid: u32,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    /// A process is working on it.
    Running,
    /// A process holds it, and waits to be resumed.
    Paused,
    /// It is complete.
    Finished,
    /// It was stopped; it can be resumed.
    Stopped,
    /// It failed; it can be resumed once the reason is gone.
    Failed,
    /// It says that a process is working on it, and none is; it can be resumed. It is not written, but found out.
    #[serde(skip_deserializing)]
    Killed,
    /// Something in its folder cannot be read. It is not written either.
    #[serde(skip_deserializing)]
    Malformed,
}

impl RunState {
    /// How a run stands that ended like this.
    pub(super) fn after<T>(outcome: &Result<T>) -> Self {
        match outcome {
            Ok(_) => Self::Finished,
            Err(Error::Interrupted) => Self::Stopped,
            Err(_) => Self::Failed,
        }
    }

    /// Whether a process holds the run.
    pub fn is_alive(self) -> bool {
        matches!(self, Self::Running | Self::Paused)
    }

    /// As a part of a sentence: "the run ...".
    pub fn words(self) -> &'static str {
        match self {
            Self::Finished => "is finished",
            Self::Running => "is still running",
            Self::Paused => "is paused",
            Self::Stopped => "was stopped before its end",
            Self::Failed => "failed before its end",
            Self::Killed => "was killed before its end",
            Self::Malformed => "cannot be read",
        }
    }
}

/// What `version.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The version of the program.
    pub fedeq: String,
    /// The commit that the program was built from, where that is known: an optimised build of a checkout. `-dirty` if files had changed since.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The operating system.
    pub system: String,
    /// The kind of processor.
    pub architecture: String,
    /// The processor, where the system tells.
    #[serde(default)]
    pub processor: Option<String>,
    /// The cores that the program may use, where the system tells.
    #[serde(default)]
    pub cores: Option<usize>,
    /// The GPU, where it is computed on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<UsedGpu>,
}

/// What `version.json` says of a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsedGpu {
    /// What it is called.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The newest CUDA version that its driver knew.
    pub driver: String,
    /// The precision of products.
    pub precision: Precision,
}

impl UsedGpu {
    /// The GPU that a run asks for; nothing where it asks for the CPU. One that is not there is refused.
    pub fn of(engine: &EngineSettings) -> Result<Option<Self>> {
        engine.check_device()?;
        let precision = engine.precision();
        Ok(engine.gpu()?.map(|Gpu { name, memory, driver, .. }| Self { name, memory, driver, precision }))
    }
}

const FILE: &str = "version.json";

impl Version {
    /// This program on this machine.
    pub fn here() -> Self {
        Self {
            fedeq: env!("CARGO_PKG_VERSION").into(),
            commit: option_env!("FEDEQ_COMMIT").map(str::to_owned),
            system: std::env::consts::OS.into(),
            architecture: std::env::consts::ARCH.into(),
            processor: processor(),
            cores: cores(),
            gpu: None,
        }
    }

    /// What a run folder says.
    pub fn read(folder: &Path) -> Result<Self> {
        read_json(&folder.join(FILE))
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        write_json(&folder.join(FILE), self)
    }
}

/// What `clients.json` says: names and counts, no data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roster {
    /// How many take part in training. Unseen ones come after them.
    pub training: usize,
    /// What every client holds.
    #[serde(flatten)]
    pub tally: Tally,
}

impl Roster {
    /// The clients of an experiment.
    pub(super) fn of(prepared: &Prepared) -> Self {
        let splits = &prepared.splits;
        let all: Vec<ClientIndices> = splits.clients.iter().chain(&splits.unseen).cloned().collect();
        Self { training: splits.clients.len(), tally: Tally::of(&prepared.dataset, &all) }
    }
}
