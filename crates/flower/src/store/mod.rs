//! What a node keeps on disk, so that nothing is lost whenever it is killed.
//!
//! ```text
//! DIR/key.pem                          the node's private key
//! DIR/signing.key                      the key by which other clients know it, if there is one
//! DIR/client                           which client of the federation it is
//! DIR/node                             the node id that a SuperLink last gave it
//! DIR/lock                             held while a process uses the folder
//! DIR/inbox/ID.announced               a request whose objects have not all arrived
//! DIR/inbox/ID                         a request that has arrived and waits for its reply
//! DIR/attempts/ID                      a request, by its content, at which work has begun or the node has crashed
//! DIR/attempts/tries-TASK-NAME         how often work on a task of a federation ended badly in its latest round, whatever the weights were
//! DIR/accepted.json                    the federations of each accepted experiment
//! DIR/proposals/NAME.toml              an experiment that a server asked for and the node refused
//! DIR/federations/NAME/manifest.json   which state is the current one, and the latest replies
//! DIR/federations/NAME/state-HASH      theta_i, w_i, lambda_i, statistics
//! DIR/federations/NAME/reply-ID        a reply, to be sent again if the request is repeated
//! DIR/federations/NAME/latest          the last request that was replied to
//! ```
//!
//! Every file is written, synced and renamed. Replacing the manifest is what commits: the new state and the reply become valid together.
mod attempts;
mod consent;
mod federation;
mod inbox;
mod message;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use fedeq_core::{SigningSecret, write_atomically};

pub use attempts::CurrentWork;
pub(crate) use attempts::{Attempts, RequestPlace, Verdict};
pub(crate) use consent::ConsentStore;
pub use consent::Proposal;
pub(crate) use federation::{Denial, FederationStore, PreviousReply, RequestKey, Telling};
pub(crate) use inbox::Inbox;
pub(crate) use message::{Announcement, StoredMessage};

use crate::envelope::Envelope;
use crate::key::{Key, open_or_create_signing};
use crate::message::Message;
use crate::{Error, Result};

/// A node's folder, locked by this process.
pub struct NodeStore {
    root: PathBuf,
    inbox: Inbox,
    attempts: Attempts,
    consent: ConsentStore,
    _lock: File,
}

/// The model that a node has trained in a federation.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainedModel {
    /// In which federation.
    pub federation: String,
    /// Which client of it the node is.
    pub client: u64,
    /// `theta_i`, `w_i`, `lambda_i` and statistics, as they were stored.
    pub state: Vec<u8>,
    /// The last request that was replied to: the experiment, and the shared part as it was last received.
    pub latest: Envelope,
}

const KEY: &str = "key.pem";
const SIGNING_KEY: &str = "signing.key";
const CLIENT: &str = "client";
const NODE: &str = "node";
const FEDERATIONS: &str = "federations";

/// How often the lock is tried, a twentieth of a second apart.
const LOCK_TRIES: usize = 10;

/// Takes a lock that may be held for another moment: by a process that is just ending, or by one that was forked and has not yet executed its own
/// program, which holds the files of its parent.
fn is_locked_soon(file: &File) -> bool {
    (0..LOCK_TRIES).any(|attempt| {
        if attempt > 0 {
            thread::sleep(Duration::from_millis(50));
        }
        file.try_lock().is_ok()
    })
}

