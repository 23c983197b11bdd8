//! A checkpoint's list of what belongs to it.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result, Traffic, fingerprint};
use serde::{Deserialize, Serialize};

use super::folder::{read_json, write_json};
use super::journal::Stamp;

/// Everything a run consists of at some moment. Files are named by their content, so none of them changes afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The experiment's [identity](crate::experiment::Experiment::identity).
    pub experiment: String,
    /// What it was computed on, see [`Experiment::devices`](crate::experiment::Experiment::devices).
    pub device: String,
    /// Rounds that are over.
    pub round: u64,
    /// Whether training is all that has happened.
    pub stage: Stage,
    /// The server's file in `checkpoints`.
    pub server: String,
    /// The files in `clients` of those who have a state of their own.
    pub clients: BTreeMap<usize, String>,
    /// What the journals held, by their names.
    pub journals: BTreeMap<String, Stamp>,
    /// Bytes sent so far.
    pub traffic: Traffic,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Rounds of training.
    Training,
    /// Those who were not there during training have been met as well.
    Finished,
}

/// A manifest with its own fingerprint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    fingerprint: String,
}

impl Manifest {
    /// Writes it under the number of its round.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = path_of(folder, self.round);
        write_json(&path, &Sealed { fingerprint: self.seal(&path)?, manifest: self.clone() })
    }

    /// Reads one, and refuses it if it is not what was written.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let Sealed { manifest, fingerprint } = read_json(path)?;
        if manifest.seal(path)? == fingerprint {
            return Ok(manifest);
        }
        Err(Error::damaged(path, "its fingerprint does not match its content"))
    }

    fn seal(&self, path: &Path) -> Result<String> {
        let json = serde_json::to_string(self).map_err(|error| Error::io(path, "write it")(error.into()))?;
        Ok(fingerprint(json.as_bytes()))
    }
}

fn path_of(folder: &Path, round: u64) -> PathBuf {
    folder.join(format!("{round:06}.json"))
}

/// The manifests in a folder, oldest first.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(folder, "list it")(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut manifests: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    manifests.sort_by_key(|path| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
    Ok(manifests)
}
