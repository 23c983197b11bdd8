//! Questions at which the node ended before it could answer them.
//!
//! A node that is started again finds the question it was at and begins anew, which is right after a power cut. But a question that brings the node down
//! would bring it down for ever. So it is noted that work begins, and that it ended in a panic; who asks that question again, in whatever message, is refused.
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

use fedeq_core::write_atomically;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A folder of notes, one for each question at work, by what it says.
pub(crate) struct Attempts {
    folder: PathBuf,
}

/// What is known of a question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Note {
    /// How often work on it has begun.
    begun: u32,
    /// Whether work on it ended in a panic.
    panicked: bool,
}

/// Work that has begun; notes a panic if there is one.
pub(crate) struct Attempt {
    path: PathBuf,
    note: Note,
}

/// A process that is killed leaves no word, whether by a power cut or because a question takes all memory. Nobody is as unlucky as this.
const MOST: u32 = 50;
/// Notes that are kept; the oldest go first.
const KEPT: usize = 100;

impl Attempts {
    /// The notes in a folder, which is made with the first one.
    pub(super) fn of(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Whether the node has ended at a question before, in a panic or again and again.
    pub(crate) fn is_hopeless(&self, content: &str) -> bool {
        let note = read(&self.folder.join(content));
        note.panicked || note.begun >= MOST
    }

    /// Notes that work on a question begins. The id must be one.
    pub(crate) fn begin(&self, content: &str) -> Result<Attempt> {
        fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "create it"))?;
        self.forget_oldest();
        let path = self.folder.join(content);
        let note = Note { begun: read(&path).begun + 1, panicked: false };
        write(&path, note)?;
        watch(Some(&path));
        Ok(Attempt { path, note })
    }

    /// Forgets a question, which has been answered.
    pub(crate) fn forget(&self, content: &str) {
        let _ = fs::remove_file(self.folder.join(content));
    }

    fn forget_oldest(&self) {
        let mut notes: Vec<PathBuf> =
            fs::read_dir(&self.folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        notes.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        for old in &notes[..notes.len().saturating_sub(KEPT)] {
            let _ = fs::remove_file(old);
        }
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        watch(None);
        if thread::panicking() {
            let _ = write(&self.path, Note { panicked: true, ..self.note });
        } else {
            // Answered or refused: a note that remains does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A note that is not there or damaged says nothing.
fn read(path: &Path) -> Note {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write(path: &Path, note: Note) -> Result<()> {
    Ok(write_atomically(path, &serde_json::to_vec(&note).expect("plain values can be written to memory"))?)
}

/// The note of the question at work.
static AT_WORK: Mutex<Option<PathBuf>> = Mutex::new(None);

/// In a program that does not unwind (`panic = "abort"`) nothing is dropped, and only the panic's hook can still take a note.
fn watch(path: Option<&Path>) {
    static HOOKED: Once = Once::new();
    if !cfg!(panic = "abort") {
        return;
    }
    *AT_WORK.lock().unwrap_or_else(PoisonError::into_inner) = path.map(Path::to_owned);
    HOOKED.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            note_panic();
            usual(info);
        }));
    });
}

fn note_panic() {
    let at_work = AT_WORK.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(path) = at_work {
        let _ = write(&path, Note { panicked: true, ..read(&path) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts() -> (tempfile::TempDir, Attempts) {
        let folder = tempfile::tempdir().expect("a folder");
        let attempts = Attempts::of(folder.path().join("attempts"));
        (folder, attempts)
    }

    fn names(attempts: &Attempts) -> usize {
        fs::read_dir(&attempts.folder).map_or(0, Iterator::count)
    }

    #[test]
    fn what_ends_well_leaves_nothing() {
        let (_folder, attempts) = attempts();
        drop(attempts.begin("q").expect("noted"));
        assert!(!attempts.is_hopeless("q") && names(&attempts) == 0);
    }

    #[test]
    fn a_panic_is_remembered_and_others_are_not_blamed() {
        let (_folder, attempts) = attempts();
        let ended = panic::catch_unwind(|| {
            let _attempt = attempts.begin("q").expect("noted");
            panic!("the work failed");
        });
        assert!(ended.is_err() && attempts.is_hopeless("q") && !attempts.is_hopeless("r"));
        attempts.forget("q");
        assert!(!attempts.is_hopeless("q"));
    }

    #[test]
    fn without_unwinding_the_hook_takes_the_note() {
        let (_folder, attempts) = attempts();
        let attempt = attempts.begin("q").expect("noted");
        *AT_WORK.lock().expect("free") = Some(attempt.path.clone());
        note_panic();
        assert!(attempts.is_hopeless("q"));
        std::mem::forget(attempt);
    }

    #[test]
    fn power_cuts_are_forgiven_but_not_for_ever() {
        let (_folder, attempts) = attempts();
        for number in 0..MOST {
            assert!(!attempts.is_hopeless("q"), "{number}");
            // As a process leaves it that is killed.
            std::mem::forget(attempts.begin("q").expect("noted"));
        }
        assert!(attempts.is_hopeless("q"));
    }

    #[test]
    fn notes_do_not_pile_up_and_damaged_ones_blame_nobody() {
        let (_folder, attempts) = attempts();
        for number in 0..2 * KEPT {
            std::mem::forget(attempts.begin(&number.to_string()).expect("noted"));
        }
        assert!(names(&attempts) <= KEPT + 1, "{}", names(&attempts));
        fs::write(attempts.folder.join("q"), "{").expect("writable");
        assert!(!attempts.is_hopeless("q"));
    }
}
