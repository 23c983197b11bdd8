//! Requests at which the node failed before it could reply.
//!
//! A node that is started again finds the request it was working on and starts over, which is right after a power cut. But a request that crashes the node
//! would crash it every time. So the node records that work begins, and how it ended if it ended badly; the same request, in whatever message, is then refused.
//!
//! A panic is recorded, and once is enough. A process that is killed (by hand, for lack of memory, by an abort, by a stack that overflows) records nothing, and leaves
//! what a power cut leaves: work that has begun and not ended. Its owner says how many such ends a request may have ([`NodeLimits::deaths`](crate::limit::NodeLimits)).
//!
//! Whether work fails may depend on the data: with weights chosen for it, training diverges if a sample is beyond a bound and not otherwise. So it is also counted how often work on the same
//! task of the same round has ended badly, with whatever weights: a server must not find the bound by asking again and again.
use std::collections::BTreeMap;
use std::fs;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use fedeq_core::{ClientTask, fingerprint, write_atomically};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A folder of records, one for each request at work, named by the id of its content.
pub(crate) struct Attempts {
    folder: PathBuf,
    /// How often work on a request has failed with an error, since the node was started: its owner may have put it right before that.
    failures: Mutex<BTreeMap<String, u32>>,
    activity: Arc<CurrentWork>,
}

/// The request that a node works on, for its guard.
#[derive(Debug, Default)]
pub struct CurrentWork {
    at_work: Mutex<Option<AtWork>>,
}

#[derive(Debug)]
struct AtWork {
    path: PathBuf,
    record: AttemptRecord,
    place: PathBuf,
    tries: Tries,
    since: Instant,
}

/// What a request asks for, whatever its weights are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestPlace<'a> {
    pub(crate) federation: &'a str,
    pub(crate) task: ClientTask,
    pub(crate) round: u64,
}

impl RequestPlace<'_> {
    /// The file of its tries. Names of federations come from servers.
    fn file(&self) -> String {
        format!("{TRIES}{}-{}", self.task.name(), fingerprint(self.federation.as_bytes()))
    }
}

/// Work on a task that ended badly, or has not ended, in the latest round for which the task was tried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tries {
    round: u64,
    times: u32,
}

impl Tries {
    fn begun(self, round: u64) -> Self {
        Self { round, times: if round == self.round { self.times.saturating_add(1) } else { 1 } }
    }

    /// Without the latest, which says nothing about the task.
    fn taken_back(self) -> Self {
        Self { times: self.times.saturating_sub(1), ..self }
    }
}

/// What is known of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AttemptRecord {
    /// How often work on it has begun. All but the last time the process ended without a word.
    begun: u32,
    /// Whether work on it ended in a panic.
    panicked: bool,
    /// Why work on it was given up: it took too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    abandoned: Option<String>,
}

/// Why a request is not tried again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The node panicked on it.
    Crashed,
    /// So often the process ended while it worked on it, for an unknown reason.
    Died(u32),
    /// It took too much, for this reason.
    Abandoned(String),
    /// It failed twice.
    Failed,
    /// Its task has been tried too often in this round, with whatever weights, or in a later round; this file counts it.
    Tried(String),
}

/// Work that has begun; records a panic if there is one.
pub(crate) struct Attempt<'a> {
    attempts: &'a Attempts,
    content: String,
    path: PathBuf,
    record: AttemptRecord,
    place: PathBuf,
    tries: Tries,
}

/// Work that fails so often is not tried again.
const MOST_FAILURES: u32 = 2;
/// So many tries of a task in a round may end badly beside the deaths that one request may have.
const MOST_TRIES: u32 = 5;
/// What files of tries begin with.
const TRIES: &str = "tries-";
/// Records that are kept; the oldest are removed first.
const KEPT: usize = 100;

impl Attempts {
    /// The records in a folder, which is created with the first one.
    pub(super) fn in_folder(folder: PathBuf) -> Self {
        Self { folder, failures: Mutex::default(), activity: Arc::default() }
    }

    /// The request at work.
    pub(super) fn activity(&self) -> Arc<CurrentWork> {
        Arc::clone(&self.activity)
    }

