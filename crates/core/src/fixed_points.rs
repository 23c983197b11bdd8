//! How many fixed points a model's solves can end in, and how contractive its cell is there.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Test samples a client; more would take forever.
const MOST_SAMPLES: usize = 100_000;
/// Solves a sample, likewise.
const MOST_STARTS: usize = 1_000;

/// How to look for several fixed points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Search {
    /// Test samples looked at, a client.
    #[schemars(range(min = 1, max = MOST_SAMPLES))]
    pub samples: usize,
    /// Solves of each: one from the model's own start, the others from random states of the same length.
    #[schemars(range(min = 1, max = MOST_STARTS))]
    pub starts: usize,
}

impl Default for Search {
    fn default() -> Self {
        Self { samples: 5, starts: 3 }
    }
}

impl Search {
    /// Refuses settings that mean nothing, or take forever.
    pub fn validate(&self, name: &str) -> Result<()> {
        let within = |part: &str, value: usize, most: usize| {
            let problem = || format!("`{name}{part}` is `{value}`");
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(problem(), format!("give a number from 1 to {most}")))
            }
        };
        within("samples", self.samples, MOST_SAMPLES)?;
        within("starts", self.starts, MOST_STARTS)
    }
}

/// What the solves of one sample ended in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Examined {
    /// Solves that converged, of all that were started.
    pub settled: usize,
    /// Whether the one from the model's own start did.
    pub own_settled: bool,
    /// Different fixed points among them.
    pub fixed_points: usize,
    /// The largest distance between two of them, relative to the length of the first.
    pub distance: f64,
    /// Whether they lead to different answers.
    pub answers_differ: bool,
    /// The spectral radius of the cell's Jacobian where the solve from the model's own start ended.
    pub radius: f64,
    /// The largest one where any of the solves that converged ended.
    pub largest_radius: f64,
}

/// What the solves of many samples ended in: sums, so that those of clients add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FixedPoints {
    /// Samples looked at.
    pub samples: u64,
    /// Those with more than one fixed point.
    pub several: u64,
    /// Those whose answer depends on where the solve starts.
    pub answers_differ: u64,
    /// Those whose solve from the model's own start found no fixed point.
    pub unsettled: u64,
    /// Those whose own fixed point is not stable: a spectral radius of 1 or more.
    pub unstable: u64,
    /// The largest distance between fixed points of one sample, relative to their length.
    pub distance: f64,
    /// The spectral radii at the samples' own fixed points, summed.
    pub radius: f64,
    /// The largest spectral radius at any fixed point.
    pub largest_radius: f64,
}

impl FixedPoints {
    /// Sums up what was found.
    pub fn of(examined: &[Examined]) -> Self {
        examined.iter().fold(Self::default(), |sum, sample| sum.plus(&Self::one(sample)))
    }

    fn one(sample: &Examined) -> Self {
        Self {
            samples: 1,
            several: (sample.fixed_points > 1).into(),
            answers_differ: sample.answers_differ.into(),
            unsettled: (!sample.own_settled).into(),
            unstable: (sample.radius >= 1.0).into(),
            distance: sample.distance,
            radius: sample.radius,
            largest_radius: sample.largest_radius,
        }
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            several: self.several + other.several,
            answers_differ: self.answers_differ + other.answers_differ,
            unsettled: self.unsettled + other.unsettled,
            unstable: self.unstable + other.unstable,
            distance: self.distance.max(other.distance),
            radius: self.radius + other.radius,
            largest_radius: self.largest_radius.max(other.largest_radius),
        }
    }

    /// The mean spectral radius at the samples' own fixed points; nothing if there are no samples.
    pub fn mean_radius(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.radius / self.samples as f64)
    }

    /// The shares of samples with several fixed points, with answers that differ, without a fixed point and with one that is not stable.
    pub fn shares(&self) -> Option<[f64; 4]> {
        let share = |count: u64| count as f64 / self.samples as f64;
        (self.samples > 0).then(|| [self.several, self.answers_differ, self.unsettled, self.unstable].map(share))
    }
}
