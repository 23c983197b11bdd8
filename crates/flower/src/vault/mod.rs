//! What a node keeps on disk, so that nothing is lost whenever it is killed.
//!
//! ```text
//! DIR/key.pem                          who it is
//! DIR/client                           which client of the federation it is
//! DIR/node                             the number that a SuperLink last gave it
//! DIR/lock                             held while a process works on it
//! DIR/inbox/ID.announced               a question whose objects are on their way
//! DIR/inbox/ID                         a question that has arrived and is not yet answered
//! DIR/attempts/ID                      what a question says at which work has begun, or the node has ended
//! DIR/federations/NAME/manifest.json   which state is the current one, and which questions it has answered
//! DIR/federations/NAME/state-HASH      theta_i, w_i, lambda_i, statistics
//! DIR/federations/NAME/reply-ID        an answer, to be given again if the question is repeated
//! DIR/federations/NAME/latest          the last question that was answered
//! ```
//!
//! Everything is written, synced and renamed. The manifest is what counts: state and answer become true together, when it is replaced.
mod attempts;
mod inbox;
mod parcel;
mod shelf;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fedeq_core::write_atomically;

pub(crate) use attempts::Attempts;
pub(crate) use inbox::Inbox;
pub(crate) use parcel::{Announcement, Parcel};
pub(crate) use shelf::{Given, Question, Shelf};

use crate::key::Key;
use crate::letter::Assignment;
use crate::message::Message;
use crate::{Error, Result};

/// A node's folder, held by this process.
pub struct Vault {
    root: PathBuf,
    inbox: Inbox,
    attempts: Attempts,
    _lock: File,
}

/// What a node has learned, for whoever wants to use it.
#[derive(Clone, Debug, PartialEq)]
pub struct Learned {
    /// In which federation.
    pub federation: String,
    /// Which client of it the node is.
    pub client: u64,
    /// `theta_i`, `w_i`, `lambda_i` and statistics, as they were kept.
    pub state: Vec<u8>,
    /// The last question that was answered: the experiment, and the shared part as it was last heard of.
    pub latest: Assignment,
}

const KEY: &str = "key.pem";
const CLIENT: &str = "client";
const NODE: &str = "node";
const FEDERATIONS: &str = "federations";

/// How often a lock is asked for, a twentieth of a second apart.
const LOCK_TRIES: usize = 10;

/// Takes a lock that may be held for a moment yet: by a process that is just ending, or by one that was forked and has not begun its own
/// program, which holds the files of its parent.
fn is_locked_soon(file: &File) -> bool {
    (0..LOCK_TRIES).any(|attempt| {
        if attempt > 0 {
            thread::sleep(Duration::from_millis(50));
        }
        file.try_lock().is_ok()
    })
}

impl Vault {
    /// Takes a folder for this process; it is made, for its owner alone, if it is not there.
    pub fn open(root: &Path) -> Result<Self> {
        create_private(root).map_err(Error::file(root, "create it"))?;
        let path = root.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::file(&path, "open it"))?;
        if !is_locked_soon(&lock) {
            return Err(Error::damaged(root, "another process is working on it; stop that one, or choose another"));
        }
        let attempts = Attempts::of(root.join("attempts"));
        Ok(Self { root: root.into(), inbox: Inbox::open(root.join("inbox"))?, attempts, _lock: lock })
    }

    /// The node's key, which is made if it is not there.
    pub fn key(&self) -> Result<Key> {
        Key::open_or_create(&self.root.join(KEY))
    }

    /// The key of a folder, which is made if it is not there. A node may be at work on the folder meanwhile.
    pub fn key_in(root: &Path) -> Result<Key> {
        let path = root.join(KEY);
        if path.exists() { Key::open(&path) } else { Self::open(root)?.key() }
    }

    /// Says which client the node is. A folder belongs to one client for ever: its model and its dual fit no other.
    pub fn claim(&self, client: u64) -> Result<()> {
        match client_of(&self.root)? {
            Some(known) if known != client => {
                Err(Error::damaged(&self.root, format!("it is the folder of client `{known}`, not of `{client}`")))
            }
            Some(_) => Ok(()),
            None => Ok(write_atomically(&self.root.join(CLIENT), client.to_string().as_bytes())?),
        }
    }

    /// The number that a SuperLink last gave the node. A note that is not there or damaged is none: it only helps to come back sooner.
    pub(crate) fn number(&self) -> Option<u64> {
        fs::read_to_string(self.root.join(NODE)).ok()?.trim().parse().ok()
    }

    /// Notes the number that a SuperLink gave the node.
    pub(crate) fn note_number(&self, number: u64) -> Result<()> {
        Ok(write_atomically(&self.root.join(NODE), number.to_string().as_bytes())?)
    }

    /// Questions that are not yet answered.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Questions at which work has begun.
    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// What is kept of a federation.
    pub(crate) fn shelf(&self, federation: &str) -> Shelf {
        Shelf::of(&self.root.join(FEDERATIONS), federation)
    }

    /// A question has been answered in a federation, and is kept until the next one is.
    pub(crate) fn settle(&self, question: &str, federation: &str) -> Result<()> {
        self.shelf(federation).keep_latest(&self.inbox.file(question))
    }
}

impl Learned {
    /// The names of the federations that the node of a folder has taken part in.
    pub fn federations(root: &Path) -> Result<Vec<String>> {
        let shelves = Shelf::all(&root.join(FEDERATIONS))?;
        Ok(shelves.iter().map(|shelf| shelf.federation().to_owned()).collect())
    }

