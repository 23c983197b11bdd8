//! What a node keeps on disk, so that nothing is lost whenever it is killed.
//!
//! ```text
//! DIR/key.pem                      who it is
//! DIR/lock                         held while a process works on it
//! DIR/inbox/ID                     a question that has arrived and is not yet answered
//! DIR/federations/NAME/manifest    which state is the current one, and which questions it has answered
//! DIR/federations/NAME/state-HASH  theta_i, w_i, lambda_i, statistics
//! DIR/federations/NAME/reply-ID    an answer, to be given again if the question is repeated
//! ```
//!
//! Everything is written, synced and renamed. The manifest is what counts: state and answer become true together, when it is replaced.
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use fedeq_core::{fingerprint, write_atomically};
use prost::Message as _;
use serde::{Deserialize, Serialize};

use crate::object::{Bundle, Id, id_of};
use crate::{Error, Result};

/// A node's folder, held by this process.
pub struct Vault {
    root: PathBuf,
    _lock: File,
}

/// A message on disk: its objects, the topmost first.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Parcel {
    /// The run it belongs to.
    #[prost(uint64, tag = "1")]
    pub(crate) run_id: u64,
    /// The topmost object's id.
    #[prost(string, tag = "2")]
    pub(crate) id: String,
    /// The bytes of all objects.
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) objects: Vec<Vec<u8>>,
}

impl Parcel {
    /// A message's objects in a bundle.
    pub(crate) fn of(run_id: u64, id: &str, bundle: &Bundle) -> Self {
        Self { run_id, id: id.into(), objects: bundle.iter().map(|(_, bytes)| bytes.to_vec()).collect() }
    }

    /// The bundle again; ids are hashes, so damage shows when objects are taken out.
    pub(crate) fn bundle(&self) -> Bundle {
        let mut bundle = Bundle::default();
        for bytes in &self.objects {
            bundle.receive(id_of(bytes), bytes.clone());
        }
        bundle
    }
}

/// What is true of a federation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    federation: String,
    /// The file of the state, and its fingerprint in its name; nothing before the first change.
    state: Option<String>,
    /// Questions and their answers, the latest last.
    answered: Vec<Answered>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Answered {
    question: Id,
    reply: Id,
}

/// Answers that are kept for repeated questions.
const KEPT: usize = 8;

impl Vault {
    /// Takes a folder for this process; it is made if it is not there.
    pub fn open(root: &Path) -> Result<Self> {
        let inbox = root.join("inbox");
        fs::create_dir_all(&inbox).map_err(Error::file(&inbox, "create it"))?;
        let path = root.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::file(&path, "open it"))?;
        lock.try_lock()
            .map_err(|_| Error::damaged(root, "another process is working on it; stop that one, or choose another"))?;
        Ok(Self { root: root.into(), _lock: lock })
    }

    /// Where the key is.
    pub fn key_file(&self) -> PathBuf {
        self.root.join("key.pem")
    }

    /// Keeps a question until it is answered.
    pub(crate) fn receive(&self, question: &Parcel) -> Result<()> {
        Ok(write_atomically(&self.root.join("inbox").join(&question.id), &question.encode_to_vec())?)
    }

    /// Forgets a question.
    pub(crate) fn done(&self, question: &str) -> Result<()> {
        let path = self.root.join("inbox").join(question);
        if path.exists() { fs::remove_file(&path).map_err(Error::file(&path, "remove it")) } else { Ok(()) }
    }

    /// Questions that arrived and were not answered, in order of their ids.
    pub(crate) fn waiting(&self) -> Result<Vec<Parcel>> {
        let inbox = self.root.join("inbox");
        let mut paths: Vec<PathBuf> =
            fs::read_dir(&inbox).map_err(Error::file(&inbox, "read it"))?.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_none());
        paths.sort();
        paths.iter().map(|path| read_parcel(path)).collect()
    }

    /// The state in a federation; nothing before the first change. A state that should be there and is not, or is damaged, is an error.
    pub(crate) fn state(&self, federation: &str) -> Result<Option<Vec<u8>>> {
        let folder = self.federation(federation);
        let Some(file) = read_manifest(&folder, federation)?.state else { return Ok(None) };
        let path = folder.join(&file);
        let bytes = fs::read(&path).map_err(Error::file(&path, "read the state of this node"))?;
        if file != state_name(&bytes) {
            return Err(Error::damaged(&path, "the state of this node is not what was written"));
        }
        Ok(Some(bytes))
    }

    /// The answer that was given to a question, if it was.
    pub(crate) fn answer(&self, federation: &str, question: &str) -> Result<Option<Parcel>> {
        let folder = self.federation(federation);
        let manifest = read_manifest(&folder, federation)?;
        let found = manifest.answered.iter().find(|answered| answered.question == question);
        found.map(|answered| read_parcel(&folder.join(reply_name(&answered.reply)))).transpose()
    }

    /// Makes an answer, and the state after it if it changed, true at once.
    pub(crate) fn commit(&self, federation: &str, question: &str, reply: &Parcel, state: Option<&[u8]>) -> Result<()> {
        let folder = self.federation(federation);
        fs::create_dir_all(&folder).map_err(Error::file(&folder, "create it"))?;
        let before = read_manifest(&folder, federation)?;
        let mut after = before.clone();
        if let Some(state) = state {
            let name = state_name(state);
            write_atomically(&folder.join(&name), state)?;
            after.state = Some(name);
        }
        write_atomically(&folder.join(reply_name(&reply.id)), &reply.encode_to_vec())?;
        after.answered.push(Answered { question: question.into(), reply: reply.id.clone() });
        let gone = after.answered.len().saturating_sub(KEPT);
        let forgotten: Vec<Answered> = after.answered.drain(..gone).collect();
        write_atomically(&folder.join(MANIFEST), &to_json(&after))?;
        remove_what_is_past(&folder, &before, &after, &forgotten);
        Ok(())
    }

    /// Names come from outside: the folder is called by their hash.
    fn federation(&self, name: &str) -> PathBuf {
        self.root.join("federations").join(fingerprint(name.as_bytes()))
    }
}