impl NodeStore {
    /// Locks a folder for this process; it is created, for its owner alone, if it does not exist.
    pub fn open(root: &Path) -> Result<Self> {
        create_private(root).map_err(Error::file(root, "create it"))?;
        let path = root.join("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::file(&path, "open it"))?;
        if !is_locked_soon(&lock) {
            return Err(Error::damaged(
                root,
                "another process is using this folder; stop that process, or choose another folder",
            ));
        }
        let attempts = Attempts::in_folder(root.join("attempts"));
        let consent = ConsentStore::in_folder(root);
        Ok(Self { root: root.into(), inbox: Inbox::open(root.join("inbox"))?, attempts, consent, _lock: lock })
    }

    /// The node's key, which is created if it does not exist.
    pub fn key(&self) -> Result<Key> {
        Key::open_or_create(&self.root.join(KEY))
    }

    /// The key of a folder, which is created if it does not exist. A node may be running on the folder meanwhile.
    pub fn key_in(root: &Path) -> Result<Key> {
        let path = root.join(KEY);
        if path.exists() { Key::open(&path) } else { Self::open(root)?.key() }
    }

    /// The key by which other clients know this one, if its owner has made one.
    pub fn signing_key(&self) -> Result<Option<SigningSecret>> {
        let path = self.root.join(SIGNING_KEY);
        path.exists().then(|| open_or_create_signing(&path)).transpose()
    }

    /// The same of a folder, created if it does not exist. A node may be running on the folder meanwhile.
    pub fn signing_key_in(root: &Path) -> Result<SigningSecret> {
        let path = root.join(SIGNING_KEY);
        // Opening the folder creates it, readable by its owner alone.
        let _store = if path.exists() { None } else { Some(Self::open(root)?) };
        open_or_create_signing(&path)
    }

    /// Says which client the node is. A folder belongs to one client: its model and its dual fit no other.
    pub fn claim(&self, client: u64) -> Result<()> {
        match client_of(&self.root)? {
            Some(known) if known != client => {
                Err(Error::damaged(&self.root, format!("this folder belongs to client `{known}`, not to `{client}`")))
            }
            Some(_) => Ok(()),
            None => Ok(write_atomically(&self.root.join(CLIENT), client.to_string().as_bytes())?),
        }
    }

    /// The node id that a SuperLink last gave the node. A file that is missing or damaged counts as none: the id only helps to reconnect sooner.
    pub(crate) fn node_id(&self) -> Option<u64> {
        fs::read_to_string(self.root.join(NODE)).ok()?.trim().parse().ok()
    }

    /// Saves the node id that a SuperLink gave the node.
    pub(crate) fn save_node_id(&self, id: u64) -> Result<()> {
        Ok(write_atomically(&self.root.join(NODE), id.to_string().as_bytes())?)
    }

    /// Requests that wait for their replies.
    pub(crate) fn inbox(&self) -> &Inbox {
        &self.inbox
    }

    /// Requests at which work has begun.
    pub(crate) fn attempts(&self) -> &Attempts {
        &self.attempts
    }

    /// Agreements, and experiments that were refused.
    pub(crate) fn consent(&self) -> &ConsentStore {
        &self.consent
    }

    /// The request that the node works on, for its guard.
    pub fn activity(&self) -> Arc<CurrentWork> {
        self.attempts.activity()
    }

    /// Experiments that servers have asked the node of a folder for and that it has refused, the latest first. A node may be running on the folder meanwhile.
    pub fn proposals(root: &Path) -> Vec<Proposal> {
        ConsentStore::proposals(root)
    }

    /// The bytes of all files in the folder.
    pub(crate) fn used(&self) -> u64 {
        bytes_below(&self.root)
    }

    /// What is stored of a federation.
    pub(crate) fn federation(&self, name: &str) -> FederationStore {
        FederationStore::of(&self.root.join(FEDERATIONS), name)
    }

    /// Moves a request that was replied to from the inbox to its federation, where it is kept until the next one is.
    pub(crate) fn finish_request(&self, request: &str, federation: &str) -> Result<()> {
        self.federation(federation).keep_latest(&self.inbox.file(request))
    }
}

impl TrainedModel {
    /// The names of the federations that the node of a folder has taken part in.
    pub fn federations(root: &Path) -> Result<Vec<String>> {
        let stores = FederationStore::all(&root.join(FEDERATIONS))?;
        Ok(stores.iter().map(|store| store.federation().to_owned()).collect())
    }

    /// The model that the node of a folder has trained in a federation; nothing if it has not trained in it. A node may be running on the folder meanwhile.
    pub fn read(root: &Path, federation: &str) -> Result<Option<Self>> {
        let Some(client) = client_of(root)? else { return Ok(None) };
        let store = FederationStore::of(&root.join(FEDERATIONS), federation);
        loop {
            let version = store.version()?;
            let model = Self::from_store(&store, client);
            // A commit in between may have replaced a file that was about to be read.
            if store.version()? == version {
                return model;
            }
        }
    }

