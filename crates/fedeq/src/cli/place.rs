//! Where data lies: what a person says on the command line, what the environment says, and what a run remembers.
use std::env;
use std::path::{Path, PathBuf};

use super::failure::{Failure, Outcome};
use fedeq_run::experiment::{Experiment, Override, USUAL_FOLDER};
use fedeq_run::present::require_files;

/// The folder that data sets are kept in, where the command line does not say so.
pub(super) fn usual_folder() -> PathBuf {
    env::var_os("FEDEQ_DATA").filter(|folder| !folder.is_empty()).map_or_else(|| USUAL_FOLDER.into(), PathBuf::from)
}

/// Lets an experiment look for its data where the environment says, unless it says so itself.
pub(super) fn settle(experiment: &mut Experiment, overrides: &[Override]) {
    let is_told = overrides.iter().any(|wish| wish.path == ["data", "folder"]);
    let is_usual = experiment.data.folder == Path::new(USUAL_FOLDER);
    if !is_told && is_usual && !experiment.data.source.entry().places.is_empty() {
        experiment.data.folder = usual_folder();
    }
}

/// Refuses a place for data that an experiment does not need.
pub(super) fn require_use(experiment: &Experiment, place: Option<&Path>) -> Outcome<()> {
    Ok(place.map_or(Ok(()), |place| require_files(&experiment.data.source, place))?)
}

/// Lets an experiment that was begun look for its data in another place: the one that is given, or the usual one where what it remembers is gone.
pub(super) fn relocate(experiment: &mut Experiment, place: Option<&Path>) {
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

/// Refuses a setting that is given in two ways which do not agree.
pub(super) fn agree(flag: &str, given: &str, key: &str, overrides: &[Override]) -> Result<(), Failure> {
    let text = |wish: &Override| wish.value.as_str().map_or_else(|| wish.value.to_string(), str::to_owned);
    let other = overrides.iter().rev().find(|wish| wish.path.join(".") == key).map(text);
    match other.filter(|other| other != given) {
        None => Ok(()),
        Some(other) => {
            let problem = format!("`{flag} {given}` and `--set {key}={other}` contradict each other");
            Err(Failure::request(problem, "leave one of them out"))
        }
    }
}
