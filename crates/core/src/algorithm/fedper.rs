//! FedPer: personal heads, trained together with the shared body.
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Weighting};
use crate::work::{ClientInfo, LocalUpdate, RoundContext, Slot, Trains, own, received};

/// FedPer (Arivazhagan et al., 2019): body and head are trained jointly; only the body is averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
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
    fn shares(&self, part: Part) -> bool {
        part == Part::Shared
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if self.head_first {
            work.train(round.head());
        }
        work.train(round.body(Trains::Everything));
        work.sending(own().only(Part::Shared))
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn apply_preset(&mut self, preset: Preset, is_text: bool) {
        if preset == Preset::Reference {
            self.weighting = if is_text { Weighting::Uniform } else { Weighting::Samples };
            self.head_first = true;
        }
    }
}
