//! Whether a run is running.
use fedeq_core::{Error, Result};
use serde::{Deserialize, Serialize};

/// What `status.json` says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// How it stands.
    pub state: State,
    /// The process that wrote this. A run that says it is running while nobody holds its lock was killed.
    pub pid: u32,
}

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// A process is working on it.
    Running,
    /// A process holds it, and waits for somebody to let it go on.
    Paused,
    /// It is complete.
    Finished,
    /// Somebody stopped it; it can be resumed.
    Stopped,
    /// It failed; it can be resumed once the reason is gone.
    Failed,
}

impl State {
    /// How a run stands that ended like this.
    pub(super) fn after<T>(outcome: &Result<T>) -> Self {
        match outcome {
            Ok(_) => Self::Finished,
            Err(Error::Interrupted) => Self::Stopped,
            Err(_) => Self::Failed,
        }
    }
}
