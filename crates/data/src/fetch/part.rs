//! The file under way: `NAME.part`, kept from one attempt, and from one run, to the next.
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use super::fingerprint::Fingerprint;
use crate::{Error, Result};

/// A partial file, locked against a second download of the same thing.
pub(super) struct Part {
    path: PathBuf,
    file: File,
    length: u64,
}

impl Part {
    /// Opens what an earlier run left, or starts an empty one.
    pub(super) fn open(target: &Path) -> Result<Self> {
        let path = beside(target);
        let mut options = OpenOptions::new();
        let file =
            options.read(true).write(true).create(true).truncate(false).open(&path).map_err(Error::io(&path, "create it"))?;
        lock(&file, &path)?;
        let length = file.metadata().map_err(Error::io(&path, "read it"))?.len();
        Ok(Self { path, file, length })
    }

    /// Bytes so far.
    pub(super) fn length(&self) -> u64 {
        self.length
    }

    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Adds bytes at the end.
    pub(super) fn append(&mut self, bytes: &[u8]) -> Result<()> {
        let end = SeekFrom::Start(self.length);
        let written = self.file.seek(end).and_then(|_| self.file.write_all(bytes));
        written.map_err(Error::io(&self.path, "write to it"))?;
        self.length += bytes.len() as u64;
        Ok(())
    }

    /// Throws everything away.
    pub(super) fn clear(&mut self) -> Result<()> {
        if self.length == 0 {
            return Ok(());
        }
        self.file.set_len(0).map_err(Error::io(&self.path, "empty it"))?;
        self.length = 0;
        Ok(())
    }

    /// What it holds.
    pub(super) fn fingerprint(&mut self) -> Result<Fingerprint> {
        self.file.rewind().and_then(|()| Fingerprint::of(&self.file)).map_err(Error::io(&self.path, "read it"))
    }

    /// Gives the file its final name in one step, after its bytes are safely on disk.
    pub(super) fn finish(self, target: &Path) -> Result<()> {
        self.file.sync_all().map_err(Error::io(&self.path, "write to it"))?;
        drop(self.file);
        fs::rename(&self.path, target).map_err(Error::io(target, "create it"))
    }

    /// Removes the file.
    pub(super) fn discard(self) -> Result<()> {
        drop(self.file);
        fs::remove_file(&self.path).map_err(Error::io(&self.path, "remove it"))
    }
}

/// The name a file goes by until it is whole.
pub(super) fn beside(target: &Path) -> PathBuf {
    let mut name = OsString::from(target);
    name.push(".part");
    name.into()
}

fn lock(file: &File, path: &Path) -> Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Error::unmeetable(
            format!("`{}` is being downloaded by another process", path.display()),
            "wait until the other download has ended, then run the command again",
        )),
        Err(TryLockError::Error(source)) => Err(Error::io(path, "lock it")(source)),
    }
}
