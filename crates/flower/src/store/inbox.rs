//! Requests that wait for their replies.
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::message::{Announcement, StoredMessage, read, write};
use crate::object::{Id, is_id};
use crate::{Error, Result};

/// A folder of requests, each a file named by the id of its message.
pub(crate) struct Inbox {
    folder: PathBuf,
}

/// The file extension of a request whose objects have not all arrived.
const ANNOUNCED: &str = "announced";

impl Inbox {
    /// Opens a folder, which must be locked by this process, and removes unfinished files of a power cut.
    pub(super) fn open(folder: PathBuf) -> Result<Self> {
        fs::create_dir_all(&folder).map_err(Error::file(&folder, "create it"))?;
        let inbox = Self { folder };
        for name in inbox.names()?.iter().filter(|name| name.ends_with(".partial")) {
            remove(&inbox.folder.join(name))?;
        }
        Ok(inbox)
    }

    /// Stores what the SuperLink says of a request: it says so only once. The id must be well formed.
    pub(crate) fn announce(&self, id: &str, announcement: &Announcement) -> Result<()> {
        write(&self.announcement_file(id), announcement)
    }

    /// Requests whose objects have not all arrived, in order of their ids.
    pub(crate) fn announced(&self) -> Result<Vec<Id>> {
        let names = self.names()?;
        Ok(names.iter().filter_map(|name| name.strip_suffix(ANNOUNCED)?.strip_suffix('.')).map(str::to_owned).collect())
    }

    /// What the SuperLink said of a request.
    pub(crate) fn announcement(&self, id: &str) -> Result<Announcement> {
        read(&self.announcement_file(id)).map_err(|error| Error::object(id, error.to_string()))
    }

    /// How long ago a request was announced; zero where the system does not tell.
    pub(crate) fn age(&self, id: &str) -> Duration {
        let written = fs::metadata(self.announcement_file(id)).and_then(|file| file.modified());
        written.ok().and_then(|written| written.elapsed().ok()).unwrap_or_default()
    }

    /// Removes an announcement: the request has arrived, or was refused.
    pub(crate) fn remove_announcement(&self, id: &str) -> Result<()> {
        remove(&self.announcement_file(id))
    }

    /// Stores a request until its reply was sent.
    pub(crate) fn add(&self, request: &StoredMessage) -> Result<()> {
        write(&self.file(&request.id), request)
    }

    /// Whether a request has arrived.
    pub(crate) fn contains(&self, id: &str) -> bool {
        self.file(id).exists()
    }

    /// Requests that have arrived and wait for their replies, in the order of their arrival.
    pub(crate) fn waiting(&self) -> Result<Vec<Id>> {
        let mut waiting: Vec<Id> = self.names()?.into_iter().filter(|name| is_id(name)).collect();
        waiting.sort_by_key(|id| fs::metadata(self.file(id)).and_then(|file| file.modified()).ok());
        Ok(waiting)
    }

    /// How many requests have been announced or have arrived.
    pub(crate) fn count(&self) -> Result<usize> {
        self.names().map(|names| names.len())
    }

    /// A request that waits. An unreadable file is an error of this request only.
    pub(crate) fn request(&self, id: &str) -> Result<StoredMessage> {
        read(&self.file(id)).map_err(|error| Error::object(id, error.to_string()))
    }

    /// Removes a request.
    pub(crate) fn remove(&self, id: &str) -> Result<()> {
        remove(&self.file(id))
    }

    /// The file of a request.
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
