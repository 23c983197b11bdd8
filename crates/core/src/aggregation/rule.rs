//! Which rules there are, and what they ask of a cohort.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{coordinate, geometric, krum, rows};
use crate::error::{Error, Result};
use crate::training::positive;

/// Makes [`AggregationRule`] of lines `Variant(Settings) = "name"`.
macro_rules! rules {
    ($(#[$attribute:meta])* pub enum AggregationRule { $($(#[$inner:meta])* $variant:ident $(($settings:ty))? = $name:literal,)+ }) => {
        $(#[$attribute])*
        pub enum AggregationRule {
            $($(#[$inner])* #[serde(rename = $name)] $variant $(($settings))?,)+
        }

        impl AggregationRule {
            /// Its name, as in settings.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => $name,)+
                }
            }
        }
    };
}

rules! {
    /// Which one of many updates is made.
    ///
    /// | rule | what it is | holds as long as |
    /// |---|---|---|
    /// | `mean` | the weighted mean | no client lies |
    /// | `median` | the median of every coordinate | fewer than half lie |
    /// | `trimmed-mean` | the mean of every coordinate without its smallest and largest values | at most the share trimmed lies |
    /// | `krum` | the update that is nearest to its neighbours (Blanchard et al., 2017) | at most the share assumed lies |
    /// | `multi-krum` | the weighted mean of all but so many of the worst by the same score | the same |
    /// | `geometric-median` | the point with the least sum of weighted distances (Pillutla et al., 2022) | those with less than half of the weight lie |
    ///
    /// `median` and `trimmed-mean`, and the scores of `krum`, count every client the same: how many samples a client has is what it says.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub enum AggregationRule {
        /// The weighted mean.
        #[default]
        Mean = "mean",
        /// The median of every coordinate; of an even number of clients the mean of the two in the middle.
        Median = "median",
        /// The mean of every coordinate without its extremes.
        TrimmedMean(TrimmedMean) = "trimmed-mean",
        /// The one update with the least score.
        Krum(Krum) = "krum",
        /// The weighted mean of the updates with the least scores.
        MultiKrum(Krum) = "multi-krum",
        /// The point with the least sum of weighted distances.
        GeometricMedian(GeometricMedian) = "geometric-median",
    }
}

/// How much is trimmed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TrimmedMean {
    /// The share of clients left out at either end, rounded up to whole clients.
    #[schemars(extend("exclusiveMinimum" = 0), extend("exclusiveMaximum" = 0.5))]
    pub share: f64,
}

impl Default for TrimmedMean {
    fn default() -> Self {
        Self { share: 0.2 }
    }
}

/// What Krum assumes. An update's score is the sum of squared distances to its `n - f - 2` nearest neighbours, of `n` updates with `f` liars among them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Krum {
    /// The share of malicious clients that is assumed, rounded up to whole clients: `f` of `n` updates, which must be at least `2 f + 3`. `multi-krum` leaves out `f`.
    #[schemars(extend("exclusiveMinimum" = 0), extend("exclusiveMaximum" = 0.5))]
    pub liars: f64,
}

impl Default for Krum {
    fn default() -> Self {
        Self { liars: 0.2 }
    }
}

/// How the geometric median is found: by Weiszfeld's iteration with smoothed distances, from the coordinate median.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GeometricMedian {
    /// Distances shorter than this share of the cohort's median distance count as if they had that length; the iteration ends when it moves by less.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub smoothing: f64,
    /// The most iterations.
    #[schemars(range(min = 1, max = MOST_ITERATIONS))]
    pub iterations: usize,
}

impl Default for GeometricMedian {
    fn default() -> Self {
        Self { smoothing: 1e-6, iterations: 100 }
    }
}

/// More would never come to an end.
const MOST_ITERATIONS: usize = 10_000;

/// What a rule makes of a cohort.
pub(super) enum Verdict {
    /// A weighted mean, with a weight for each client; those with 0 are left out.
    Combination(Vec<f64>),
    /// Each coordinate on its own.
    Coordinates(CoordinateRule),
}

/// A rule for each coordinate on its own.
#[derive(Clone, Copy)]
pub(super) enum CoordinateRule {
    Median,
    /// Without so many values at either end.
    Trimmed(usize),
}

impl CoordinateRule {
    pub(super) fn of(self, rows: &[&[f32]]) -> Vec<f32> {
        match self {
            Self::Median => coordinate::median(rows),
            Self::Trimmed(cut) => coordinate::trimmed_mean(rows, cut),
        }
    }
}

