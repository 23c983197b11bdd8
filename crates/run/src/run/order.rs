//! What somebody wants of a run that is being carried out: a note in its folder, which works across processes and machines.
use std::fs;
use std::io::ErrorKind;

use fedeq_core::Result;
use serde::{Deserialize, Serialize};

use super::folder::{RunFolder, read_json, write_json};

/// What a run is to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Go on.
    #[default]
    GoOn,
    /// Wait after the clients at work.
    Pause,
    /// Stop after the clients at work, as with Ctrl-C.
    Stop,
}

/// What `control.json` says.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    order: Order,
}

impl RunFolder {
    /// Leaves an order for whoever carries out this run.
    pub fn leave_order(&self, order: Order) -> Result<()> {
        write_json(&self.order_file(), &Note { order })
    }

    /// The order in the folder; nothing if it cannot be read, which is no order to do anything else than before.
    pub(super) fn order(&self) -> Option<Order> {
        let path = self.order_file();
        if !path.exists() {
            return Some(Order::default());
        }
        read_json(&path).ok().map(|note: Note| note.order)
    }

    /// Forgets an order that was meant for an earlier process.
    pub(super) fn forget_order(&self) -> Result<()> {
        match fs::remove_file(self.order_file()) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(fedeq_core::Error::io(&self.order_file(), "remove it")(error))
            }
            _ => Ok(()),
        }
    }
}
