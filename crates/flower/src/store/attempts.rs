//! Requests on which the node crashed before it could reply.
//!
//! A node that is started again finds the request it was working on and starts over, which is right after a power cut. But a request that crashes the node
//! would crash it every time. So the node records that work begins, and that it ended in a panic; the same request, in whatever message, is then refused.
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use fedeq_core::write_atomically;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A folder of records, one for each request at work, named by the id of its content.
pub(crate) struct Attempts {
    folder: PathBuf,
}

/// What is known of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttemptRecord {
    /// How often work on it has begun.
    begun: u32,
    /// Whether work on it ended in a panic.
    panicked: bool,
}

/// Work that has begun; records a panic if there is one.
pub(crate) struct Attempt {
    path: PathBuf,
    record: AttemptRecord,
}

/// A process that is killed leaves no record of the reason: a power cut, or a request that takes all memory. So many power cuts in a row do not happen.
const MOST: u32 = 50;
/// Records that are kept; the oldest are removed first.
const KEPT: usize = 100;

impl Attempts {
    /// The records in a folder, which is created with the first one.
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether the node has crashed on a request before, in a panic or again and again.
    pub(crate) fn has_crashed(&self, content: &str) -> bool {
        let record = read(&self.folder.join(content));
        record.panicked || record.begun >= MOST
    }

    /// Records that work on a request begins. The id must be well formed.
    pub(crate) fn begin(&self, content: &str) -> Result<Attempt> {
        fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "create it"))?;
        self.remove_oldest();
        let path = self.folder.join(content);
        let record = AttemptRecord { begun: read(&path).begun + 1, panicked: false };
        write(&path, record)?;
        watch(Some(&path));
        Ok(Attempt { path, record })
    }

    /// Forgets a request that has been replied to.
    pub(crate) fn forget(&self, content: &str) {
        let _ = fs::remove_file(self.folder.join(content));
    }

    fn remove_oldest(&self) {
        let mut records: Vec<PathBuf> =
            fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        records.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        for old in &records[..records.len().saturating_sub(KEPT)] {
            let _ = fs::remove_file(old);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        watch(None);
        if thread::panicking() {
            let _ = write(&self.path, AttemptRecord { panicked: true, ..self.record });
        } else {
            // Replied to or refused: a record that remains does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// The record in a file; a missing or damaged one counts as no attempt.
fn read(path: &Path) -> AttemptRecord {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(path: &Path, record: AttemptRecord) -> Result<()> {
    Ok(write_atomically(path, &serde_json::to_vec(&record).expect("plain values can be written to memory"))?)
}

/// The record of the request at work.
static AT_WORK: Mutex<Option<PathBuf>> = Mutex::new(None);

/// In a program that does not unwind (`panic = "abort"`) nothing is dropped, and only the panic hook can still write the record.
fn watch(path: Option<&Path>) {
    static HOOKED: Once = Once::new();
    if !cfg!(panic = "abort") {
        return;
    }
    *AT_WORK.lock().unwrap_or_else(PoisonError::into_inner) = path.map(Path::to_owned);
    HOOKED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            record_panic();
            usual(info);
        }));
    });
}

fn record_panic() {
    let at_work = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = at_work {
        let _ = write(&path, AttemptRecord { panicked: true, ..read(&path) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts() -> (tempfile::TempDir, Attempts) {
        let folder = tempfile::tempdir().expect("a folder");
        let attempts = Attempts::in_folder(folder.path().join("attempts"));
        (folder, attempts)
    }

    fn names(attempts: &Attempts) -> usize {
        fs::read_dir(&attempts.folder).map_or(0, Iterator::count)
    }

    #[test]
    fn work_that_succeeds_leaves_no_record() {
        let (_folder, attempts) = attempts();
        drop(attempts.begin("q").expect("recorded"));
        assert!(!attempts.has_crashed("q") && names(&attempts) == 0);
    }

    #[test]
    fn a_panic_is_recorded_for_its_request_only() {
        let (_folder, attempts) = attempts();
        let ended = panic::catch_unwind(|| {
            let _attempt = attempts.begin("q").expect("recorded");
            panic!("the work failed");
        });
        assert!(ended.is_err() && attempts.has_crashed("q") && !attempts.has_crashed("r"));
        attempts.forget("q");
        assert!(!attempts.has_crashed("q"));
    }

    #[test]
    fn without_unwinding_the_panic_hook_writes_the_record() {
        let (_folder, attempts) = attempts();
        let attempt = attempts.begin("q").expect("recorded");
        *AT_WORK.lock().expect("free") = Some(attempt.path.clone());
        record_panic();
        assert!(attempts.has_crashed("q"));
        std::mem::forget(attempt);
    }

    #[test]
    fn a_request_is_retried_after_power_cuts_but_not_for_ever() {
        let (_folder, attempts) = attempts();
        for number in 0..MOST {
            assert!(!attempts.has_crashed("q"), "{number}");
            // Like a process that is killed.
            std::mem::forget(attempts.begin("q").expect("recorded"));
        }
        assert!(attempts.has_crashed("q"));
    }

    #[test]
    fn old_records_are_removed_and_damaged_ones_do_not_count() {
        let (_folder, attempts) = attempts();
        for number in 0..2 * KEPT {
            std::mem::forget(attempts.begin(&number.to_string()).expect("recorded"));
        }
        assert!(names(&attempts) <= KEPT + 1, "{}", names(&attempts));
        fs::write(attempts.folder.join("q"), "{").expect("writable");
        assert!(!attempts.has_crashed("q"));
    }
}
