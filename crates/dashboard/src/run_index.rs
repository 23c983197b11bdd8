//! Follows all runs below a folder, for all who watch them.
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::Semaphore;

use super::point::{EvaluationPoint, QualityPoint, RoundPoint, TimingPoint};
use super::refusal::RequestRefusal;
use super::run_view::{RunInfo, RunView, Story};
use super::start::Starts;
use super::thinned::Thinned;
use fedeq_run::run::{Activity, ControlCommand, FileAccess, Links, RunFolder, RunState, Timing, runs_below};

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

/// A run in the list of runs.
#[derive(Serialize)]
pub(super) struct RunRow {
    run: String,
    state: RunState,
    problem: Option<String>,
    info: Option<RunInfo>,
    round: u64,
    /// The accuracy of clients with their own models, and with the shared part as the server has it: methods are looked at in the same way.
    local: Option<QualityPoint>,
    shared: Option<QualityPoint>,
    seconds_left: Option<f64>,
    /// Whether it was resumed from here, and its process lives.
    started: bool,
    /// Why it could not be resumed from here.
    trouble: Option<String>,
}

/// How much of a run somebody has been told.
#[derive(Clone, Copy, Default, PartialEq)]
pub(super) struct Cursor {
    begun: bool,
    edition: u64,
    rounds: Told,
    evaluations: Told,
    timings: Told,
}

/// How much of a curve somebody has been told.
#[derive(Clone, Copy, Default, PartialEq)]
struct Told {
    kept: usize,
    seen: u64,
}

/// What has been added to a run since.
#[derive(Serialize)]
pub(super) struct News {
    run: String,
    /// Whether this replaces everything told before.
    anew: bool,
    rounds: Vec<RoundPoint>,
    evaluations: Vec<EvaluationPoint>,
    timings: Vec<TimingPoint>,
    /// The last points of curves that are too long to be told point by point; they hold until there are others.
    tail: TailNews,
    totals: Timing,
    activity: Option<Activity>,
    /// Whether anything was added.
    #[serde(skip)]
    has_grown: bool,
}

/// Where the curves end, each where that is not among the points that were told.
#[derive(Serialize)]
struct TailNews {
    rounds: Option<RoundPoint>,
    evaluations: Option<EvaluationPoint>,
    timings: Option<TimingPoint>,
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
    pub(super) fn new(root: PathBuf, program: PathBuf, patience: Duration) -> Self {
        let known = Known { runs: BTreeMap::new(), starts: Starts::new(program), looked: None };
        Self { root, readers: Semaphore::new(READERS), patience, known: Mutex::new(known) }
    }

    /// All runs.
    pub(super) fn rows(&self) -> Vec<RunRow> {
        let known = self.up_to_date();
        known.runs.iter().map(|(run, view)| known.row(run, view)).collect()
    }

    /// What is new about a run for somebody who has been told so much; moves the cursor. Nothing if there is no such run.
    pub(super) fn news(&self, run: &str, cursor: &mut Cursor) -> Option<News> {
        let known = self.up_to_date();
        let view = known.runs.get(run)?;
        let anew = !cursor.begun || cursor.edition != view.edition();
        let told = if anew { Cursor::default() } else { *cursor };
        let now = Cursor::at(view);
        *cursor = now;
        let Story { rounds, evaluations, timings, totals, .. } = &view.story;
        Some(News {
            run: run.to_owned(),
            anew,
            rounds: rounds.kept()[told.rounds.kept..].to_vec(),
            evaluations: evaluations.kept()[told.evaluations.kept..].to_vec(),
            timings: timings.kept()[told.timings.kept..].to_vec(),
            tail: TailNews {
                rounds: rounds.tail().cloned(),
                evaluations: evaluations.tail().cloned(),
                timings: timings.tail().cloned(),
            },
            totals: totals.clone(),
            activity: view.activity.clone(),
            has_grown: anew || told != now,
        })
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
            self.runs.entry(run).or_insert_with(|| RunView::new(path, access.clone())).look();
        }
        self.starts.look();
    }

    fn row(&self, run: &str, view: &RunView) -> RunRow {
        let evaluation = view.evaluation();
        RunRow {
            run: run.to_owned(),
            state: view.state,
            problem: view.problem.clone(),
            info: view.info.clone(),
            round: view.round(),
            local: evaluation.map(|evaluation| evaluation.local.clone()),
            shared: evaluation.and_then(|evaluation| evaluation.shared.clone()),
            seconds_left: view.seconds_left(),
            started: self.starts.is_under_way(run),
            trouble: self.starts.trouble(run).map(str::to_owned),
        }
    }
}

impl Cursor {
    fn at(view: &RunView) -> Self {
        Self {
            begun: true,
            edition: view.edition(),
            rounds: Told::of(&view.story.rounds),
            evaluations: Told::of(&view.story.evaluations),
            timings: Told::of(&view.story.timings),
        }
    }
}

impl Told {
    fn of<P>(curve: &Thinned<P>) -> Self {
        Self { kept: curve.kept().len(), seen: curve.seen() }
    }
}

impl News {
    /// Who is at work, less the beat that only tells that somebody is.
    pub(super) fn activity(&self) -> Option<Activity> {
        self.activity.clone().map(|activity| Activity { beat: 0, ..activity })
    }

    /// Whether there is anything in it beside who is at work.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_grown
    }
}
