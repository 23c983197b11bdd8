//! Where the time of a run goes.
use fedeq_core::{PhaseBytes, RoundSeconds};
use serde::{Deserialize, Serialize};

/// One line of `timings.jsonl`: a round and, where there was one, the evaluation after it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Rounds that were over.
    pub round: u64,
    /// Seconds of the round from beginning to end.
    pub train: f64,
    /// Seconds of forward passes, summed over clients, which may have worked side by side.
    pub solve: f64,
    /// Seconds of backward passes, summed over clients.
    pub backward: f64,
    /// Seconds of parameter updates, summed over clients.
    pub update: f64,
    /// Seconds of the server's own step.
    pub server: f64,
    /// Seconds of writing, sending and reading messages, summed over clients.
    #[serde(default)]
    pub communicate: f64,
    /// Seconds of the evaluation.
    pub evaluate: f64,
    /// The most memory the local work of one client held, in bytes: parameters, gradients and all tensors on the way.
    #[serde(default)]
    pub client_memory: PhaseBytes,
    /// The most memory the process has held so far, in bytes, where the system tells.
    pub peak_memory: Option<u64>,
}

impl Timing {
    /// Seconds of the round and of the evaluation after it.
    pub fn seconds(&self) -> f64 {
        self.train + self.evaluate
    }

    /// The timing of a round.
    pub(super) fn of_round(round: u64, seconds: &RoundSeconds) -> Self {
        let RoundSeconds { total, local, memory, server, communicate } = seconds;
        Self {
            round,
            train: *total,
            solve: local.solve,
            backward: local.backward,
            update: local.update,
            server: *server,
            communicate: *communicate,
            client_memory: *memory,
            ..Self::default()
        }
    }
}

/// The most memory this process has held, in bytes; nothing where the system does not tell.
pub(super) fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| 1024 * kibibytes)
}