    fn from_store(store: &FederationStore, client: u64) -> Result<Option<Self>> {
        let (Some(state), Some(request)) = (store.state()?, store.latest()?) else { return Ok(None) };
        // It was within the limit when it was received, whatever the limit is now.
        let content = Message::inflate_within(&request.id, &request.bundle(), usize::MAX)?.content;
        let content = content.map_err(|failure| Error::object(&request.id, failure.reason))?;
        let federation = store.federation().to_owned();
        Ok(Some(Self { federation, client, state, latest: Envelope::read(&content)? }))
    }
}

/// The client that a folder belongs to, if it belongs to one.
fn client_of(root: &Path) -> Result<Option<u64>> {
    let path = root.join(CLIENT);
    if !path.exists() {
        return Ok(None);
    }
    let text = fs::read_to_string(&path).map_err(Error::file(&path, "read it"))?;
    text.trim().parse().map(Some).map_err(|_| Error::damaged(&path, format!("`{}` is not the number of a client", text.trim())))
}

/// The bytes of all files in a folder and those below it; links are not followed.
fn bytes_below(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: fs::DirEntry| match entry.metadata() {
        Ok(file) if file.is_dir() => bytes_below(&entry.path()),
        Ok(file) => file.len(),
        Err(_) => 0,
    };
    entries.map(size).fold(0, u64::saturating_add)
}

/// Creates a folder that only its owner can access.
fn create_private(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

#[cfg(test)]
mod tests {
    use super::message::stored;
    use super::*;

    fn opened() -> (tempfile::TempDir, NodeStore) {
        let folder = tempfile::tempdir().expect("a folder");
        let store = NodeStore::open(folder.path()).expect("open");
        (folder, store)
    }

    #[test]
    fn two_processes_cannot_use_one_folder() {
        let (folder, _store) = opened();
        assert!(NodeStore::open(folder.path()).err().expect("locked").to_string().contains("another process"));
    }

    #[test]
    fn a_folder_belongs_to_one_client() {
        let (folder, store) = opened();
        store.claim(3).expect("free");
        store.claim(3).expect("its own");
        assert!(store.claim(4).expect_err("another's").to_string().contains("client `3`"));
        assert_eq!(client_of(folder.path()).expect("readable"), Some(3));
    }

    #[cfg(unix)]
    #[test]
    fn only_its_owner_can_access_a_folder() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("node");
        NodeStore::open(&root).expect("open");
        assert_eq!(fs::metadata(&root).expect("it exists").permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn requests_wait_for_their_replies_and_the_last_one_is_kept() {
        let (_folder, store) = opened();
        let id = "0".repeat(64);
        store.inbox().announce(&id, &Announcement::default()).expect("stored");
        assert_eq!(store.inbox().announced().expect("read"), std::slice::from_ref(&id));
        store.inbox().add(&stored(&id)).expect("stored");
        store.inbox().remove_announcement(&id).expect("removed");
        assert!(store.inbox().announced().expect("read").is_empty());
        assert_eq!(store.inbox().waiting().expect("read"), std::slice::from_ref(&id));
        let request = RequestKey { message: &id, content: "c" };
        store.federation("f").commit(request, &stored("r"), None, None).expect("stored");
        store.finish_request(&id, "f").expect("moved");
        assert!(store.inbox().waiting().expect("read").is_empty());
        assert_eq!(store.federation("f").latest().expect("read"), Some(stored(&id)));
    }

    #[test]
    fn unfinished_files_of_a_power_cut_are_removed() {
        let (folder, store) = opened();
        let partial = folder.path().join("inbox").join(format!("{}.partial", "0".repeat(64)));
        fs::write(&partial, b"half").expect("written");
        assert!(store.inbox().waiting().expect("read").is_empty());
        drop(store);
        NodeStore::open(folder.path()).expect("open again");
        assert!(!partial.exists());
    }

    #[test]
    fn federations_are_listed_by_their_names() {
        let (folder, store) = opened();
        store.claim(0).expect("free");
        assert!(TrainedModel::federations(folder.path()).expect("readable").is_empty());
        for federation in ["f", "g"] {
            let request = RequestKey { message: "q", content: "c" };
            store.federation(federation).commit(request, &stored("r"), Some(b"state"), None).expect("stored");
        }
        let mut names = TrainedModel::federations(folder.path()).expect("readable");
        names.sort();
        assert_eq!(names, ["f", "g"]);
    }

    #[test]
    fn a_folder_without_a_model_gives_none() {
        let (folder, store) = opened();
        assert_eq!(TrainedModel::read(folder.path(), "f").expect("readable"), None);
        store.claim(0).expect("free");
        assert_eq!(TrainedModel::read(folder.path(), "f").expect("readable"), None);
    }
}
