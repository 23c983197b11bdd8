//! Drift over rounds: what a client trains on moves through its samples while rounds go by.
use std::ops::Range;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// In each round a client trains on a window of its training samples, in the order in which the data set has them. The window begins at the first sample in the first round, ends at
/// the last one in the last round, and moves evenly in between; it has as many samples in every round.
///
/// Evaluations see all test samples in every round, and what theory measures is measured on all training samples. How much a client counts in a mean does not change. Once all
/// rounds are over, the window is the last one.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Drift {
    /// The share of a client's training samples that it trains on in a round.
    #[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))]
    pub window: f64,
}

impl Default for Drift {
    fn default() -> Self {
        Self { window: 0.25 }
    }
}

impl Drift {
    /// How many of so many samples a window has; one at least, where there are any.
    pub fn samples(&self, of: usize) -> usize {
        // 0.07 of 100 is just above 7 in floating point, and means 7.
        ((self.window * of as f64 - 1e-9).ceil() as usize).max(1).min(of)
    }

    /// The window of a round, from 0, of so many.
    pub(crate) fn window(&self, round: u64, rounds: u64) -> DriftWindow {
        let last = rounds.saturating_sub(1);
        let place = if last == 0 { 0.0 } else { round.min(last) as f64 / last as f64 };
        DriftWindow { drift: *self, place }
    }

    /// Refuses a window that is none, or all there is.
    pub(crate) fn validate(&self) -> Result<()> {
        if self.window > 0.0 && self.window < 1.0 {
            return Ok(());
        }
        let problem = format!("`training.drift.window` is `{}`", self.window);
        Err(Error::invalid(problem, "give a share above 0 and below 1, or leave `training.drift` out"))
    }
}

/// Which of a client's samples a phase trains on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftWindow {
    drift: Drift,
    /// How far it has moved, from 0 to 1.
    place: f64,
}

impl DriftWindow {
    /// The places of its samples among so many.
    pub fn of(&self, samples: usize) -> Range<usize> {
        let count = self.drift.samples(samples);
        let start = ((samples - count) as f64 * self.place).round() as usize;
        start..start + count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_moves_evenly_from_the_first_sample_to_the_last_and_keeps_its_size() {
        let drift = Drift { window: 0.2 };
        let windows: Vec<Range<usize>> = (0..5).map(|round| drift.window(round, 5).of(100)).collect();
        assert_eq!(windows, [0..20, 20..40, 40..60, 60..80, 80..100]);
        assert_eq!(drift.window(9, 5).of(100), 80..100, "once all rounds are over");
        assert_eq!(drift.window(0, 1).of(100), 0..20, "a single round");
    }

    #[test]
    fn every_window_is_part_of_the_samples_whatever_their_number() {
        for samples in 0..60 {
            for window in [0.01, 0.07, 0.5, 0.99] {
                let drift = Drift { window };
                let all: Vec<Range<usize>> = (0..7).map(|round| drift.window(round, 7).of(samples)).collect();
                assert!(all.iter().all(|range| range.end <= samples && range.len() == drift.samples(samples)), "{all:?}");
                assert!(all.is_sorted_by_key(|range| range.start) && all[6].end == samples, "{all:?}");
                assert!((drift.samples(samples) > 0) == (samples > 0));
            }
        }
        assert_eq!(Drift { window: 0.07 }.samples(100), 7);
    }

    #[test]
    fn a_window_that_is_none_or_all_there_is_is_refused() {
        for window in [0.0, 1.0, -0.5, f64::NAN] {
            assert!(Drift { window }.validate().is_err(), "{window}");
        }
    }
}
