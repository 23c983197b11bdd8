//! Files of JSON lines that grow, and can be cut back to where they were.
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result, fingerprint, write_atomically};
use serde::{Deserialize, Serialize};

/// A file that grows by lines.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

/// How long a journal was at some moment, and what it held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Its length in bytes.
    pub bytes: u64,
    /// The fingerprint of these bytes.
    pub fingerprint: String,
}

impl Journal {
    /// Opens a journal to write on where it ends.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io(&path, "open it"))?;
        Ok(Self { path, file })
    }

    /// Whether nothing has been written.
    pub(super) fn is_empty(&self) -> Result<bool> {
        self.file.metadata().map(|metadata| metadata.len() == 0).map_err(Error::io(&self.path, "look at it"))
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(Error::io(&self.path, "write to it"))
    }

    /// Adds a value as a line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(value).map_err(|error| Error::io(&self.path, "write to it")(error.into()))?;
        self.line(&line)
    }
}

impl Default for Stamp {
    /// That of a journal in which nothing is written.
    fn default() -> Self {
        Self { bytes: 0, fingerprint: fingerprint(&[]) }
    }
}

impl Stamp {
    /// Makes sure that a journal is on disk, and says how long it is; nothing if it is not there yet.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(bytes) => {
                File::open(path).and_then(|file| file.sync_all()).map_err(Error::io(path, "sync it"))?;
                Ok(Self { bytes: bytes.len() as u64, fingerprint: fingerprint(&bytes) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::io(path, "read it")(error)),
        }
    }

    /// Refuses a journal that does not begin with what it held.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let held = read_if_there(path)?;
        let Some(kept) = held.get(..self.bytes as usize) else {
            let problem = format!("it holds {} bytes, and held {} when the checkpoint was written", held.len(), self.bytes);
            return Err(Error::damaged(path, problem));
        };
        if fingerprint(kept) == self.fingerprint { Ok(()) } else { Err(Error::damaged(path, "it is not what was written")) }
    }

    /// Cuts a journal back to what it was.
    pub(super) fn cut_back(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        cut(path, self.bytes)
    }
}

/// How long a file is; nothing if it is not there.
pub(super) fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Cuts a file back to a length, and makes sure that it is on disk like that.
pub(super) fn cut(path: &Path, bytes: u64) -> Result<()> {
    if length(path) <= bytes {
        return Ok(());
    }
    let cut = || {
        let file = File::options().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()
    };
    cut().map_err(Error::io(path, "cut it back"))
}

/// Keeps only the lines wanted, for files of which no stamp is taken.
pub(super) fn keep_lines(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let held = read_if_there(path)?;
    let text = String::from_utf8_lossy(&held);
    // What follows the last line break was still being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let kept: String = whole.lines().filter(|line| wanted(line)).map(|line| format!("{line}\n")).collect();
    if kept.len() < held.len() { write_atomically(path, kept.as_bytes()) } else { Ok(()) }
}

fn read_if_there(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io(path, "read it")(error)),
    }
}
