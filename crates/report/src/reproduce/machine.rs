//! On what something was measured.
use std::fmt;
use std::path::Path;

use fedeq_core::Result;
use serde::{Deserialize, Serialize};

use fedeq_run::number::counted;
use fedeq_run::run::Version;

/// The program and the machine that carried out a run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Machine {
    /// The version of the program.
    pub version: String,
    /// The system and its architecture.
    pub system: String,
    /// The processor, where the system tells.
    pub processor: Option<String>,
    /// Its cores, as far as the program may use them.
    pub cores: Option<usize>,
}

impl Machine {
    /// What a run folder says.
    pub(super) fn of_run(folder: &Path) -> Result<Self> {
        Version::read(folder).map(Self::of)
    }

    /// This program on this machine.
    pub(super) fn here() -> Self {
        Self::of(Version::here())
    }

    fn of(version: Version) -> Self {
        let Version { fedeq, system, architecture, processor, cores } = version;
        Self { version: fedeq, system: format!("{system} {architecture}"), processor, cores }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cores = self.cores.map_or_else(|| "unknown cores".into(), |cores| counted(cores, "core"));
        let processor = self.processor.as_deref().unwrap_or("unknown processor");
        write!(formatter, "{cores} of {processor}, {}, fedeq {}", self.system, self.version)
    }
}
