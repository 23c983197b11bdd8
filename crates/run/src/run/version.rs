//! Which program made a run, and on what.
use std::path::Path;

use fedeq_core::Result;
use serde::{Deserialize, Serialize};

use super::folder::{read_json, write_json};

/// What `version.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// The version of the program.
    pub fedeq: String,
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
}

const FILE: &str = "version.json";

impl Version {
    /// This program on this machine.
    pub fn here() -> Self {
        Self {
            fedeq: env!("CARGO_PKG_VERSION").into(),
            system: std::env::consts::OS.into(),
            architecture: std::env::consts::ARCH.into(),
            processor: processor(),
            cores: std::thread::available_parallelism().ok().map(|cores| cores.get()),
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

/// The processor's name, as Linux tells it.
fn processor() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}
