//! What a node remembers of agreements: the federations it takes part in, and experiments that it was asked for and refused.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::write_atomically;

use crate::{Error, Result};

/// The files of a node's folder that are about agreements.
pub(crate) struct ConsentStore {
    root: PathBuf,
}

/// An experiment that a server has asked for and the node has refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// The name of the agreement that it would be.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// The federations of each agreement, in the order in which they came.
const ACCEPTED: &str = "accepted.json";
const PROPOSALS: &str = "proposals";
const EXTENSION: &str = "toml";
/// Proposals that are kept; the oldest are removed first.
const KEPT: usize = 10;

impl ConsentStore {
    /// In a node's folder.
    pub(super) fn in_folder(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Notes that the node takes part in a federation of an agreement; refuses more federations of it than allowed.
    pub(crate) fn admit(&self, agreement: &str, federation: &str, most: usize) -> Result<()> {
        let path = self.root.join(ACCEPTED);
        let mut all: BTreeMap<String, Vec<String>> = match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(Error::file(&path, "read it")(error)),
        };
        let known = all.entry(agreement.to_owned()).or_default();
        if known.iter().any(|name| name == federation) {
            return Ok(());
        }
        if known.len() >= most {
            let problem = format!(
                "it takes part in {} of this experiment already; `--max-federations` allows more",
                federations(known.len())
            );
            return Err(Error::Limit { problem });
        }
        known.push(federation.to_owned());
        Ok(write_atomically(&path, &serde_json::to_vec_pretty(&all).expect("texts can be written to memory"))?)
    }

    /// Keeps an experiment that was refused, for the node's owner to look at.
    pub(crate) fn keep(&self, proposal: &Proposal) -> Result<()> {
        let folder = self.root.join(PROPOSALS);
        fs::create_dir_all(&folder).map_err(Error::file(&folder, "create it"))?;
        let path = folder.join(format!("{}.{EXTENSION}", proposal.name));
        if !path.exists() {
            self.remove_oldest();
            write_atomically(&path, proposal.text.as_bytes())?;
        }
        Ok(())
    }

    /// Experiments that were refused, the latest first.
    pub(super) fn proposals(root: &Path) -> Vec<Proposal> {
        let read = |path: &PathBuf| {
            let name = path.file_stem()?.to_str()?.to_owned();
            Some(Proposal { name, text: fs::read_to_string(path).ok()? })
        };
        files(&root.join(PROPOSALS)).iter().rev().filter_map(read).collect()
    }

    fn remove_oldest(&self) {
        let all = files(&self.root.join(PROPOSALS));
        for old in &all[..(all.len() + 1).saturating_sub(KEPT)] {
            let _ = fs::remove_file(old);
        }
    }
}

/// Proposals on disk, the oldest first.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut all: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|extension| extension == EXTENSION)).collect();
    all.sort_by_key(|path| (fs::metadata(path).and_then(|file| file.modified()).ok(), path.clone()));
    all
}

fn federations(count: usize) -> String {
    if count == 1 { "one federation".into() } else { format!("{count} federations") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, ConsentStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = ConsentStore::in_folder(folder.path());
        (folder, store)
    }

    #[test]
    fn federations_are_counted_for_each_agreement() {
        let (_folder, store) = store();
        for (agreement, federation) in [("a", "f"), ("a", "f"), ("b", "g")] {
            store.admit(agreement, federation, 1).expect("one of each");
        }
        let said = store.admit("a", "h", 1).expect_err("a second one").to_string();
        assert!(said.contains("--max-federations"), "{said}");
        store.admit("a", "h", 2).expect("two are allowed");
        store.admit("a", "f", 1).expect("it takes part in it already");
    }

    #[test]
    fn a_damaged_list_is_an_error() {
        let (folder, store) = store();
        fs::write(folder.path().join(ACCEPTED), "{").expect("writable");
        assert!(store.admit("a", "f", 1).expect_err("damaged").to_string().contains(ACCEPTED));
    }

    #[test]
    fn few_proposals_are_kept_and_the_same_one_once() {
        let (folder, store) = store();
        for number in [0, 0, 1] {
            store.keep(&Proposal { name: format!("{number:02}"), text: number.to_string() }).expect("kept");
        }
        assert_eq!(ConsentStore::proposals(folder.path()).len(), 2);
        for number in 0..3 * KEPT {
            store.keep(&Proposal { name: format!("{number:02}"), text: number.to_string() }).expect("kept");
        }
        let kept = ConsentStore::proposals(folder.path());
        assert!(kept.len() <= KEPT && kept.iter().any(|proposal| proposal.text == (3 * KEPT - 1).to_string()));
    }
}
