//! pFedMe: personal models by Moreau envelopes.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, View, Weighting};
use crate::aggregation::Received;
use crate::error::{Error, Result};
use crate::training::{at_most, positive};
use crate::work::{BatchLoop, ClientInfo, LocalUpdate, Phase, ProximalTerm, RoundContext, Slot, Trains, own, received, second};

/// pFedMe (Dinh et al., "Personalized federated learning with Moreau envelopes", NeurIPS 2020).
///
/// A client starts at the global model `w_i = w`. For each batch of `training.epochs` passes over its data it finds its personal model
/// `theta_i ~ argmin L_i(theta; batch) + (penalty / 2) ||theta - w_i||^2` by `inner_steps` gradient steps on that batch from where `theta_i` was, then moves
/// `w_i <- w_i - rate penalty (w_i - theta_i)`, a step on the Moreau envelope of its loss. The server sets `w <- (1 - server_rate) w + server_rate mean(w_i)`.
///
/// The inner steps are of the size `training.learning_rate`. What an optimiser remembers starts over with each batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PFedMe {
    /// The weight of the proximal term that keeps the personal model near the client's copy of the global one, `lambda`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub penalty: f64,
    /// Gradient steps of the personal model on a batch before the client's copy moves, `K`.
    #[schemars(range(min = 1, max = MOST_INNER_STEPS))]
    pub inner_steps: usize,
    /// The step size of the client's copy of the global model, `eta`; times `penalty` it must be below 2, or the copy would step past the personal model.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// How far the server goes towards the mean, `beta`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub server_rate: f64,
    /// Whether an unseen client trains a personal model before it is evaluated.
    pub adapt_unseen: bool,
}

/// More would never come to an end.
const MOST_INNER_STEPS: usize = 10_000;

impl Default for PFedMe {
    fn default() -> Self {
        Self { penalty: 5.0, inner_steps: 5, rate: 0.1, server_rate: 1.0, adapt_unseen: true }
    }
}

impl PFedMe {
    /// Towards `argmin L_i(theta) + (penalty / 2) ||theta - w_i||^2`.
    fn personal(&self, round: &RoundContext<'_>) -> Phase {
        round.body(Trains::Everything).on(Slot::Second).towards(ProximalTerm::new(self.penalty, own()))
    }

    /// For every batch `inner_steps` steps of the personal model, and one of the client's copy.
    fn steps(&self, round: &RoundContext<'_>, batches: usize) -> BatchLoop {
        let mut each = LocalUpdate::default();
        each.train(Phase { epochs: self.inner_steps, ..self.personal(round) });
        // Running statistics follow the model that meets the data.
        each.assign(Slot::Own, second() + (self.rate * self.penalty - 1.0) * (second() - own()));
        BatchLoop { epochs: round.training.epochs, batches, steps: each.steps }
    }
}

impl Algorithm for PFedMe {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if !me.has_second {
            work.assign(Slot::Second, own());
        }
        work.for_each_batch(self.steps(round, me.steps));
        work.sending(own())
    }

    fn server_update(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        let before = server.weights.params.clone();
        server.average(received, self.weighting())?;
        if self.server_rate != 1.0 {
            server.weights.params = before.plus(self.server_rate as f32, &server.weights.params.minus(&before));
        }
        Ok(())
    }

    fn weighting(&self) -> Weighting {
        Weighting::Uniform
    }

    fn averages(&self) -> bool {
        self.server_rate == 1.0
    }

    fn keeps_second_model(&self) -> bool {
        true
    }

    fn default_view(&self) -> View {
        View::Local
    }

    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if self.adapt_unseen {
            work.assign(Slot::Second, own());
            work.train(self.personal(round));
        }
        work
    }

    fn penalty(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.penalty", self.penalty))
    }

    fn validate(&self) -> Result<()> {
        positive("method.penalty", self.penalty)?;
        positive("method.rate", self.rate)?;
        if self.inner_steps == 0 {
            return Err(Error::invalid("`method.inner_steps` is `0`", "give at least 1"));
        }
        at_most("method.inner_steps", self.inner_steps, MOST_INNER_STEPS)?;
        positive("method.server_rate", self.server_rate)?;
        let product = self.rate * self.penalty;
        if product < 2.0 {
            return Ok(());
        }
        let problem =
            format!("`method.rate` times `method.penalty` is `{product}`, with which the client's copy diverges by itself");
        Err(Error::invalid(problem, "give numbers whose product is below 2"))
    }
}
