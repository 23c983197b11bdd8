//! How long to wait before asking for messages again.
use std::time::Duration;

/// Short while there is work, longer the longer there is none; with jitter, so that nodes do not all ask at the same time. A call that failed is soon repeated;
/// if the next ones fail too, the waits double (exponential backoff).
#[derive(Clone, Debug)]
pub(crate) struct PollInterval {
    /// Seconds while the SuperLink answers.
    idle: f64,
    /// Seconds while it does not.
    backoff: Option<f64>,
    /// Changes with every wait.
    jitter: u32,
}

/// Right after a request. Shorter would not make rounds shorter, but would load a SuperLink with many nodes.
const SHORTEST: f64 = 0.2;
/// At most, while the SuperLink answers; Flower's own nodes always wait this long.
const LONGEST: f64 = 3.0;
/// At most, while it does not.
const LONGEST_BACKOFF: f64 = 30.0;
const FIRST_BACKOFF: f64 = 0.1;

impl Default for PollInterval {
    fn default() -> Self {
        Self { idle: SHORTEST, backoff: None, jitter: std::process::id() }
    }
}

impl PollInterval {
    /// The SuperLink answered; there was work or not.
    pub(crate) fn succeeded(&mut self, was_busy: bool) {
        self.idle = if was_busy { SHORTEST } else { (self.idle * 1.3).min(LONGEST) };
        self.backoff = None;
        self.advance_jitter();
    }

    /// The SuperLink did not answer a call; whether it answered others tells an unreliable network from a lost one.
    pub(crate) fn failed(&mut self, answers_others: bool) {
        let longest = if answers_others { LONGEST } else { LONGEST_BACKOFF };
        self.backoff = Some(self.backoff.map_or(FIRST_BACKOFF, |backoff| (2.0 * backoff).min(longest)));
        self.advance_jitter();
    }

    fn advance_jitter(&mut self) {
        self.jitter = self.jitter.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }

    /// How long to wait now: up to a quarter less or more.
    pub(crate) fn duration(&self) -> Duration {
        let share = f64::from(self.jitter >> 16) / f64::from(u16::MAX);
        Duration::from_secs_f64(self.backoff.unwrap_or(self.idle) * (0.75 + 0.5 * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_shrink_at_once() {
        let mut interval = PollInterval::default();
        (0..100).for_each(|_| interval.succeeded(false));
        assert!(interval.duration().as_secs_f64() <= LONGEST * 1.25 && interval.duration().as_secs_f64() >= LONGEST * 0.75);
        interval.succeeded(true);
        assert!(interval.duration().as_secs_f64() <= SHORTEST * 1.25);
    }

    #[test]
    fn a_failed_call_is_soon_repeated_and_a_successful_one_ends_the_backoff() {
        let mut interval = PollInterval::default();
        (0..100).for_each(|_| interval.succeeded(false));
        interval.failed(false);
        assert!(interval.duration().as_secs_f64() < 0.2);
        (0..100).for_each(|_| interval.failed(true));
        assert!((LONGEST * 0.75..=LONGEST * 1.25).contains(&interval.duration().as_secs_f64()));
        (0..100).for_each(|_| interval.failed(false));
        assert!((LONGEST_BACKOFF * 0.75..=LONGEST_BACKOFF * 1.25).contains(&interval.duration().as_secs_f64()));
        interval.succeeded(false);
        assert!(interval.duration().as_secs_f64() <= LONGEST * 1.25);
    }
}
