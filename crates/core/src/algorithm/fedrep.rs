//! FedRep: personal heads, trained before the shared body.
use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, Turn, Update, Weighting, Work, gap};
use crate::error::Result;
use crate::site::{Site, Trains};
use crate::state::ClientState;
use crate::weights::Weights;

/// FedRep (Collins et al., 2021): the head is trained on the received body, then the body with the head fixed; the body is
/// averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedRep {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
}

impl Default for FedRep {
    fn default() -> Self {
        Self { weighting: Weighting::Uniform }
    }
}

impl Algorithm for FedRep {
    fn travels(&self, part: Part) -> bool {
        part == Part::Shared
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        me.own = me.own.with(received);
        let head = turn.head(me, site)?;
        let body = turn.body(Trains::Shared, None, me, site)?;
        let sent = me.own.only(|part| part == Part::Shared);
        Ok(Work { sent, gap: gap(&me.own, received), descent: head.then(body) })
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting);
        Ok(())
    }
}
