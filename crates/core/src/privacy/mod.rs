//! Differential privacy at the level of clients: all models that the server ever had tell little about whether a client took part, whatever its data are.
//!
//! In a round, every client's change is clipped to a norm `C`, the changes are summed, Gaussian noise of deviation `z C` is added to every coordinate of the
//! sum, and the result is divided by a number that does not depend on who took part. How much all rounds together reveal is the [`Accountant`]'s business.
//!
//! # Layout
//! - this file: the settings, and what they are refused with
//! - `mechanism`: the settings made live for so many clients: what is drawn, what is spent, when training ends
//! - `discrete`: Gaussian noise on the integers, for sums in a ring
//! - `accountant`: what rounds of noisy sums come to
mod accountant;
mod discrete;
mod mechanism;
#[cfg(test)]
mod tests;

use fedeq_data::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(crate) use discrete::{DiscreteGaussian, LARGEST_VARIANCE};
pub(crate) use mechanism::{NoiseShare, PrivateRound};

pub use accountant::{Accountant, Drawn, Relation};
pub use mechanism::{Mechanism, PrivacySpent, PrivacySummary};

use crate::aggregation::{AggregationRule, Clipping, flat, named_like};
use crate::algorithm::{Algorithm, Weighting};
use crate::error::{Error, Result};
use crate::message::Reply;
use crate::plan::Plan;
use crate::training::positive;
use crate::weights::Weights;

/// How clients are protected from all who see the server's models.
///
/// Covered is what clients send as the shared part of their models. Not covered is what else reaches the server: numbers of samples, losses and scores.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Privacy {
    /// The bound on the Euclidean norm of a client's change, over all shared parameters: `C`.
    pub clip: Clipping,
    /// The noise in the sum of all changes, in units of `C`: `z`. Either this or `epsilon` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = LARGEST), extend("exclusiveMinimum" = 0))]
    pub noise_multiplier: Option<f64>,
    /// The epsilon that all rounds of the plan may spend: the least noise that keeps to it is searched.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = LARGEST), extend("exclusiveMinimum" = 0))]
    pub epsilon: Option<f64>,
    /// Training ends before more epsilon than this would have been spent; never early if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = LARGEST), extend("exclusiveMinimum" = 0))]
    pub budget: Option<f64>,
    /// The delta of (epsilon, delta)-differential privacy; a tenth of one over the number of clients if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0), extend("exclusiveMaximum" = 1))]
    pub delta: Option<f64>,
    /// Who adds the noise.
    pub noise: NoiseBy,
    /// The share of a round's clients that may drop out, where clients add the noise: the others' noise is then still enough.
    #[schemars(range(min = 0.0, max = 0.9))]
    pub dropouts: f64,
    /// The noise in the count of changes that were not clipped, where the bound adapts; a twentieth of a cohort if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub count_noise: Option<f64>,
}

impl Default for Privacy {
    fn default() -> Self {
        Self {
            clip: Clipping::Fixed(1.0),
            noise_multiplier: None,
            epsilon: None,
            budget: None,
            delta: None,
            noise: NoiseBy::Server,
            dropouts: 0.0,
            count_noise: None,
        }
    }
}

/// Who adds the noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NoiseBy {
    /// The server, which clients have to trust: it sees what each of them sends.
    #[default]
    Server,
    /// Each of `m` clients adds noise of variance `(z C)^2 / m`, so that the sum has all of it. The server then need not be trusted with the sum, but a single
    /// client's noise protects little: it must see nothing but sums.
    Clients,
}

/// Beyond this, noise and budgets are surely a slip.
const LARGEST: f64 = 1e6;

impl Privacy {
    /// Refuses settings that mean nothing, contradict each other, or promise what is not proved.
    pub(crate) fn validate(&self, plan: &Plan, algorithm: &dyn Algorithm) -> Result<()> {
        self.validate_numbers()?;
        self.validate_method(algorithm)?;
        self.validate_plan(plan)
    }

