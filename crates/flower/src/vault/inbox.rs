//! Questions that have arrived and are not yet answered.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::parcel::{Announcement, Parcel, read, write};
use crate::object::{Id, is_id};
use crate::{Error, Result};

/// A folder of questions, each a file named by its id.
pub(crate) struct Inbox {
    folder: PathBuf,
}

/// What the file of a question ends in while its objects are on their way.
const ANNOUNCED: &str = "announced";

impl Inbox {
    /// Takes a folder, which must be held by this process, and clears away what a power cut left unfinished.
    pub(super) fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(Error::file(&folder, "create it"))?;
        let inbox = Self { folder };
        for name in inbox.names()?.iter().filter(|name| name.ends_with(".partial")) {
            remove(&inbox.folder.join(name))?;
        }
        Ok(inbox)
    }

    /// Keeps what the SuperLink told of a question: it says so only once. The id must be one.
    pub(crate) fn announce(&self, id: &str, announcement: &Announcement) -> Result<()> {
        write(&self.announcement_file(id), announcement)
    }

    /// Questions whose objects are on their way, in order of their ids.
    pub(crate) fn announced(&self) -> Result<Vec<Id>> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(ANNOUNCED)?.strip_suffix('.')).map(str::to_owned).collect())
    }

    /// What was told of a question.
    pub(crate) fn announcement(&self, id: &str) -> Result<Announcement> {
        read(&self.announcement_file(id)).map_err(|error| Error::object(id, error.to_string()))
    }

    /// How long ago a question was announced; no time at all where the system does not tell.
    pub(crate) fn age(&self, id: &str) -> Duration {
        let written = fs::metadata(self.announcement_file(id)).and_then(|file| file.modified());
        written.ok().and_then(|written| written.elapsed().ok()).unwrap_or_default()
    }

    /// Forgets what was told of a question: it is here, or will never be.
    pub(crate) fn arrived(&self, id: &str) -> Result<()> {
        remove(&self.announcement_file(id))
    }

    /// Keeps a question until it is answered.
    pub(crate) fn receive(&self, question: &Parcel) -> Result<()> {
        write(&self.file(&question.id), question)
    }

    /// Whether a question is here.
    pub(crate) fn holds(&self, id: &str) -> bool {
        self.file(id).exists()
    }

    /// Questions that arrived and were not answered, in the order of their arrival.
    pub(crate) fn waiting(&self) -> Result<Vec<Id>> {
        let mut waiting: Vec<Id> = self.names()?.into_iter().filter(|name| is_id(name)).collect();
        waiting.sort_by_key(|id| fs::metadata(self.file(id)).and_then(|file| file.modified()).ok());
        Ok(waiting)
    }

    /// A question that waits. What is wrong with its file is wrong with the question.
    pub(crate) fn question(&self, id: &str) -> Result<Parcel> {
        read(&self.file(id)).map_err(|error| Error::object(id, error.to_string()))
    }

    /// Forgets a question.
    pub(crate) fn done(&self, id: &str) -> Result<()> {
        remove(&self.file(id))
    }

    /// The file of a question.
    pub(super) fn file(&self, id: &str) -> PathBuf {
        self.folder.join(id)
    }

    fn announcement_file(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.{ANNOUNCED}"))
    }

    fn names(&self) -> Result<Vec<String>> {
        let entries = fs::read_dir(&self.folder).map_err(Error::file(&self.folder, "read it"))?;
        let mut names: Vec<String> = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        Ok(names)
    }
}

fn remove(path: &Path) -> Result<()> {
    if path.exists() { fs::remove_file(path).map_err(Error::file(path, "remove it")) } else { Ok(()) }
}
