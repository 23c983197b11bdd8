//! Where a node lives.
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fedeq::node::Member;
use fedeq_flower::fleet::{Address, Fleet};
use fedeq_flower::letter::Assignment;
use fedeq_flower::limit;
use fedeq_flower::node::{Done, Node, Notice, Worker};
use fedeq_flower::vault::{Learned, Vault};
use tempfile::TempDir;

use super::SuperLink;

/// The folder of client 0.
pub(crate) struct Site {
    folder: TempDir,
    /// What a message may take.
    pub(crate) message_limit: usize,
}

/// A client that counts how often it works.
pub(crate) struct Counted {
    member: Member,
    pub(crate) works: usize,
}

impl Counted {
    pub(crate) fn new() -> Self {
        Self { member: Member::new(0, PathBuf::from("nowhere")), works: 0 }
    }
}

impl Worker for Counted {
    fn number(&self) -> u64 {
        self.member.number()
    }

    fn work(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> Result<Done, String> {
        self.works += 1;
        self.member.work(assignment, state)
    }
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { folder: TempDir::new().expect("a folder"), message_limit: limit::USUAL }
    }

    /// The node's folder.
    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Lets the node work until so many answers have come whole; gives what it said.
    pub(crate) fn serve(&self, link: &SuperLink, worker: &mut dyn Worker, answers: usize) -> Vec<Notice> {
        self.serve_until(link, worker, &|| link.answered() >= answers)
    }

    /// Lets the node work until something is true.
    pub(crate) fn serve_until(
        &self,
        link: &SuperLink,
        worker: &mut dyn Worker,
        is_enough: &(dyn Fn() -> bool + Sync),
    ) -> Vec<Notice> {
        let began = Instant::now();
        let stopped = || {
            assert!(began.elapsed() < Duration::from_secs(120), "the node does not come to an end");
            is_enough()
        };
        let vault = Vault::open(self.path()).expect("the folder is free");
        vault.claim(worker.number()).expect("its own");
        let key = vault.key().expect("a key");
        let address = Address { host: link.address.clone(), trust: None };
        let fleet = Fleet::new(&address, key);
        let mut notices = Vec::new();
        let mut tell = |notice| notices.push(notice);
        let message_limit = self.message_limit;
        let mut node = Node { fleet: &fleet, vault: &vault, worker, tell: &mut tell, message_limit, stopped: &stopped };
        node.serve().expect("it ends in peace");
        notices
    }

    /// What it has learned.
    pub(crate) fn learned(&self) -> Learned {
        Learned::read(self.path(), None).expect("readable").expect("it has learned something")
    }

    /// Whether no question waits.
    pub(crate) fn is_done(&self) -> bool {
        fs::read_dir(self.path().join("inbox")).expect("an inbox").next().is_none()
    }

    /// All files that are kept of federations, with their bytes.
    pub(crate) fn kept(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files(&self.path().join("federations"))
    }

    /// The file of the state.
    pub(crate) fn state_file(&self) -> PathBuf {
        let is_state = |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("state-"));
        self.kept().into_keys().find(is_state).expect("a state")
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