    fn validate_numbers(&self) -> Result<()> {
        match (self.noise_multiplier, self.epsilon) {
            (Some(multiplier), None) => within("plan.privacy.noise_multiplier", multiplier, LARGEST)?,
            (None, Some(epsilon)) => within("plan.privacy.epsilon", epsilon, LARGEST)?,
            (Some(_), Some(_)) => {
                let problem = "`plan.privacy.noise_multiplier` and `plan.privacy.epsilon` both say how much noise there is";
                return Err(Error::invalid(problem, "leave out one of the two; `plan.privacy.budget` ends training early"));
            }
            (None, None) => {
                let problem = "`plan.privacy` does not say how much noise there is";
                return Err(Error::invalid(problem, "give `plan.privacy.epsilon` or `plan.privacy.noise_multiplier`"));
            }
        }
        self.budget.map_or(Ok(()), |budget| within("plan.privacy.budget", budget, LARGEST))?;
        if !(0.0..=0.9).contains(&self.dropouts) {
            return Err(Error::invalid(format!("`plan.privacy.dropouts` is `{}`", self.dropouts), "give a share from 0 to 0.9"));
        }
        if self.dropouts > 0.0 && self.noise == NoiseBy::Server {
            let problem = "`plan.privacy.dropouts` means nothing where the server adds the noise";
            return Err(Error::invalid(problem, "leave it out, or set `plan.privacy.noise=clients`"));
        }
        self.validate_clip()
    }

    fn validate_clip(&self) -> Result<()> {
        self.clip.validate("plan.privacy.clip")?;
        match self.clip {
            Clipping::Fixed(_) if self.count_noise.is_some() => {
                let problem = "`plan.privacy.count_noise` means nothing to a fixed bound";
                Err(Error::invalid(problem, "leave it out, or set `plan.privacy.clip=adaptive`"))
            }
            Clipping::Adaptive(adaptive) if adaptive.initial.is_none() => Err(Error::invalid(
                "`plan.privacy.clip.adaptive.initial` is missing, and to take it from what clients send would reveal it",
                "give a bound to begin with, such as `plan.privacy.clip.adaptive.initial=0.1`",
            )),
            _ => self.count_noise.map_or(Ok(()), |noise| positive("plan.privacy.count_noise", noise)),
        }
    }

    fn validate_method(&self, algorithm: &dyn Algorithm) -> Result<()> {
        if algorithm.weighting() == Weighting::Samples {
            let problem = "`plan.privacy` needs clients that count the same, and `method.weighting` is `samples`";
            return Err(Error::invalid(problem, "set `method.weighting=uniform`"));
        }
        match algorithm.spoils_privacy() {
            Some((setting, why)) => Err(Error::invalid(
                format!("`plan.privacy` does not go with `{setting}`: {why}"),
                format!("leave out `{setting}`"),
            )),
            None => Ok(()),
        }
    }

    fn validate_plan(&self, plan: &Plan) -> Result<()> {
        let refuse = |what: &str, why: &str, remedy: &str| {
            Err(Error::invalid(format!("`plan.privacy` does not go with `{what}`: {why}"), remedy))
        };
        let aggregation = &plan.aggregation;
        if plan.asynchronous.is_some() {
            return refuse("plan.asynchronous", "what single updates reveal is not accounted for", "leave out one of the two");
        }
        if plan.sampling.replacement {
            return refuse(
                "plan.sampling.replacement",
                "a client that is drawn twice counts twice",
                "set `plan.sampling.poisson=true` instead",
            );
        }
        if plan.patience.is_some() {
            let why = "in which round training ends would tell of validation scores, which no noise covers";
            return refuse("plan.patience", why, "leave it out; `plan.privacy.budget` ends training by what was spent");
        }
        if self.noise == NoiseBy::Clients && plan.sampling.poisson {
            let why = "the noise of `plan.privacy.noise = clients` would depend on how many take part";
            return refuse("plan.sampling.poisson", why, "leave it out, or set `plan.privacy.noise=server`");
        }
        if self.noise == NoiseBy::Clients && plan.compression.is_some_and(|compression| compression.up.is_some()) {
            let why = "codecs change the noise of `plan.privacy.noise = clients`";
            return refuse("plan.compression.up", why, "leave it out, or set `plan.privacy.noise=server`");
        }
        if plan.secure_aggregation.is_some() {
            self.validate_secure()?;
        }
        if aggregation.rule != AggregationRule::Mean {
            let rule = format!("plan.aggregation.rule = {}", aggregation.rule.name());
            return refuse(&rule, "how much a client can change is known of the mean alone", "leave out one of the two");
        }
        if aggregation.cap.is_some() {
            return refuse("plan.aggregation.cap", "clients count the same already", "leave it out");
        }
        if matches!(aggregation.clip, Some(Clipping::Adaptive(_))) {
            let why = "its bound follows what clients send, without noise";
            return refuse("plan.aggregation.clip.adaptive", why, "set `plan.privacy.clip=adaptive`, or a fixed bound");
        }
        Ok(())
    }

