//! Where data lies, as it is said on the command line.
use std::path::Path;

use super::failure::{Failure, Outcome};
use fedeq_run::experiment::{Experiment, Override};
pub(super) use fedeq_run::place::{relocate, settle, usual_folder};
use fedeq_run::present::require_files;

/// Refuses a place for data that an experiment does not need.
pub(super) fn require_use(experiment: &Experiment, place: Option<&Path>) -> Outcome<()> {
    Ok(place.map_or(Ok(()), |place| require_files(&experiment.data.source, place))?)
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
