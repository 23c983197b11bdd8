//! Follows all runs below a folder, for all who watch them.
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Semaphore;

use super::refusal::RequestRefusal;
use super::start::Starts;
use fedeq_run::run::{ControlCommand, FileAccess, Links, RunFolder, RunState, runs_below};
use fedeq_viewer::news::{Cursor, News};
use fedeq_viewer::{RunRow, RunView};

/// Folders are not read more often than this, however many look.
const PATIENCE: Duration = Duration::from_millis(300);

/// Whole journals are read by so many at a time.
const READERS: usize = 2;

/// Knows the runs below a folder.
pub(super) struct RunIndex {
    root: PathBuf,
    /// Whose turn it is to read whole journals.
    pub(super) readers: Semaphore,
    /// How long a connection may say nothing, or listen to nothing.
    pub(super) patience: Duration,
    known: Mutex<Known>,
}

struct Known {
    runs: BTreeMap<String, RunView>,
    starts: Starts,
    looked: Option<Instant>,
}

/// A run in the list of runs, and what was done about it from here.
#[derive(Serialize)]
pub(super) struct ServedRow {
    #[serde(flatten)]
    row: RunRow,
    /// Whether it was resumed from here, and its process lives.
    started: bool,
    /// Why it could not be resumed from here.
    trouble: Option<String>,
}

/// What somebody wants to happen to a run.
#[derive(Clone, Copy, Debug, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Action {
    Pause,
    Resume,
    Stop,
}

impl RunIndex {
    pub(super) fn new(root: PathBuf, program: Vec<OsString>, patience: Duration) -> Self {
        let known = Known { runs: BTreeMap::new(), starts: Starts::new(program), looked: None };
        Self { root, readers: Semaphore::new(READERS), patience, known: Mutex::new(known) }
    }

    /// All runs.
    pub(super) fn rows(&self) -> Vec<ServedRow> {
        let known = self.up_to_date();
        known.runs.iter().map(|(run, view)| known.row(run, view)).collect()
    }

    /// The names of all runs.
    pub(super) fn names(&self) -> Vec<String> {
        self.up_to_date().runs.keys().cloned().collect()
    }

    /// Reads everything before somebody asks. Whoever asks first looks again, for runs that have begun since.
    pub(super) fn read_ahead(&self) {
        self.up_to_date().looked = None;
    }

    /// What is new about a run for somebody who has been told so much, with at most so many points a journal. Nothing if there is no such run.
    pub(super) fn news(&self, run: &str, points: usize, cursor: &mut Cursor) -> Option<News> {
        let known = self.up_to_date();
        known.runs.get(run).map(|view| News::of(run, view, points, cursor))
    }

    /// The folder of a run. Only what was found below the root has a name, so no name leads out of it.
    pub(super) fn folder(&self, run: &str) -> Result<RunFolder, RequestRefusal> {
        let known = self.up_to_date();
        known.runs.get(run).map(|view| view.folder.clone()).ok_or_else(|| RequestRefusal::unknown(run))
    }

    /// Does something about a run, where that makes sense.
    pub(super) fn act(&self, run: &str, action: Action) -> Result<(), RequestRefusal> {
        let mut known = self.up_to_date();
        let Known { runs, starts, looked } = &mut *known;
        let view = runs.get(run).ok_or_else(|| RequestRefusal::unknown(run))?;
        let folder = &view.folder;
        let leave = |command: ControlCommand| folder.leave_command(command).map_err(RequestRefusal::from);
        match (action, view.state) {
            (Action::Pause, RunState::Running) => leave(ControlCommand::Pause),
            (Action::Resume, RunState::Paused | RunState::Running) => leave(ControlCommand::Continue),
            (Action::Resume, RunState::Stopped | RunState::Killed | RunState::Failed) => starts
                .resume(run, folder.path())
                .map_err(|error| RequestRefusal::failed(format!("cannot start `fedeq`: {error}"))),
            (Action::Stop, RunState::Running | RunState::Paused) => leave(ControlCommand::Stop),
            (_, state) => Err(RequestRefusal::out_of_place(run, state)),
        }?;
        *looked = None;
        Ok(())
    }

    fn up_to_date(&self) -> MutexGuard<'_, Known> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.looked.is_none_or(|looked| looked.elapsed() >= PATIENCE) {
            known.look(runs_below(&self.root, Links::PassedOver), &FileAccess::below(&self.root));
            known.looked = Some(Instant::now());
        }
        known
    }
}

impl Known {
    fn look(&mut self, found: BTreeMap<String, PathBuf>, access: &FileAccess) {
        self.runs.retain(|run, _| found.contains_key(run));
        for (run, path) in found {
            self.runs.entry(run).or_insert_with(|| RunView::new(path, access.clone()));
        }
        look_at_all(self.runs.values_mut().collect());
        self.starts.look();
    }

    fn row(&self, run: &str, view: &RunView) -> ServedRow {
        let trouble = self.starts.trouble(run).map(str::to_owned);
        ServedRow { row: view.row(run), started: self.starts.is_under_way(run), trouble }
    }
}

/// Reads what is new of all runs, on a few threads: at first that is all journals of all runs.
fn look_at_all(mut views: Vec<&mut RunView>) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS);
    let share = views.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        for views in views.chunks_mut(share) {
            scope.spawn(|| views.iter_mut().for_each(|view| view.look()));
        }
    });
}

/// A dashboard beside runs at work leaves them their cores.
const MOST_THREADS: usize = 4;
