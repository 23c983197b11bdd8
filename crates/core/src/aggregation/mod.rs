//! How the server makes one model of what clients send: the rule, the clipping before it, and what one client may claim.
//!
//! # Layout
//! - this file: the settings
//! - `rule`: which rules there are, and what they ask of a cohort
//! - `coordinate`, `krum`, `geometric`: the rules
//! - `clip`: changes shortened to a bound, fixed or following a quantile
//! - `cap`: weights of which none is more than a share
//! - `received`: what a method's server step gets, and what was done with each update
//! - `rows`: sums over long vectors that depend on nothing but the order given
mod cap;
mod clip;
mod coordinate;
mod geometric;
mod krum;
mod received;
mod rows;
mod rule;
#[cfg(test)]
mod tests;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use received::{median, outliers};
pub(crate) use rows::{distances_to, flat, named_like};

pub use clip::{AdaptiveClip, Clipping, clip_to};
pub use received::{Handled, Received, Treatment};
pub use rule::{AggregationRule, GeometricMedian, Krum, TrimmedMean};

use crate::algorithm::Weighting;
use crate::error::{Error, Result};

/// How the server aggregates what clients send, whatever the method does with the result. Norms and distances are Euclidean, over all shared parameters;
/// running statistics of normalisations count in none of them.
///
/// First every client's change is clipped, then the rule is applied, by weights of which none exceeds the cap. A rule treats running statistics as it
/// treats parameters (what is a combination of clients is the same combination of their statistics); where the mean is taken of clipped
/// updates, it is the coordinate median of statistics, since a bound on parameters says nothing about them.
///
/// Clipping and every rule but the mean bend the exact consensus step of [`FedEq`](crate::FedEq): a client takes all of its change for counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Aggregation {
    /// How the cohort's updates are aggregated.
    pub rule: AggregationRule,
    /// Shortens changes that are longer than a bound, if given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clip: Option<Clipping>,
    /// The largest share of all weight in a round that one client can have; what it claims beyond is cut off. No limit if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub cap: Option<f64>,
    /// Whether each client's norm and distance to the aggregate are noted in the journal; if left out, where there is clipping or another rule
    /// than the mean, which need every client's numbers anyway. On a GPU they have to be copied from there first. `fedeq init-federation` writes `true` unless it is told otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub distances: Option<bool>,
}

impl Default for Aggregation {
    fn default() -> Self {
        Self::MEAN
    }
}

impl Aggregation {
    /// The weighted mean of all that was sent, as it was sent.
    pub const MEAN: Self = Self { rule: AggregationRule::Mean, clip: None, cap: None, distances: None };

    /// Whether all of it is as if nothing had been set.
    pub fn is_default(&self) -> bool {
        *self == Self::MEAN
    }

    /// The first setting that asks for more than the mean of all that was sent, if one does.
    pub(crate) fn beyond_mean(&self) -> Option<&'static str> {
        let asked = [
            ("plan.aggregation.rule", self.rule != AggregationRule::Mean),
            ("plan.aggregation.clip", self.clip.is_some()),
            ("plan.aggregation.cap", self.cap.is_some()),
            ("plan.aggregation.distances", self.distances == Some(true)),
        ];
        asked.into_iter().find(|(_, is_asked)| *is_asked).map(|(setting, _)| setting)
    }

    /// Whether norms and distances are noted.
    pub fn notes_distances(&self) -> bool {
        self.distances.unwrap_or(!self.is_plain())
    }

    /// Whether it is a mean of what was sent, which an engine can take where the weights are.
    pub(crate) fn is_plain(&self) -> bool {
        self.rule == AggregationRule::Mean && self.clip.is_none()
    }

    /// Whether it takes cohorts of a certain size.
    pub(crate) fn needs_cohort(&self) -> bool {
        let of_shares =
            matches!(self.rule, AggregationRule::TrimmedMean(_) | AggregationRule::Krum(_) | AggregationRule::MultiKrum(_));
        of_shares || self.cap.is_some()
    }

    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        self.rule.validate()?;
        self.clip.iter().try_for_each(|clip| clip.validate("plan.aggregation.clip"))?;
        let Some(cap) = self.cap else { return Ok(()) };
        if !(cap > 0.0 && cap <= 1.0) {
            return Err(Error::invalid(format!("`plan.aggregation.cap` is `{cap}`"), "give a share above 0 and at most 1"));
        }
        if matches!(self.rule, AggregationRule::Krum(_)) {
            let problem =
                "`plan.aggregation.cap` does not go with `plan.aggregation.rule = krum`, which takes one client's update for all";
            return Err(Error::invalid(problem, "leave it out, or set `plan.aggregation.rule=multi-krum`"));
        }
        Ok(())
    }

    /// Refuses to clip or to leave out liars, and to let each of them say how much it counts: for federations of clients that are not known.
    pub fn validate_claims(&self, weighting: Weighting) -> Result<()> {
        let counts_claims = match self.rule {
            AggregationRule::Mean => self.clip.is_some(),
            AggregationRule::MultiKrum(_) | AggregationRule::GeometricMedian(_) => true,
            // Every client counts the same, whatever it claims.
            AggregationRule::Median | AggregationRule::TrimmedMean(_) | AggregationRule::Krum(_) => false,
        };
        if !counts_claims || weighting == Weighting::Uniform || self.cap.is_some() {
            return Ok(());
        }
        let what = match self.rule {
            AggregationRule::Mean => "plan.aggregation.clip".to_owned(),
            rule => format!("plan.aggregation.rule = {}", rule.name()),
        };
        let problem = format!(
            "`{what}` is of no use where clients count by the samples that they say they have: one that claims enough has all the weight"
        );
        Err(Error::invalid(
            problem,
            "set `method.weighting=uniform`, or a largest share of the weight such as `plan.aggregation.cap=0.1`",
        ))
    }

    /// Refuses what cannot be done with so many updates a round.
    pub fn validate_cohort(&self, updates: usize) -> Result<()> {
        self.rule.ensure_enough(updates)?;
        match self.cap {
            Some(cap) if cap * (updates as f64) < 1.0 - 1e-9 => {
                let problem = format!("`plan.aggregation.cap` is `{cap}`, which `{updates}` clients a round cannot all keep to");
                Err(Error::invalid(problem, format!("give at least {}, or let more clients take part", 1.0 / updates as f64)))
            }
            _ => Ok(()),
        }
    }

    /// Refuses rules that compare updates with each other where they come one at a time.
    pub(crate) fn validate_single(&self) -> Result<()> {
        if self.rule == AggregationRule::Mean {
            return Ok(());
        }
        let problem = format!(
            "`plan.aggregation.rule = {}` compares the updates of a round, and with `plan.asynchronous` they come one at a time",
            self.rule.name()
        );
        Err(Error::invalid(problem, "leave out one of the two; `plan.aggregation.clip` works with single updates"))
    }
}
