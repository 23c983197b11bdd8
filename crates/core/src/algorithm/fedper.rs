//! FedPer: personal heads, trained together with the shared body.
use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, Turn, Update, Weighting, Work, gap};
use crate::error::Result;
use crate::site::{Descent, Site, Trains};
use crate::state::ClientState;
use crate::weights::Weights;

/// FedPer (Arivazhagan et al., 2019): body and head are trained jointly; only the body is averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedPer {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// Train the head alone first. Not part of FedPer; the FeDEQ authors' code does it.
    pub head_first: bool,
}

impl Default for FedPer {
    fn default() -> Self {
        Self { weighting: Weighting::Samples, head_first: false }
    }
}

impl Algorithm for FedPer {
    fn travels(&self, part: Part) -> bool {
        part == Part::Shared
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        me.own = me.own.with(received);
        let head = if self.head_first { turn.head(me, site)? } else { Descent::default() };
        let body = turn.body(Trains::Everything, None, me, site)?;
        let sent = me.own.only(|part| part == Part::Shared);
        Ok(Work { sent, gap: gap(&me.own, received), descent: head.then(body) })
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting);
        Ok(())
    }
}
