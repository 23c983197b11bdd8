//! SCAFFOLD: FedAvg whose clients correct their drift by control variates.
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
use crate::work::{ClientInfo, Expression, LocalUpdate, ProximalTerm, RoundContext, Slot, Trains, dual, own, received};

/// SCAFFOLD (Karimireddy et al., "SCAFFOLD: stochastic controlled averaging for federated learning", ICML 2020), Algorithm 1 with option II.
///
/// A client takes `K` steps `y_i <- y_i - eta (grad L_i(y_i) - c_i + c)` from the server's `x`, then sets `c_i <- c_i - c + (x - y_i) / (K eta)`. The server moves by
/// `x <- x + server_rate mean(y_i - x)` and `c <- c + (cohort / clients) mean(change of c_i)`. Both `x` and `c` are sent, both ways: twice the bytes of FedAvg.
/// What `c_i` estimates is a mean gradient only where steps are those of plain gradient descent, so no other optimiser goes with it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Scaffold {
    /// How far the server goes towards the mean, `eta_g`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub server_rate: f64,
}

impl Default for Scaffold {
    fn default() -> Self {
        Self { server_rate: 1.0 }
    }
}

impl Algorithm for Scaffold {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let (x, c, c_i) = (|| received().model(), || received().control(), dual);
        let phase = round.body(Trains::Everything);
        let travelled = phase.total_rate(me.steps);
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(x()));
        work.train(phase.towards(ProximalTerm::linear(c() - c_i())));
        // A client that took no step has learned nothing of its gradient.
        if travelled == 0.0 {
            return work.sending(own().beside(c()));
        }
        let before = work.keep("before", c_i());
        work.assign(Slot::Dual, c_i() - c() + (1.0 / travelled) * (x() - own()));
        work.sending(own().beside(c() + (c_i() - before)))
    }

    fn server_update(&self, server: &mut ServerState, received: &Received<'_>) -> Result<()> {
        if received.is_nothing() {
            return Ok(());
        }
        let before = server.weights.clone();
        server.average(received, Weighting::Uniform)?;
        let (model, control) = (server.weights.model(), server.weights.control().params);
        let share = (received.count() / server.clients as f64) as f32;
        let [x, c] = [before.model(), before.control()].map(|weights| weights.params);
        // With a rate of 1 it is the mean itself, to the bit.
        let moved = if self.server_rate == 1.0 { model.params } else { x.plus(self.server_rate as f32, &model.params.minus(&x)) };
        let moved = Weights { params: moved, statistics: model.statistics };
        server.weights = moved.beside(&c.plus(share, &control.minus(&c)));
        Ok(())
    }

    fn sends_control(&self) -> bool {
        true
    }

    fn averages(&self) -> bool {
        false
    }

    fn needs_plain_steps(&self) -> bool {
        true
    }

    /// `c_i`.
    fn initial_dual(&self, own: &Weights, _: Seed) -> Params {
        own.params.zeros_like()
    }

    fn shared_view(&self, _: &ClientInfo) -> Option<Expression> {
        Some(own().with(received().model()))
    }

    fn adopt(&self, _: &ClientInfo, _: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received().model()));
        work
    }

    fn validate(&self) -> Result<()> {
        positive("method.server_rate", self.server_rate)
    }
}
