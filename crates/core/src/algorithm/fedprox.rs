//! FedProx: FedAvg whose clients are held to the global model.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Weighting};
use crate::error::Result;
use crate::training::non_negative;
use crate::work::{ClientInfo, LocalUpdate, ProximalTerm, RoundContext, Slot, Trains, own, received};

/// FedProx (Li et al., "Federated optimization in heterogeneous networks", MLSys 2020): clients minimise `L_i(w) + (penalty / 2) ||w - global||^2`
/// from the global model; the server takes the mean. Without penalty it is FedAvg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedProx {
    /// The weight of the proximal term that keeps local models near the global one, `mu`.
    #[schemars(range(min = 0.0))]
    pub penalty: f64,
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// Whether an unseen client trains the global model on its data before it is evaluated.
    pub adapt_unseen: bool,
}

impl Default for FedProx {
    fn default() -> Self {
        Self { penalty: 0.1, weighting: Weighting::Samples, adapt_unseen: false }
    }
}

impl FedProx {
    fn train(&self, work: &mut LocalUpdate, round: &RoundContext<'_>) {
        work.train(round.body(Trains::Everything).towards(ProximalTerm::new(self.penalty, received())));
    }
}

impl Algorithm for FedProx {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        self.train(&mut work, round);
        work.sending(own())
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
    }

    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if self.adapt_unseen {
            self.train(&mut work, round);
        }
        work
    }

    fn penalty(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.penalty", self.penalty))
    }

    fn validate(&self) -> Result<()> {
        non_negative("method.penalty", self.penalty)
    }
}
