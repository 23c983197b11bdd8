//! How long to wait before asking again.
use std::time::Duration;

/// Short while there is something to do, longer the longer there is not; with jitter, so that nodes do not ask in step. A call that is lost is soon made again;
/// if the next ones are lost too, the waits double.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    /// While the SuperLink answers.
    idle: f64,
    /// While it does not.
    away: Option<f64>,
    /// Changes with every wait.
    jitter: u32,
}

/// Right after an answer. Shorter would not make rounds shorter, but a SuperLink with many nodes would do little else than say that there is nothing to do.
const SHORTEST: f64 = 0.2;
/// While the SuperLink answers; Flower's own nodes always wait this long.
const LONGEST: f64 = 3.0;
/// While it does not.
const LONGEST_AWAY: f64 = 30.0;
const FIRST_AWAY: f64 = 0.1;

impl Default for Pace {
    fn default() -> Self {
        Self { idle: SHORTEST, away: None, jitter: std::process::id() }
    }
}

impl Pace {
    /// The SuperLink answered, and there was something to do or not.
    pub(crate) fn heard(&mut self, was_busy: bool) {
        self.idle = if was_busy { SHORTEST } else { (self.idle * 1.3).min(LONGEST) };
        self.away = None;
        self.stir();
    }

    /// The SuperLink did not answer a call; whether it answered others tells a bad line from one that is cut.
    pub(crate) fn missed(&mut self, answers_others: bool) {
        let longest = if answers_others { LONGEST } else { LONGEST_AWAY };
        self.away = Some(self.away.map_or(FIRST_AWAY, |away| (2.0 * away).min(longest)));
        self.stir();
    }

    fn stir(&mut self) {
        self.jitter = self.jitter.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
    }

    /// How long to wait now: up to a quarter less or more.
    pub(crate) fn wait(&self) -> Duration {
        let share = f64::from(self.jitter >> 16) / f64::from(u16::MAX);
        Duration::from_secs_f64(self.away.unwrap_or(self.idle) * (0.75 + 0.5 * share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_a_limit_and_shrink_at_once() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.heard(false));
        assert!(pace.wait().as_secs_f64() <= LONGEST * 1.25 && pace.wait().as_secs_f64() >= LONGEST * 0.75);
        pace.heard(true);
        assert!(pace.wait().as_secs_f64() <= SHORTEST * 1.25);
    }

    #[test]
    fn a_call_that_is_lost_is_soon_made_again_and_one_that_comes_through_ends_the_wait() {
        let mut pace = Pace::default();
        (0..100).for_each(|_| pace.heard(false));
        pace.missed(false);
        assert!(pace.wait().as_secs_f64() < 0.2);
        (0..100).for_each(|_| pace.missed(true));
        assert!((LONGEST * 0.75..=LONGEST * 1.25).contains(&pace.wait().as_secs_f64()));
        (0..100).for_each(|_| pace.missed(false));
        assert!((LONGEST_AWAY * 0.75..=LONGEST_AWAY * 1.25).contains(&pace.wait().as_secs_f64()));
        pace.heard(false);
        assert!(pace.wait().as_secs_f64() <= LONGEST * 1.25);
    }
}
