//! What is decided before a federation begins.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Params, Result, Weights, write_atomically};
use serde::{Deserialize, Serialize};

use super::super::files::{read_json, write_json};
use super::super::summary::RunSummary;

const PLAN: &str = "plan.json";
const THETA: &str = "theta.safetensors";

/// What `plan.json` of an app says: all that is decided before a federation begins and is not in its experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FederationPlan {
    /// The name under which nodes store their states; unique to this app, so that it never continues from the states of another.
    pub federation: String,
    /// The number of clients that train.
    pub clients: usize,
    /// The number of clients that are met only after training; their numbers follow those of the others.
    #[serde(default)]
    pub unseen: usize,
    /// The summary as far as it is known before the run.
    pub summary: RunSummary,
}

impl FederationPlan {
    /// All clients: those that train, and those that are met afterwards.
    pub fn all_clients(&self) -> usize {
        self.clients + self.unseen
    }

    /// Reads it from the folder of an app.
    pub(super) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(PLAN);
        if path.is_file() {
            return read_json(&path);
        }
        let problem = format!("`{}` has no `{PLAN}`", folder.display());
        Err(Error::invalid(problem, "give the folder of an app that `fedeq init-federation` wrote"))
    }

    /// Writes it, with the weights that the server begins with, into the folder of an app.
    pub fn write(&self, folder: &Path, theta: &Weights) -> Result<()> {
        write_atomically(&folder.join(THETA), &theta.packed().to_bytes(&fedeq_core::Metadata::new())?)?;
        write_json(&folder.join(PLAN), self)
    }
}

/// The weights that a server begins with.
pub(super) fn theta(folder: &Path) -> Result<Weights> {
    let path = folder.join(THETA);
    let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
    let (packed, _) = Params::from_bytes(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))?;
    Ok(Weights::unpacked(&packed))
}
