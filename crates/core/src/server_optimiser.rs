//! How the server moves by the mean of what clients send.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::params::Params;
use crate::server_state::ServerState;
use crate::training::{positive, share};

/// Takes the change from the server's weights to the clients' mean for a gradient (Reddi et al., "Adaptive federated optimization", ICLR 2021, Algorithm 2):
/// `m <- beta_1 m + (1 - beta_1) change`, a second moment `v` by the rule, and `weights <- weights + rate m / (sqrt(v) + tau)`, number by number. Moments begin at
/// `m = 0` and `v = tau^2`. With FedAvg they are FedAdam, FedYogi and FedAdagrad.
///
/// `momentum` is FedAvgM (Hsu et al., "Measuring the effects of non-identical data distribution for federated visual classification", 2019):
/// `m <- beta_1 m + change` and `weights <- weights + rate m`; `beta_2` and `tau` mean nothing to it. Running statistics of normalisations are always the plain mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ServerOptimiser {
    /// Which optimiser.
    pub rule: ServerRule,
    /// The step size.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// The decay rate of the first moment from round to round.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub beta_1: f64,
    /// The decay rate of the second moment from round to round; means nothing to `adagrad` and `momentum`.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub beta_2: f64,
    /// Added to the root of the second moment, so that parameters whose changes are small do not step far.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub tau: f64,
}

/// How the second moment `v` of a server's optimiser is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ServerRule {
    /// `v <- beta_2 v + (1 - beta_2) change^2`.
    #[default]
    Adam,
    /// `v <- v - (1 - beta_2) change^2 sign(v - change^2)`.
    Yogi,
    /// `v <- v + change^2`.
    Adagrad,
    /// No second moment (FedAvgM).
    Momentum,
}

impl Default for ServerOptimiser {
    fn default() -> Self {
        Self { rule: ServerRule::Adam, rate: 0.01, beta_1: 0.9, beta_2: 0.99, tau: 1e-3 }
    }
}

impl ServerOptimiser {
    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<()> {
        positive("plan.server_optimiser.rate", self.rate)?;
        positive("plan.server_optimiser.tau", self.tau)?;
        for (name, value) in [("plan.server_optimiser.beta_1", self.beta_1), ("plan.server_optimiser.beta_2", self.beta_2)] {
            share(name, value)?;
            if value == 1.0 {
                return Err(Error::invalid(
                    format!("`{name}` is `1`, with which nothing is ever learned"),
                    "give a number below 1",
                ));
            }
        }
        Ok(())
    }

    /// The server has gone from `before` to the clients' mean, and moves by this optimiser instead.
    pub(crate) fn step(&self, server: &mut ServerState, before: &Params) {
        let mut first = server.recall(FIRST, 0.0);
        let mut second = (self.rule != ServerRule::Momentum).then(|| server.recall(SECOND, (self.tau * self.tau) as f32));
        let mut none = Vec::new();
        for (name, old) in before.iter() {
            let m = first.values_mut(name);
            let v = second.as_mut().map_or(none.as_mut_slice(), |second| second.values_mut(name));
            let weights = server.weights.params.values_mut(name);
            for (at, (weight, old)) in weights.iter_mut().zip(&*old.values).enumerate() {
                let old = f64::from(*old);
                *weight = (old + self.rate * self.direction(f64::from(*weight) - old, &mut m[at], v.get_mut(at))) as f32;
            }
        }
        server.keep(FIRST, first);
        if let Some(second) = second {
            server.keep(SECOND, second);
        }
    }

    /// Where one number goes that the clients have changed by so much; its moments follow.
    fn direction(&self, change: f64, m: &mut f32, v: Option<&mut f32>) -> f64 {
        let new = if v.is_some() { 1.0 - self.beta_1 } else { 1.0 };
        let first = self.beta_1 * f64::from(*m) + new * change;
        *m = first as f32;
        let Some(v) = v else { return first };
        let second = self.second_moment(f64::from(*v), change * change);
        *v = second as f32;
        first / (second.sqrt() + self.tau)
    }

    fn second_moment(&self, v: f64, square: f64) -> f64 {
        match self.rule {
            ServerRule::Adam => self.beta_2 * v + (1.0 - self.beta_2) * square,
            ServerRule::Yogi if v == square => v,
            ServerRule::Yogi => v - (1.0 - self.beta_2) * square * (v - square).signum(),
            ServerRule::Adagrad | ServerRule::Momentum => v + square,
        }
    }
}

/// Under which names a server keeps the moments.
const FIRST: &str = "first moment";
const SECOND: &str = "second moment";
