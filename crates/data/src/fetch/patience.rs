//! How long to wait, and how often to try again.
use std::time::Duration;

/// The limits that bound a download in time.
#[derive(Clone, Debug, PartialEq)]
pub struct Patience {
    /// For finding the server and connecting to it.
    pub connect: Duration,
    /// For the next bytes, once connected.
    pub silence: Duration,
    /// For the whole download, pauses included.
    pub total: Duration,
    /// How many attempts in a row may bring nothing new before giving up.
    pub attempts: u32,
    /// Before the second attempt; doubles with each further one.
    pub pause: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(15),
            silence: Duration::from_secs(30),
            total: Duration::from_secs(6 * 3600),
            attempts: 5,
            pause: Duration::from_secs(1),
        }
    }
}

impl Patience {
    /// The pause after so many failures in a row.
    pub(super) fn pause_after(&self, failures: u32) -> Duration {
        self.pause.saturating_mul(2u32.saturating_pow(failures.saturating_sub(1)))
    }
}
