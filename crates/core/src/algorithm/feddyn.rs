//! FedDyn: FedAvg with a penalty that follows each client's gradient.
use fedeq_data::Seed;
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, Weighting};
use crate::aggregation::Received;
use crate::error::Result;
use crate::params::Params;
use crate::training::positive;
use crate::weights::Weights;
use crate::work::{ClientInfo, LocalUpdate, ProximalTerm, RoundContext, Slot, Trains, dual, own, received};

/// FedDyn (Acar et al., "Federated learning based on dynamic regularization", ICLR 2021).
///
/// A client minimises `L_i(w) + <lambda_i, w> + (alpha / 2) ||w - global||^2` from the global model, then sets `lambda_i <- lambda_i + alpha (w_i - global)`: their
/// `-grad L_i(w_i)`. The server keeps `h <- h - alpha (1 / clients) sum of (w_i - global)` over the cohort, and sets `global <- mean(w_i) - h / alpha`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedDyn {
    /// The weight of the dynamic regularisation that keeps local models near the global one.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub alpha: f64,
}

impl Default for FedDyn {
    fn default() -> Self {
        Self { alpha: 0.1 }
    }
}

impl Algorithm for FedDyn {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(round.body(Trains::Everything).towards(ProximalTerm::augmented(self.alpha, received(), dual())));
        work.assign(Slot::Dual, dual() + self.alpha * (own() - received()));
        work.sending(own())
    }

    fn server_update(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        if received.is_nothing() {
            return Ok(());
        }
        let before = server.weights.params.clone();
        server.average(received, Weighting::Uniform)?;
        let mean = &server.weights.params;
        let share = self.alpha * received.count() / server.clients as f64;
        let h = server.recall("h", 0.0).plus(-share as f32, &mean.minus(&before));
        server.weights.params = mean.plus(-(1.0 / self.alpha) as f32, &h);
        server.keep("h", h);
        Ok(())
    }

    fn averages(&self) -> bool {
        false
    }

    /// `lambda_i`.
    fn initial_dual(&self, own: &Weights, _: Seed) -> Params {
        own.params.zeros_like()
    }

    fn adopt(&self, _: &ClientInfo, _: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work
    }

    fn penalty(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.alpha", self.alpha))
    }

    fn validate(&self) -> Result<()> {
        positive("method.alpha", self.alpha)
    }
}