    /// Refuses what a server that sees nothing but sums cannot do.
    fn validate_secure(&self) -> Result<()> {
        if self.noise == NoiseBy::Server {
            let problem = "`plan.privacy` with `plan.secure_aggregation` needs noise by clients: the server sees nothing that it could clip";
            return Err(Error::invalid(problem, "set `plan.privacy.noise=clients`"));
        }
        match self.clip {
            Clipping::Fixed(_) => Ok(()),
            Clipping::Adaptive(_) => Err(Error::invalid(
                "`plan.privacy.clip.adaptive` does not go with `plan.secure_aggregation`: the server does not learn how many changes were clipped",
                "give a fixed bound, such as `plan.privacy.clip.fixed=0.5`",
            )),
        }
    }

    /// An update as a client elsewhere sends it: where clients add the noise, its change is clipped and noisy. `seed` must be the client's secret, and serve once.
    pub fn protect(
        &self,
        mechanism: &Mechanism,
        algorithm: &dyn Algorithm,
        reply: Reply,
        received: &Weights,
        seed: Seed,
    ) -> Result<Reply> {
        let Reply::Update(update) = &reply else { return Ok(reply) };
        if self.noise == NoiseBy::Server {
            return Ok(reply);
        }
        let sent = update.weights.to_host()?;
        let zero = received.params.zeros_like();
        let origin = flat(if algorithm.sends_changes() { &zero } else { &received.params });
        let values = mechanism.protect(&flat(&sent.params), &origin, seed);
        let weights = Weights { params: named_like(&sent.params, &values), statistics: sent.statistics.clone() };
        Ok(reply.with_weights(weights))
    }

    /// Refuses what nodes of a federation cannot do.
    pub fn validate_federation(&self) -> Result<()> {
        if self.noise == NoiseBy::Server || matches!(self.clip, Clipping::Fixed(_)) {
            return Ok(());
        }
        Err(Error::invalid(
            "`plan.privacy.clip.adaptive` does not go with `plan.privacy.noise = clients` in a Flower federation: nodes are not told the bound",
            "give a fixed bound, such as `plan.privacy.clip.fixed=0.5`, or set `plan.privacy.noise=server`",
        ))
    }

    /// Refuses networks of which more travels than the mechanism covers.
    pub fn validate_network(&self, has_statistics: bool) -> Result<()> {
        if !has_statistics {
            return Ok(());
        }
        Err(Error::invalid(
            "`plan.privacy` does not go with batch normalisation: its running statistics travel too, and no noise would cover them",
            "choose a network without it, such as `model=deq-mlp`, `model=mlp`, `model=linear` or a transformer",
        ))
    }
}

fn within(name: &str, value: f64, most: f64) -> Result<()> {
    positive(name, value)?;
    if value <= most { Ok(()) } else { Err(Error::invalid(format!("`{name}` is `{value}`"), "give at most 1,000,000")) }
}
