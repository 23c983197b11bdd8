//! pFedMe: personal models by Moreau envelopes.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, View, Weighting};
use crate::aggregation::Received;
use crate::error::{Error, Result};
use crate::training::positive;
use crate::work::{ClientInfo, LocalUpdate, Phase, ProximalTerm, RoundContext, Slot, Trains, own, received, second};

/// pFedMe (Dinh et al., "Personalized federated learning with Moreau envelopes", NeurIPS 2020).
///
/// A client starts at the global model `w_i = w`. In each of its `training.epochs` local rounds it finds its personal model
/// `theta_i ~ argmin L_i(theta) + (penalty / 2) ||theta - w_i||^2` by one pass over its data, all its batches once, from where `theta_i` was (the paper: on one batch, to a tolerance), then moves
/// `w_i <- w_i - rate penalty (w_i - theta_i)`, a step on the Moreau envelope of its loss. The server sets `w <- (1 - server_rate) w + server_rate mean(w_i)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PFedMe {
    /// How strongly the personal model is held to the client's copy of the global one, `lambda`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub penalty: f64,
    /// The step size of that copy, `eta`; times `penalty` it must be below 2, or the copy leaps over the personal model.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub rate: f64,
    /// How far the server goes towards the mean, `beta`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub server_rate: f64,
    /// Whether a client that was not there during training gets a personal model before it is evaluated.
    pub adapt_unseen: bool,
}

impl Default for PFedMe {
    fn default() -> Self {
        Self { penalty: 5.0, rate: 0.1, server_rate: 1.0, adapt_unseen: true }
    }
}

impl PFedMe {
    /// `theta_i ~ argmin L_i(theta) + (penalty / 2) ||theta - w_i||^2`, one pass.
    fn personal_step(&self, round: &RoundContext<'_>, pass: u64) -> Phase {
        let phase = Phase { name: "personal", epochs: 1, pass, ..round.body(Trains::Everything) };
        phase.on(Slot::Second).towards(ProximalTerm::new(self.penalty, own()))
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
        for pass in 0..round.training.epochs as u64 {
            work.train(self.personal_step(round, pass));
            // Running statistics follow the model that meets the data.
            let moved = second() + (self.rate * self.penalty - 1.0) * (second() - own());
            work.assign(Slot::Own, moved);
        }
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
            (0..round.training.epochs as u64).for_each(|pass| work.train(self.personal_step(round, pass)));
        }
        work
    }

    fn penalty(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.penalty", self.penalty))
    }

    fn validate(&self) -> Result<()> {
        positive("method.penalty", self.penalty)?;
        positive("method.rate", self.rate)?;
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
