//! Ditto: a personal model beside the global one.
use std::borrow::Cow;

use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, ServerState, Turn, Update, View, Weighting, Work};
use crate::error::Result;
use crate::site::{Descent, Phase, Pull, Site, Trains};
use crate::state::ClientState;
use crate::training::non_negative;
use crate::weights::Weights;

/// Ditto (Li et al., 2021): FedAvg for the global model, and for every client a personal model `v_i` with the loss
/// `L_i(v_i) + (penalty / 2) ||v_i - global||^2`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ditto {
    /// How strongly the personal model is held to the global one.
    pub penalty: f64,
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// Where the personal model starts in a round.
    pub start: PersonalStart,
    /// Whether a client that was not there during training gets a personal model before it is judged.
    pub adapt_unseen: bool,
}

/// Where the personal model starts in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PersonalStart {
    /// Where it ended the last time, as in Ditto's own paper.
    Own,
    /// At the global model just trained on local data: what the FeDEQ authors' code does.
    Trained,
}

impl Default for Ditto {
    fn default() -> Self {
        Self { penalty: 0.3, weighting: Weighting::Samples, start: PersonalStart::Own, adapt_unseen: true }
    }
}

impl Ditto {
    /// Trains the personal model, from `v`, towards the received one.
    fn personalise(
        &self,
        v: Weights,
        received: &Weights,
        me: &mut ClientState,
        turn: &Turn<'_>,
        site: &dyn Site,
    ) -> Result<Descent> {
        let pull = Pull::proximal(self.penalty, &received.params);
        let Turn { training, .. } = turn;
        let phase = Phase {
            name: "personal",
            trains: Trains::Everything,
            epochs: training.epochs,
            learning_rate: training.learning_rate,
            pull: Some(&pull),
        };
        let trained = std::mem::replace(&mut me.own, v);
        let descent = turn.run(&phase, me, site)?;
        me.second = Some(std::mem::replace(&mut me.own, trained));
        Ok(descent)
    }
}

impl Algorithm for Ditto {
    fn travels(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        let before = me.second.take().unwrap_or_else(|| me.own.clone());
        let work = FedAvg::train(received, me, turn, site)?;
        let v = match self.start {
            PersonalStart::Own => before,
            PersonalStart::Trained => me.own.clone(),
        };
        let personal = self.personalise(v, received, me, turn, site)?;
        Ok(Work { descent: work.descent.clone().then(personal), ..work })
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting);
        Ok(())
    }

    fn local_view<'a>(&self, _: &Weights, me: &'a ClientState) -> Cow<'a, Weights> {
        Cow::Borrowed(me.second.as_ref().unwrap_or(&me.own))
    }

    fn headline(&self) -> View {
        View::Local
    }

    fn adopt(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        if self.adapt_unseen { self.personalise(me.own.clone(), received, me, turn, site) } else { Ok(Descent::default()) }
    }

    fn pull(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.penalty", self.penalty))
    }

    fn validate(&self) -> Result<()> {
        non_negative("method.penalty", self.penalty)
    }
}