    /// Why a request is not tried again, if it is not. The process may have ended so often while it worked on it.
    pub(crate) fn verdict(&self, content: &str, place: &RequestPlace<'_>, most_deaths: u32) -> Option<Verdict> {
        let AttemptRecord { begun, panicked, abandoned } = read(&self.folder.join(content));
        if panicked {
            return Some(Verdict::Crashed);
        }
        let has_died = || (begun >= most_deaths).then_some(Verdict::Died(begun));
        let has_failed = || lock(&self.failures).get(content).is_some_and(|times| *times >= MOST_FAILURES);
        let is_tried = || {
            let Tries { round, times } = read(&self.folder.join(place.file()));
            let is_over = place.round < round || (place.round == round && times >= most_deaths.saturating_add(MOST_TRIES));
            // Messages of secure aggregation have no weights to choose.
            (is_over && place.task != ClientTask::Aggregate).then(|| Verdict::Tried(place.file()))
        };
        let has_failed = || has_failed().then_some(Verdict::Failed);
        abandoned.map(Verdict::Abandoned).or_else(has_died).or_else(has_failed).or_else(is_tried)
    }

    /// Records that work on a request begins. The id must be well formed.
    pub(crate) fn begin(&self, content: &str, place: &RequestPlace<'_>) -> Result<Attempt<'_>> {
        fs::create_dir_all(&self.folder).map_err(Error::file(&self.folder, "create it"))?;
        self.remove_oldest();
        let (path, round, place) = (self.folder.join(content), place.round, self.folder.join(place.file()));
        let record = AttemptRecord { begun: read::<AttemptRecord>(&path).begun + 1, ..AttemptRecord::default() };
        let tries = read::<Tries>(&place).begun(round);
        write(&place, &tries)?;
        write(&path, &record)?;
        let (work, since) = (record.clone(), Instant::now());
        self.activity.begin(AtWork { path: path.clone(), record: work, place: place.clone(), tries, since });
        Ok(Attempt { attempts: self, content: content.to_owned(), path, record, place, tries })
    }

    /// Forgets a request that has been replied to.
    pub(crate) fn forget(&self, content: &str) {
        let _ = fs::remove_file(self.folder.join(content));
        lock(&self.failures).remove(content);
    }

    fn remove_oldest(&self) {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        // What was tried is counted as long as the federation may continue; there are few federations.
        let records = entries.filter(|entry| !entry.file_name().to_string_lossy().starts_with(TRIES));
        let mut records: Vec<PathBuf> = records.map(|entry| entry.path()).collect();
        records.sort_by_key(|path| fs::metadata(path).and_then(|file| file.modified()).ok());
        for old in &records[..records.len().saturating_sub(KEPT)] {
            let _ = fs::remove_file(old);
        }
    }
}

impl Attempt<'_> {
    /// The work was done.
    pub(crate) fn succeeded(self) {
        let _ = write(&self.place, &self.tries.taken_back());
    }