impl AggregationRule {
    /// What it makes of these updates, one a row, with these weights.
    pub(super) fn verdict(self, rows: &[&[f32]], weights: Vec<f64>) -> Result<Verdict> {
        self.ensure_enough(rows.len())?;
        let count = rows.len();
        let kept_by_krum = |liars: usize, kept: usize| krum::best(&krum::scores(&rows::squared_distances(rows), liars), kept);
        Ok(match self {
            Self::Mean => Verdict::Combination(or_the_same(weights, &vec![true; count])),
            Self::Median => Verdict::Coordinates(CoordinateRule::Median),
            Self::TrimmedMean(TrimmedMean { share }) => Verdict::Coordinates(CoordinateRule::Trimmed(whole(share, count))),
            Self::Krum(Krum { liars }) => {
                Verdict::Combination(or_the_same(vec![0.0; count], &kept_by_krum(whole(liars, count), 1)))
            }
            Self::MultiKrum(Krum { liars }) => {
                let liars = whole(liars, count);
                Verdict::Combination(or_the_same(weights, &kept_by_krum(liars, count - liars)))
            }
            Self::GeometricMedian(settings) => {
                Verdict::Combination(geometric::weights(rows, &or_the_same(weights, &vec![true; count]), &settings))
            }
        })
    }

    /// Refuses a cohort that the rule can make nothing of.
    pub(super) fn ensure_enough(self, updates: usize) -> Result<()> {
        let (name, (key, share), liars, least) = match self {
            Self::TrimmedMean(TrimmedMean { share }) => {
                let cut = whole(share, updates);
                (self.name(), ("share", share), cut, 2 * cut + 1)
            }
            Self::Krum(Krum { liars: share }) | Self::MultiKrum(Krum { liars: share }) => {
                let liars = whole(share, updates);
                (self.name(), ("liars", share), liars, 2 * liars + 3)
            }
            Self::Mean | Self::Median | Self::GeometricMedian(_) => return Ok(()),
        };
        if updates >= least {
            return Ok(());
        }
        let problem = format!(
            "`plan.aggregation.rule.{name}.{key} = {share}` is `{liars}` of a round's `{updates}` updates, which takes at least {least} of them"
        );
        Err(Error::invalid(
            problem,
            "lower it, let more clients take part with `plan.sampling.fraction`, or choose the rule `median`",
        ))
    }

    pub(super) fn validate(self) -> Result<()> {
        match self {
            Self::Mean | Self::Median => Ok(()),
            Self::TrimmedMean(TrimmedMean { share }) => below_half("plan.aggregation.rule.trimmed-mean.share", share),
            Self::Krum(Krum { liars }) => below_half("plan.aggregation.rule.krum.liars", liars),
            Self::MultiKrum(Krum { liars }) => below_half("plan.aggregation.rule.multi-krum.liars", liars),
            Self::GeometricMedian(GeometricMedian { smoothing, iterations }) => {
                positive("plan.aggregation.rule.geometric-median.smoothing", smoothing)?;
                if smoothing <= 1.0 && (1..=MOST_ITERATIONS).contains(&iterations) {
                    return Ok(());
                }
                let problem = format!(
                    "`plan.aggregation.rule.geometric-median` has `smoothing = {smoothing}` and `iterations = {iterations}`"
                );
                Err(Error::invalid(problem, "give a smoothing of at most 1, and from 1 to 10,000 iterations"))
            }
        }
    }
}

/// The weights of those who are kept; where they say that they have no samples at all, they count the same.
fn or_the_same(weights: Vec<f64>, kept: &[bool]) -> Vec<f64> {
    let of_kept = |weight: f64, is_kept: &bool| if *is_kept { weight } else { 0.0 };
    let kept_weights: Vec<f64> = weights.into_iter().zip(kept).map(|(weight, is_kept)| of_kept(weight, is_kept)).collect();
    if kept_weights.iter().any(|weight| *weight > 0.0) {
        return kept_weights;
    }
    kept.iter().map(|is_kept| of_kept(1.0, is_kept)).collect()
}

/// The share of so many clients, rounded up.
fn whole(share: f64, clients: usize) -> usize {
    (share * clients as f64 - 1e-9).ceil().max(0.0) as usize
}

fn below_half(name: &str, share: f64) -> Result<()> {
    if share > 0.0 && share < 0.5 {
        return Ok(());
    }
    Err(Error::invalid(format!("`{name}` is `{share}`"), "give a share above 0 and below 0.5"))
}
