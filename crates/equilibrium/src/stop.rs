//! When an iteration is good enough, and when it has gone on for long enough.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InvalidSetting, STEPS, non_negative, within};

/// A sample is finished when `||f(z) - z|| <= absolute + relative * ||f(z)||`, and given up after `max_steps` evaluations of `f`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Stop {
    /// Tolerance in units of the state's own norm.
    #[schemars(range(min = 0.0))]
    pub relative: f64,
    /// Tolerance in absolute units.
    #[schemars(range(min = 0.0))]
    pub absolute: f64,
    /// Evaluations of the map allowed for a sample.
    #[schemars(range(min = *STEPS.start(), max = *STEPS.end()))]
    pub max_steps: usize,
}

impl Default for Stop {
    fn default() -> Self {
        Self { relative: 1e-3, absolute: 0.0, max_steps: 20 }
    }
}

impl Stop {
    /// A relative tolerance and a step limit.
    pub fn relative(tolerance: f64, max_steps: usize) -> Self {
        Self { relative: tolerance, absolute: 0.0, max_steps }
    }

    /// An absolute tolerance and a step limit.
    pub fn absolute(tolerance: f64, max_steps: usize) -> Self {
        Self { relative: 0.0, absolute: tolerance, max_steps }
    }

    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        non_negative("stop.relative", self.relative)?;
        non_negative("stop.absolute", self.absolute)?;
        within("stop.max_steps", self.max_steps, STEPS)
    }

    /// Whether a residual of norm `residual` at a state of norm `scale` is small enough.
    pub(crate) fn is_met(&self, residual: f64, scale: f64) -> bool {
        residual <= self.absolute + self.relative * scale
    }
}
