//! Local: everybody alone.
use std::borrow::Cow;

use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, Turn, Update, View, Work};
use crate::error::Result;
use crate::site::{Descent, Site, Trains};
use crate::state::ClientState;
use crate::weights::Weights;

/// Every client trains its own model on its own data, and nothing is sent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Local {
    /// Train every client in every round, and not only those that the sampling draws: a client that works alone waits for nobody's invitation.
    /// At a client fraction of 0.1 this is ten times the local work of other methods, and the baseline that they have to beat.
    pub everybody: bool,
}

impl Default for Local {
    fn default() -> Self {
        Self { everybody: true }
    }
}

impl Algorithm for Local {
    fn travels(&self, _: Part) -> bool {
        false
    }

    fn client_update(&self, _: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        let descent = turn.body(Trains::Everything, None, me, site)?;
        Ok(Work { sent: Weights::default(), gap: 0.0, descent })
    }

    fn server_update(&self, _: &mut ServerState, _: &[Update]) -> Result<()> {
        Ok(())
    }

    fn takes_everybody(&self) -> bool {
        self.everybody
    }

    fn local_view<'a>(&self, _: &Weights, me: &'a ClientState) -> Cow<'a, Weights> {
        Cow::Borrowed(&me.own)
    }

    fn shared_view(&self, _: &Weights, _: &ClientState) -> Option<Weights> {
        None
    }

    fn headline(&self) -> View {
        View::Local
    }

    /// There is nothing to adopt: a new client trains from scratch.
    fn adopt(&self, _: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        turn.body(Trains::Everything, None, me, site)
    }
}