    /// The work failed with an error.
    pub(crate) fn failed(self) {
        let mut failures = lock(&self.attempts.failures);
        if failures.len() >= KEPT {
            failures.clear();
        }
        *failures.entry(self.content.clone()).or_default() += 1;
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.attempts.activity.end();
        if thread::panicking() {
            let _ = write(&self.path, &AttemptRecord { panicked: true, ..self.record.clone() });
        } else {
            // Replied to or refused: a record that remains does no harm.
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl CurrentWork {
    /// How long the node has worked on its request; nothing while it works on none.
    pub fn elapsed(&self) -> Option<Duration> {
        lock(&self.at_work).as_ref().map(|work| work.since.elapsed())
    }

    /// Records that the request at work takes too much, just before the process ends: it is not tried again.
    pub fn abandon(&self, reason: &str) {
        self.conclude(|record| AttemptRecord { abandoned: Some(reason.to_owned()), ..record });
    }

    /// Records that the request at work ended in a panic.
    pub fn panicked(&self) {
        self.conclude(|record| AttemptRecord { panicked: true, ..record });
    }

    /// Records that the process ends since it was told to, which says nothing about the request at work.
    pub fn interrupted(&self) {
        if let Some(AtWork { place, tries, .. }) = &*lock(&self.at_work) {
            let _ = write(place, &tries.taken_back());
        }
        self.conclude(|record| AttemptRecord { begun: record.begun.saturating_sub(1), ..record });
    }

    fn conclude(&self, change: impl FnOnce(AttemptRecord) -> AttemptRecord) {
        if let Some(work) = lock(&self.at_work).take() {
            // No one is left to tell.
            let _ = write(&work.path, &change(work.record));
        }
    }

    fn begin(self: &Arc<Self>, work: AtWork) {
        *lock(&self.at_work) = Some(work);
        self.record_panics();
    }

    fn end(&self) {
        lock(&self.at_work).take();
    }

    /// In a program that does not unwind (`panic = "abort"`) nothing is dropped, and only the panic hook can still write the record.
    fn record_panics(self: &Arc<Self>) {
        static HOOKED: Once = Once::new();
        if !cfg!(panic = "abort") {
            return;
        }
        let activity = Arc::clone(self);
        HOOKED.call_once(|| {
            let usual = panic::take_hook();
            panic::set_hook(Box::new(move |info| {
                activity.panicked();
                usual(info);
            }));
        });
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The record in a file; a missing or damaged one counts as no attempt.
fn read<Record: DeserializeOwned + Default>(path: &Path) -> Record {
    fs::read(path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default()
}

fn write<Record: Serialize>(path: &Path, record: &Record) -> Result<()> {
    Ok(write_atomically(path, &serde_json::to_vec(record).expect("plain values can be written to memory"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempts() -> (tempfile::TempDir, Attempts) {
        let folder = tempfile::tempdir().expect("a folder");
        let attempts = Attempts::in_folder(folder.path().join("attempts"));
        (folder, attempts)
    }

    const MOST: u32 = 3;

    /// Training in a round.
    fn place(round: u64) -> RequestPlace<'static> {
        RequestPlace { federation: "f", task: ClientTask::Train, round }
    }

    fn verdict(attempts: &Attempts, content: &str) -> Option<Verdict> {
        attempts.verdict(content, &place(0), MOST)
    }

    fn begin<'a>(attempts: &'a Attempts, content: &str) -> Attempt<'a> {
        attempts.begin(content, &place(0)).expect("recorded")
    }

    fn names(attempts: &Attempts) -> usize {
        let names = fs::read_dir(&attempts.folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        names.filter(|name| !name.to_string_lossy().starts_with(TRIES)).count()
    }

    #[test]
    fn work_that_succeeds_leaves_no_record() {
        let (_folder, attempts) = attempts();
        drop(begin(&attempts, "q"));
        assert!(verdict(&attempts, "q").is_none() && names(&attempts) == 0);
        assert_eq!(attempts.activity.elapsed(), None);
    }

    #[test]
    fn a_panic_is_recorded_for_its_request_only() {
        let (_folder, attempts) = attempts();
        let ended = panic::catch_unwind(panic::AssertUnwindSafe(|| {
            let _attempt = begin(&attempts, "q");
            panic!("the work failed");
        }));
        assert!(ended.is_err() && verdict(&attempts, "q") == Some(Verdict::Crashed) && verdict(&attempts, "r").is_none());
        attempts.forget("q");
        assert_eq!(verdict(&attempts, "q"), None);
    }

    #[test]
    fn without_unwinding_the_panic_hook_writes_the_record() {
        let (_folder, attempts) = attempts();
        let attempt = begin(&attempts, "q");
        attempts.activity().panicked();
        assert_eq!(verdict(&attempts, "q"), Some(Verdict::Crashed));
        std::mem::forget(attempt);
    }

    #[test]
    fn a_request_is_retried_after_power_cuts_but_not_for_ever() {
        let (_folder, attempts) = attempts();
        for number in 0..MOST {
            assert!(verdict(&attempts, "q").is_none(), "{number}");
            // Like a process that is killed.
            std::mem::forget(begin(&attempts, "q"));
        }
        assert_eq!(verdict(&attempts, "q"), Some(Verdict::Died(MOST)));
        assert_eq!(attempts.verdict("q", &place(0), MOST + 1), None, "its owner may allow more");
    }

    #[test]
    fn a_request_that_fails_twice_is_not_tried_again_before_the_node_is_started_again() {
        let (_folder, attempts) = attempts();
        for _ in 0..MOST_FAILURES {
            assert_eq!(verdict(&attempts, "q"), None);
            begin(&attempts, "q").failed();
        }
        assert_eq!((verdict(&attempts, "q"), verdict(&attempts, "r")), (Some(Verdict::Failed), None));
        assert_eq!(verdict(&Attempts::in_folder(attempts.folder.clone()), "q"), None);
    }

    #[test]
    fn a_request_that_takes_too_much_is_not_tried_again_at_all() {
        let (_folder, attempts) = attempts();
        let attempt = begin(&attempts, "q");
        assert!(attempts.activity().elapsed().is_some());
        attempts.activity().abandon("it took an hour");
        std::mem::forget(attempt);
        let again = Attempts::in_folder(attempts.folder.clone());
        assert_eq!(verdict(&again, "q"), Some(Verdict::Abandoned("it took an hour".into())));
    }

    #[test]
    fn an_interruption_says_nothing_about_the_request() {
        let (_folder, attempts) = attempts();
        for _ in 0..2 * MOST {
            std::mem::forget(begin(&attempts, "q"));
            attempts.activity().interrupted();
        }
        assert_eq!(verdict(&attempts, "q"), None);
    }

    #[test]
    fn old_records_are_removed_and_damaged_ones_do_not_count() {
        let (_folder, attempts) = attempts();
        for number in 0..2 * KEPT {
            std::mem::forget(begin(&attempts, &number.to_string()));
        }
        assert!(names(&attempts) <= KEPT + 1, "{}", names(&attempts));
        fs::write(attempts.folder.join("q"), "{").expect("writable");
        assert_eq!(verdict(&attempts, "q"), Some(Verdict::Tried(place(0).file())), "the task is another record");
        assert_eq!(attempts.verdict("q", &place(1), MOST), None);
        fs::write(attempts.folder.join(place(0).file()), "{").expect("writable");
        assert_eq!(verdict(&attempts, "q"), None);
    }

    #[test]
    fn a_task_that_ends_badly_is_not_tried_with_ever_other_weights() {
        let (_folder, attempts) = attempts();
        let may = |content: &str, round| attempts.verdict(content, &place(round), MOST).is_none();
        let most = MOST + MOST_TRIES;
        for number in 0..most {
            let content = format!("q{number}");
            assert!(may(&content, 4), "{number}");
            let attempt = attempts.begin(&content, &place(4)).expect("recorded");
            // It fails, it takes too much, or the process is killed.
            match number % 3 {
                0 => attempt.failed(),
                1 => attempts.activity().abandon("an hour"),
                _ => std::mem::forget(attempt),
            }
        }
        assert_eq!([3, 4, 5].map(|round| may("another", round)), [false, false, true]);
        let again = Attempts::in_folder(attempts.folder.clone());
        let file = place(4).file();
        assert_eq!(again.verdict("another", &place(4), MOST), Some(Verdict::Tried(file.clone())));
        let evaluation = RequestPlace { task: ClientTask::Evaluate, ..place(4) };
        assert_eq!(again.verdict("another", &evaluation, MOST), None, "another task");
        assert_eq!(again.verdict("another", &RequestPlace { federation: "g", ..place(4) }, MOST), None);
        fs::remove_file(attempts.folder.join(file)).expect("by its owner");
        assert!(may("another", 4));
    }

    #[test]
    fn work_that_succeeds_or_is_stopped_does_not_count_as_a_try() {
        let (_folder, attempts) = attempts();
        for number in 0..3 * (MOST + MOST_TRIES) {
            let content = format!("q{number}");
            assert_eq!(verdict(&attempts, &content), None, "{number}");
            let attempt = begin(&attempts, &content);
            if number % 2 == 0 {
                attempt.succeeded();
            } else {
                attempts.activity().interrupted();
                std::mem::forget(attempt);
            }
        }
    }
}
