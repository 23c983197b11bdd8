//! A node's folder, and the node on it.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fedeq::node::{NodeWorker, Terms};
use fedeq_core::SigningSecret;
use fedeq_flower::connection::{Connection, SuperLinkAddress};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::limit::NodeLimits;
use fedeq_flower::node::{Accepted, Node, Notice, Objection, WorkResult, Worker};
use fedeq_flower::store::{NodeStore, TrainedModel};
use tempfile::TempDir;

use super::{App, SuperLink};

/// The folder of client 0.
pub(crate) struct NodeFolder {
    folder: TempDir,
    /// What others may take of its device.
    pub(crate) limits: NodeLimits,
}

/// A worker that counts how often it works.
pub(crate) struct CountingWorker {
    inner: NodeWorker,
    pub(crate) works: usize,
}

impl CountingWorker {
    /// Of an owner who has accepted an experiment.
    pub(crate) fn accepting(app: &App) -> Self {
        Self::on(app.terms(), Path::new("nowhere"))
    }

    /// On these terms, with this data.
    pub(crate) fn on(terms: Terms, data: &Path) -> Self {
        Self { inner: NodeWorker::new(0, data.to_owned(), terms), works: 0 }
    }

    /// The same, known to other clients by its key.
    pub(crate) fn signing_with(self, secret: SigningSecret) -> Self {
        Self { inner: self.inner.signing_with(Some(secret)), ..self }
    }
}

impl Worker for CountingWorker {
    fn client(&self) -> u64 {
        self.inner.client()
    }

    fn review(&self, envelope: &Envelope) -> Result<Accepted, Objection> {
        self.inner.review(envelope)
    }

    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> Result<WorkResult, String> {
        self.works += 1;
        self.inner.work(envelope, state)
    }
}

impl NodeFolder {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder"), limits: NodeLimits::default() }
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs the node until the SuperLink has received so many complete replies; gives the node's log.
    pub(crate) fn serve(&self, link: &SuperLink, worker: &mut dyn Worker, replies: usize) -> Vec<Notice> {
        self.serve_until(link, worker, &|| link.replies() >= replies)
    }

    /// Runs the node until a condition holds.
    pub(crate) fn serve_until(
        &self,
        link: &SuperLink,
        worker: &mut dyn Worker,
        is_enough: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Notice> {
        let began = Instant::now();
        let stopped = || {
            assert!(began.elapsed() < Duration::from_secs(120), "the node does not end in time");
            is_enough()
        };
        let store = NodeStore::open(self.path()).expect("not locked");
        store.claim(worker.client()).expect("its own");
        let key = store.key().expect("a key");
        let address = SuperLinkAddress { host: link.address.clone(), tls: None };
        let connection = Connection::new(&address, key);
        let mut notices = Vec::new();
        let mut notify = |notice| notices.push(notice);
        let limits = self.limits;
        let mut node = Node { connection: &connection, store: &store, worker, notify: &mut notify, limits, stopped: &stopped };
        node.serve().expect("it ends without an error");
        notices
    }

    /// The model it has trained in its only federation.
    pub(crate) fn trained(&self) -> TrainedModel {
        let federations = TrainedModel::federations(self.path()).expect("readable");
        let [federation] = &federations[..] else { panic!("it has taken part in one federation, not in {federations:?}") };
        TrainedModel::read(self.path(), federation).expect("readable").expect("it has trained")
    }

    /// Whether no request waits.
    pub(crate) fn is_done(&self) -> bool {
        fs::read_dir(self.path().join("inbox")).expect("an inbox").next().is_none()
    }

    /// All files of federations, with their bytes.
    pub(crate) fn stored_files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files(&self.path().join("federations"))
    }

    /// The file of the client's state.
    pub(crate) fn state_file(&self) -> PathBuf {
        let is_state = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("state-"));
        self.stored_files().into_keys().find(is_state).expect("a state")
    }
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    for path in fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            all.extend(files(&path));
        } else {
            let bytes = fs::read(&path).expect("readable");
            all.insert(path, bytes);
        }
    }
    all
}
