//! Where data lies: what the environment says, and what a run remembers.
use std::env;
use std::path::{Path, PathBuf};

use crate::experiment::{Experiment, Override, USUAL_FOLDER};

/// The folder that data sets are kept in, where nothing else is said: `$FEDEQ_DATA`, or `data`.
pub fn usual_folder() -> PathBuf {
    env::var_os("FEDEQ_DATA").filter(|folder| !folder.is_empty()).map_or_else(|| USUAL_FOLDER.into(), PathBuf::from)
}

/// Lets an experiment look for its data where the environment says, unless it says so itself.
pub fn settle(experiment: &mut Experiment, overrides: &[Override]) {
    let is_told = overrides.iter().any(|wish| wish.path == ["data", "folder"]);
    let is_usual = experiment.data.folder == Path::new(USUAL_FOLDER);
    if !is_told && is_usual && !experiment.data.source.entry().places.is_empty() {
        experiment.data.folder = usual_folder();
    }
}

/// Lets an experiment that was begun look for its data in another place: the one that is given, or the usual one where what it remembers is gone.
pub fn relocate(experiment: &mut Experiment, place: Option<&Path>) {
    match place {
        Some(place) => experiment.data.folder = place.to_owned(),
        None if !experiment.data.folder.exists()
            && !experiment.data.source.entry().places.is_empty()
            && env::var_os("FEDEQ_DATA").is_some() =>
        {
            experiment.data.folder = usual_folder();
        }
        None => {}
    }
}
