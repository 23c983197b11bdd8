//! Who the clients are and what they hold, for people who look at a run without its data.
use fedeq_core::Result;
use fedeq_data::partition::{ClientIndices, Tally};
use serde::{Deserialize, Serialize};

use super::folder::{RunFolder, write_json};
use super::reach::LARGEST;
use crate::experiment::Prepared;

/// What `clients.json` says: names and counts, no data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Roster {
    /// How many take part in training. Those who are met only afterwards come after them.
    pub training: usize,
    /// What everybody holds.
    #[serde(flatten)]
    pub tally: Tally,
}

impl Roster {
    fn of(prepared: &Prepared) -> Self {
        let federation = &prepared.federation;
        let everybody: Vec<ClientIndices> = federation.clients.iter().chain(&federation.unseen).cloned().collect();
        Self { training: federation.clients.len(), tally: Tally::of(&prepared.dataset, &everybody) }
    }
}

impl RunFolder {
    /// Who the clients are; an error where no process has said so.
    pub fn roster(&self) -> Result<Roster> {
        self.json(&self.roster_file(), LARGEST)
    }

    /// Says who the clients are, once.
    pub fn write_roster(&self, prepared: &Prepared) -> Result<()> {
        if self.roster_file().is_file() { Ok(()) } else { write_json(&self.roster_file(), &Roster::of(prepared)) }
    }
}