const MANIFEST: &str = "manifest.json";

fn state_name(bytes: &[u8]) -> String {
    format!("state-{}", fingerprint(bytes))
}

fn reply_name(id: &str) -> String {
    format!("reply-{id}")
}

fn to_json(manifest: &Manifest) -> Vec<u8> {
    serde_json::to_vec_pretty(manifest).expect("plain values can be written to memory")
}

fn read_manifest(folder: &Path, federation: &str) -> Result<Manifest> {
    let path = folder.join(MANIFEST);
    if !path.exists() {
        return Ok(Manifest { federation: federation.into(), ..Manifest::default() });
    }
    let bytes = fs::read(&path).map_err(Error::file(&path, "read it"))?;
    serde_json::from_slice(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))
}

fn read_parcel(path: &Path) -> Result<Parcel> {
    let bytes = fs::read(path).map_err(Error::file(path, "read it"))?;
    Parcel::decode(&bytes[..]).map_err(|error| Error::damaged(path, error.to_string()))
}

/// Files that no manifest names any more. One that cannot be removed does no harm.
fn remove_what_is_past(folder: &Path, before: &Manifest, after: &Manifest, forgotten: &[Answered]) {
    let old_state = before.state.iter().filter(|state| after.state.as_ref() != Some(state));
    let old_replies = forgotten.iter().map(|answered| reply_name(&answered.reply));
    for name in old_state.cloned().chain(old_replies) {
        let _ = fs::remove_file(folder.join(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parcel(id: &str) -> Parcel {
        Parcel { run_id: 1, id: id.into(), objects: vec![id.as_bytes().to_vec()] }
    }

    #[test]
    fn state_and_answer_are_there_again_after_a_restart() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = Vault::open(folder.path()).expect("open");
        vault.commit("f", "q1", &parcel("r1"), Some(b"one")).expect("kept");
        vault.commit("f", "q2", &parcel("r2"), None).expect("kept");
        drop(vault);
        let vault = Vault::open(folder.path()).expect("open again");
        assert_eq!(vault.state("f").expect("there"), Some(b"one".to_vec()));
        assert_eq!(vault.answer("f", "q1").expect("there"), Some(parcel("r1")));
        assert_eq!(vault.answer("f", "q3").expect("never asked"), None);
        assert_eq!(vault.state("other").expect("nothing yet"), None);
    }

    #[test]
    fn a_lost_or_damaged_state_is_said_and_not_replaced_by_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = Vault::open(folder.path()).expect("open");
        vault.commit("f", "q1", &parcel("r1"), Some(b"one")).expect("kept");
        let file = vault.federation("f").join(state_name(b"one"));
        fs::write(&file, b"two").expect("damaged");
        assert!(vault.state("f").expect_err("damaged").to_string().contains("not what was written"));
        fs::remove_file(&file).expect("removed");
        assert!(vault.state("f").is_err());
    }

    #[test]
    fn two_processes_cannot_have_one_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let _first = Vault::open(folder.path()).expect("open");
        assert!(Vault::open(folder.path()).err().expect("taken").to_string().contains("another process"));
    }

    #[test]
    fn old_states_and_answers_do_not_pile_up() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = Vault::open(folder.path()).expect("open");
        for round in 0..20 {
            let (question, reply) = (format!("q{round}"), parcel(&format!("r{round}")));
            vault.commit("f", &question, &reply, Some(question.as_bytes())).expect("kept");
        }
        let files = fs::read_dir(vault.federation("f")).expect("there").count();
        assert_eq!(files, KEPT + 2, "answers, one state and the manifest");
    }

    #[test]
    fn questions_wait_until_they_are_done() {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = Vault::open(folder.path()).expect("open");
        vault.receive(&parcel("q1")).expect("kept");
        assert_eq!(vault.waiting().expect("read"), [parcel("q1")]);
        vault.done("q1").expect("removed");
        assert!(vault.waiting().expect("read").is_empty());
    }
}
