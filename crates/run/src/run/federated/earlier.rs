//! Checkpoints of earlier versions.
use std::collections::BTreeMap;
use std::fs;

use fedeq_core::{Error, Result, ServerState, Traffic, fingerprint};
use serde::Deserialize;

use super::super::checkpoint::{Position, Seal, Stage, save};
use super::super::files::read_json;
use super::super::folder::RunFolder;
use super::super::journal::keep_lines;

/// What `checkpoint.json` says, which earlier versions wrote in place of `checkpoints/`.
#[derive(Deserialize)]
struct OldCheckpoint {
    done: u64,
    theta: String,
    traffic: Traffic,
}

/// Makes a checkpoint of today of one that an earlier version left, so that the federation continues from it.
pub(super) fn adopt_old_checkpoint(folder: &RunFolder, seal: &Seal, fresh: &ServerState) -> Result<()> {
    let note = folder.path().join("checkpoint.json");
    if !note.is_file() || folder.kept_rounds().is_some() {
        return Ok(());
    }
    let OldCheckpoint { done, theta, traffic } = read_json(&note)?;
    let path = folder.path().join(format!("theta-{done}.safetensors"));
    let bytes = fs::read(&path).map_err(|error| Error::damaged(&path, format!("it cannot be read: {error}")))?;
    if fingerprint(&bytes) != theta {
        return Err(Error::damaged(&path, "its content does not have the fingerprint in `checkpoint.json`"));
    }
    let server = ServerState::from_bytes(&bytes, done, fresh).map_err(|error| Error::damaged(&path, error.to_string()))?;
    let round_of = |line: &str| serde_json::from_str(line).ok().map(|NumberedLine { round }| round);
    keep_lines(&folder.rounds_file(), |line| round_of(line).is_some_and(|round| round < done))?;
    keep_lines(&folder.evaluations_file(), |line| round_of(line).is_some_and(|round| round <= done))?;
    keep_lines(&folder.timings_file(), |line| round_of(line).is_some_and(|round| round <= done))?;
    save(folder, seal, &Position { server, clients: BTreeMap::new(), traffic, stage: Stage::Training })?;
    [note, path].iter().try_for_each(|path| fs::remove_file(path).map_err(Error::io(path, "remove it")))
}

/// A line of any journal.
#[derive(Deserialize)]
struct NumberedLine {
    round: u64,
}
