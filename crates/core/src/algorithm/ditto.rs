//! Ditto: a personal model beside the global one.
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, View, Weighting};
use crate::error::Result;
use crate::training::non_negative;
use crate::work::{ClientInfo, LocalUpdate, Phase, ProximalTerm, RoundContext, Slot, Trains, own, received};

/// Ditto (Li et al., 2021): FedAvg for the global model, and for every client a personal model `v_i` with the loss
/// `L_i(v_i) + (penalty / 2) ||v_i - global||^2`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Ditto {
    /// The weight of the proximal term that keeps the personal model near the global one, `lambda`.
    #[schemars(range(min = 0.0))]
    pub penalty: f64,
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// Where the personal model starts in a round.
    pub start: PersonalStart,
    /// Whether an unseen client trains a personal model before it is evaluated.
    pub adapt_unseen: bool,
}

/// Where the personal model starts in a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// `v_i <- argmin_v L_i(v) + (penalty / 2) ||v - global||^2`, by SGD from where it is.
    fn personal_step(&self, round: &RoundContext<'_>) -> Phase {
        let phase = Phase { name: "personal", ..round.body(Trains::Everything) };
        phase.on(Slot::Second).towards(ProximalTerm::new(self.penalty, received()))
    }
}

impl Algorithm for Ditto {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        // Before its first round, a client's personal model is the one it began with.
        if self.start == PersonalStart::Own && !me.has_second {
            work.assign(Slot::Second, own());
        }
        work.assign(Slot::Own, own().with(received()));
        work.train(round.body(Trains::Everything));
        if self.start == PersonalStart::Trained {
            work.assign(Slot::Second, own());
        }
        work.train(self.personal_step(round));
        work.sending(own())
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
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
            work.train(self.personal_step(round));
        }
        work
    }

    fn penalty(&self, _: Option<f64>) -> Option<(&'static str, f64)> {
        Some(("method.penalty", self.penalty))
    }

    fn apply_preset(&mut self, preset: Preset, is_text: bool) {
        self.penalty = if is_text { 0.1 } else { 0.3 };
        if preset == Preset::Reference {
            (self.start, self.adapt_unseen) = (PersonalStart::Trained, false);
        }
    }

    fn validate(&self) -> Result<()> {
        non_negative("method.penalty", self.penalty)
    }
}
