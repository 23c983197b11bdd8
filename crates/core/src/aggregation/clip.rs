//! Clipping: no client's change is longer than a bound.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rows::squared_distance;
use crate::error::{Error, Result};
use crate::training::positive;

/// The bound on the Euclidean norm of a client's change: of `theta_i - theta`, or of what is sent where a method sends a change.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Clipping {
    /// Always the same.
    Fixed(#[schemars(extend("exclusiveMinimum" = 0))] f64),
    /// Following a quantile of the norms.
    Adaptive(AdaptiveClip),
}

/// A bound that follows a quantile of the norms (Andrew et al., 2021): after every round `C <- C exp(-rate (b - quantile))`, where `b` is the share of the
/// round's updates that were not longer than `C`. The server keeps `C` from round to round, and from update to update where they come one at a time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AdaptiveClip {
    /// The share of updates that are to be left as they are.
    #[schemars(extend("exclusiveMinimum" = 0), extend("exclusiveMaximum" = 1))]
    pub quantile: f64,
    /// How quickly the bound moves.
    #[schemars(range(max = 10.0), extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// The bound of the first round; the quantile of that round's norms if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub initial: Option<f64>,
}

impl Default for AdaptiveClip {
    fn default() -> Self {
        Self { quantile: 0.5, rate: 0.2, initial: None }
    }
}

impl Clipping {
    /// Refuses settings that mean nothing; `key` is where they stand.
    pub(crate) fn validate(&self, key: &str) -> Result<()> {
        match *self {
            Self::Fixed(bound) => positive(&format!("{key}.fixed"), bound),
            Self::Adaptive(AdaptiveClip { quantile, rate, initial }) => {
                if !(quantile > 0.0 && quantile < 1.0) {
                    let problem = format!("`{key}.adaptive.quantile` is `{quantile}`");
                    return Err(Error::invalid(problem, "give a share above 0 and below 1"));
                }
                if !(rate > 0.0 && rate <= 10.0) {
                    let problem = format!("`{key}.adaptive.rate` is `{rate}`");
                    return Err(Error::invalid(problem, "give a number above 0 and at most 10"));
                }
                initial.map_or(Ok(()), |initial| positive(&format!("{key}.adaptive.initial"), initial))
            }
        }
    }

    /// The bound of a round; `kept` is what the server kept, `norms` are this round's.
    pub(super) fn bound(&self, kept: Option<f64>, norms: &[f64]) -> f64 {
        match *self {
            Self::Fixed(bound) => bound,
            Self::Adaptive(AdaptiveClip { quantile, initial, .. }) => {
                kept.or(initial).unwrap_or_else(|| quantile_of(norms, quantile))
            }
        }
    }

    /// The bound after a round in which this share of the updates was not longer than `bound`; nothing where none has to be kept.
    pub fn next(&self, bound: f64, within: f64) -> Option<f64> {
        match *self {
            Self::Fixed(_) => None,
            // A bound of 0 could never grow, and one that is infinite never shrink.
            Self::Adaptive(AdaptiveClip { quantile, rate, .. }) => {
                Some((bound * libm::exp(-rate * (within - quantile))).clamp(f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX)))
            }
        }
    }
}

/// The smallest of the values that at least this share does not exceed.
fn quantile_of(values: &[f64], quantile: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let at = (quantile * sorted.len() as f64).ceil() as usize;
    sorted[at.clamp(1, sorted.len()) - 1]
}

/// The values with their distance from `origin` shortened to `bound`; nothing if they are no further away.
pub fn clip_to(values: &[f32], origin: &[f32], bound: f64) -> Option<Vec<f32>> {
    let norm = squared_distance(values, origin).sqrt();
    if norm <= bound {
        return None;
    }
    let shorter = |(&value, &origin): (&f32, &f32)| {
        let (value, origin) = (f64::from(value), f64::from(origin));
        (origin + bound / norm * (value - origin)) as f32
    };
    Some(values.iter().zip(origin).map(shorter).collect())
}