    /// What the node of a folder has learned in a federation, or in the only one there is; nothing if it has not learned anything. A node may be at work
    /// on the folder meanwhile.
    pub fn read(root: &Path, federation: Option<&str>) -> Result<Option<Self>> {
        let Some(client) = client_of(root)? else { return Ok(None) };
        let Some(shelf) = choose(root, federation)? else { return Ok(None) };
        loop {
            let version = shelf.version()?;
            let learned = Self::on(&shelf, client);
            // A commit in between may have replaced a file that was about to be read.
            if shelf.version()? == version {
                return learned;
            }
        }
    }

    fn on(shelf: &Shelf, client: u64) -> Result<Option<Self>> {
        let (Some(state), Some(question)) = (shelf.state()?, shelf.latest()?) else { return Ok(None) };
        // It was allowed when it came, whatever is allowed now.
        let content = Message::inflate_within(&question.id, &question.bundle(), usize::MAX)?.content;
        let content = content.map_err(|failure| Error::object(&question.id, failure.reason))?;
        let federation = shelf.federation().to_owned();
        Ok(Some(Self { federation, client, state, latest: Assignment::read(&content)? }))
    }
}

/// The federation of a name, or the only one.
fn choose(root: &Path, federation: Option<&str>) -> Result<Option<Shelf>> {
    let mut shelves = Shelf::all(&root.join(FEDERATIONS))?;
    let names: Vec<String> = shelves.iter().map(|shelf| format!("`{}`", shelf.federation())).collect();
    let refuse = |problem: String| Err(Error::damaged(root, format!("{problem} {}", names.join(", "))));
    match federation {
        Some(name) => match shelves.iter().position(|shelf| shelf.federation() == name) {
            Some(found) => Ok(Some(shelves.swap_remove(found))),
            None if names.is_empty() => Ok(None),
            None => refuse(format!("it holds nothing of the federation `{name}`, but of")),
        },
        None if names.len() > 1 => refuse("it holds the models of several federations; choose one of".into()),
        None => Ok(shelves.pop()),
    }
}

/// The client that a folder belongs to, if it belongs to one.
fn client_of(root: &Path) -> Result<Option<u64>> {
    let path = root.join(CLIENT);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(Error::file(&path, "read it"))?;
    text.trim().parse().map(Some).map_err(|_| Error::damaged(&path, format!("`{}` is no client", text.trim())))
}

/// Makes a folder that only its owner can look into.
fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened() -> (tempfile::TempDir, Vault) {
        let folder = tempfile::tempdir().expect("a folder");
        let vault = Vault::open(folder.path()).expect("open");
        (folder, vault)
    }

    fn parcel(id: &str) -> Parcel {
        Parcel { run_id: 1, id: id.into(), objects: vec![id.as_bytes().to_vec()] }
    }

    #[test]
    fn two_processes_cannot_have_one_folder() {
        let (folder, _vault) = opened();
        assert!(Vault::open(folder.path()).err().expect("taken").to_string().contains("another process"));
    }

    #[test]
    fn a_folder_belongs_to_one_client() {
        let (folder, vault) = opened();
        vault.claim(3).expect("free");
        vault.claim(3).expect("its own");
        assert!(vault.claim(4).expect_err("another's").to_string().contains("client `3`"));
        assert_eq!(client_of(folder.path()).expect("readable"), Some(3));
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_look_into_a_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("node");
        Vault::open(&root).expect("open");
        assert_eq!(fs::metadata(&root).expect("there").permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn questions_wait_until_they_are_answered_and_the_last_one_is_kept() {
        let (_folder, vault) = opened();
        let id = "0".repeat(64);
        vault.inbox().announce(&id, &Announcement::default()).expect("kept");
        assert_eq!(vault.inbox().announced().expect("read"), std::slice::from_ref(&id));
        vault.inbox().receive(&parcel(&id)).expect("kept");
        vault.inbox().arrived(&id).expect("removed");
        assert!(vault.inbox().announced().expect("read").is_empty());
        assert_eq!(vault.inbox().waiting().expect("read"), std::slice::from_ref(&id));
        let question = Question { message: &id, content: "c" };
        vault.shelf("f").commit(question, &parcel("r"), None).expect("kept");
        vault.settle(&id, "f").expect("moved");
        assert!(vault.inbox().waiting().expect("read").is_empty());
        assert_eq!(vault.shelf("f").latest().expect("read"), Some(parcel(&id)));
    }

    #[test]
    fn what_a_power_cut_left_unfinished_is_cleared_away() {
        let (folder, vault) = opened();
        let partial = folder.path().join("inbox").join(format!("{}.partial", "0".repeat(64)));
        fs::write(&partial, b"half").expect("written");
        assert!(vault.inbox().waiting().expect("read").is_empty());
        drop(vault);
        Vault::open(folder.path()).expect("open again");
        assert!(!partial.exists());
    }

    #[test]
    fn among_several_federations_one_must_be_chosen() {
        let (folder, vault) = opened();
        vault.claim(0).expect("free");
        for federation in ["f", "g"] {
            let question = Question { message: "q", content: "c" };
            vault.shelf(federation).commit(question, &parcel("r"), Some(b"state")).expect("kept");
        }
        let refused = |name| Learned::read(folder.path(), name).expect_err("unclear").to_string();
        assert!(refused(None).contains("several federations") && refused(None).contains("`g`"));
        assert!(refused(Some("h")).contains("nothing of the federation `h`"));
    }

    #[test]
    fn a_folder_with_nothing_learned_says_so() {
        let (folder, vault) = opened();
        assert_eq!(Learned::read(folder.path(), None).expect("readable"), None);
        vault.claim(0).expect("free");
        assert_eq!(Learned::read(folder.path(), Some("f")).expect("readable"), None);
    }
}
