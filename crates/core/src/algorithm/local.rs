//! Local: every client alone.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, View};
use crate::aggregation::Received;
use crate::error::Result;
use crate::work::{ClientInfo, Expression, LocalUpdate, RoundContext, Trains};

/// Every client trains its own model on its own data, and nothing is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Local {
    /// Train every client in every round, and not only those that the sampling draws: a client that works alone need not be drawn.
    /// At a client fraction of 0.1 this is ten times the local work of other methods, and the baseline that they have to beat.
    pub everybody: bool,
}

impl Default for Local {
    fn default() -> Self {
        Self { everybody: true }
    }
}

impl Algorithm for Local {
    fn shares(&self, _: Part) -> bool {
        false
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.train(round.body(Trains::Everything));
        work
    }

    fn server_update(&self, _: &mut ServerState, _: &Received<'_>) -> Result<()> {
        Ok(())
    }

    fn takes_all_clients(&self) -> bool {
        self.everybody
    }

    fn shared_view(&self, _: &ClientInfo) -> Option<Expression> {
        None
    }

    fn default_view(&self) -> View {
        View::Local
    }

    /// There is nothing to adopt: a new client trains from scratch.
    fn adopt(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        self.client_update(me, round)
    }
}
