//! What an experiment says of a run.
use std::collections::BTreeMap;
use std::path::Path;
use std::time::UNIX_EPOCH;

use fedeq_core::{Method, Result, View};
use fedeq_run::preset::Preset;
use fedeq_run::run::RunFolder;
use serde::Serialize;

use super::palette::{MethodColour, method_colour};

/// What people want to see of a run at a glance.
#[derive(Clone, Debug, Serialize)]
pub struct RunInfo {
    method: &'static str,
    /// The method as its authors write it.
    title: String,
    colour: MethodColour,
    data: &'static str,
    model: String,
    preset: Preset,
    seed: u64,
    rounds: u64,
    /// The model by which the method is evaluated.
    headline: View,
    /// What it is computed on.
    device: String,
    /// When it began, in seconds since 1970, where its files tell.
    started: Option<u64>,
    /// Every setting but the seed, by its path. It is long and does not change, so it is told once.
    #[serde(skip)]
    pub(crate) settings: BTreeMap<String, String>,
}

impl RunInfo {
    /// What the experiment of a run says.
    pub(crate) fn of(folder: &RunFolder) -> Result<Self> {
        RunFolder::open(folder.path())?;
        let experiment = folder.experiment()?;
        let method = experiment.method.name();
        Ok(Self {
            method,
            title: Method::title(method).to_owned(),
            colour: method_colour(method),
            data: experiment.data.source.name(),
            model: experiment.model.to_string(),
            preset: experiment.preset,
            seed: experiment.seed,
            rounds: experiment.plan.rounds,
            headline: experiment.method.algorithm().default_view(),
            device: experiment.devices(),
            started: started(folder.path()),
            settings: experiment.settings()?,
        })
    }

    /// Rounds that are planned.
    pub(crate) fn rounds(&self) -> u64 {
        self.rounds
    }
}

/// When the first of the files that a run begins with was written.
fn started(folder: &Path) -> Option<u64> {
    ["version.json", "clients.json", "experiment.toml"].iter().filter_map(|name| written(&folder.join(name))).min()
}

/// When a file was last written; a link tells of itself.
pub(crate) fn written(path: &Path) -> Option<u64> {
    let time = std::fs::symlink_metadata(path).ok()?.modified().ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs())
}
