//! What is known of a run: read once, and added to while the run continues.
use std::path::PathBuf;

use fedeq_core::Result;
use fedeq_run::run::{Activity, FileAccess, Heartbeat, RunFolder, RunState, Tail};
use serde::Serialize;

use super::curves::{Curves, LastEvaluation};
use super::evaluation_line::QualityPoint;
use super::run_info::{RunInfo, written};

/// A run in a list of runs.
#[derive(Clone, Debug, Serialize)]
pub struct RunRow {
    /// By which it is known: its path below the folder that is shown.
    pub run: String,
    /// How it stands.
    pub state: RunState,
    /// Why it cannot be read.
    pub problem: Option<String>,
    /// What its experiment says.
    pub info: Option<RunInfo>,
    /// Rounds that are over.
    pub round: u64,
    /// After how many rounds clients were last evaluated.
    pub evaluated: Option<u64>,
    /// The accuracy of clients with their own models, and with the shared part as the server has it: methods are looked at in the same way. Nothing where no client
    /// tells its score.
    pub local: Option<QualityPoint>,
    /// The same of the shared model, where anything is shared.
    pub shared: Option<QualityPoint>,
    /// Whether there is a shared model: else the only one is the client's own.
    pub shares: bool,
    /// Bytes sent in both directions before the last evaluation.
    pub sent: Option<u64>,
    /// Seconds of training and evaluation so far.
    pub seconds: f64,
    /// The most memory its process held.
    pub memory: Option<u64>,
    /// Seconds that are left if it continues as in its last rounds.
    pub seconds_left: Option<f64>,
    /// When something was last written, in seconds since 1970.
    pub changed: Option<u64>,
}

/// What is known of a run so far.
pub struct RunView {
    /// Its folder.
    pub folder: RunFolder,
    /// How it stands.
    pub state: RunState,
    /// Why it cannot be read.
    pub problem: Option<String>,
    pub(crate) info: Option<RunInfo>,
    /// Grows whenever everything is read from the beginning.
    beginnings: u64,
    pub(crate) curves: Curves,
    pub(crate) activity: Option<Activity>,
    tails: [Tail; 3],
    /// Whether the summary of a finished run has been read.
    is_summed_up: bool,
    pid: Option<u32>,
    heartbeat: Heartbeat,
}

impl RunView {
    /// A run of which nothing is known yet.
    pub fn new(path: PathBuf, access: FileAccess) -> Self {
        let folder = RunFolder::at(path).within(access);
        Self {
            tails: folder.tails(),
            folder,
            state: RunState::Malformed,
            problem: None,
            info: None,
            beginnings: 0,
            curves: Curves::default(),
            activity: None,
            is_summed_up: false,
            pid: None,
            heartbeat: Heartbeat::default(),
        }
    }

    /// A run that is looked at once, by whoever has found out how it stands.
    pub fn once(path: PathBuf, state: RunState) -> Self {
        let mut view = Self::new(path, FileAccess::Anywhere);
        view.look();
        if view.problem.is_none() {
            view.state = state;
        }
        view
    }

    /// Reads what is new.
    pub fn look(&mut self) {
        let was_sound = self.problem.is_none() && self.pid.is_some();
        let mut outcome = self.read();
        if outcome.is_err() && was_sound {
            // A run that was resumed continues from its last checkpoint: some of what was read is no longer there.
            self.start_over();
            outcome = self.read();
        }
        self.problem = outcome.err().map(|error| error.to_string());
        if self.problem.is_some() {
            self.state = RunState::Malformed;
        }
    }

    fn read(&mut self) -> Result<()> {
        if self.info.is_none() {
            self.info = Some(RunInfo::of(&self.folder)?);
        }
        let status = self.folder.status()?;
        if self.pid.replace(status.pid).is_some_and(|before| before != status.pid) {
            self.start_over();
            self.info = Some(RunInfo::of(&self.folder)?);
        }
        self.curves.go_on(&mut self.tails)?;
        self.activity = self.folder.activity();
        self.state = self.folder.watched_state(&mut self.heartbeat, self.activity.as_ref())?;
        if self.state == RunState::Finished && !self.is_summed_up {
            // What came out at the very end, which some methods have a last step for.
            self.curves.last =
                self.folder.summary()?.map(|summary| LastEvaluation::of(&summary.evaluation)).or(self.curves.last.take());
            self.is_summed_up = true;
        }
        Ok(())
    }

    fn start_over(&mut self) {
        self.beginnings = self.edition() + 1;
        self.tails = self.folder.tails();
        self.curves = Curves::default();
        self.is_summed_up = false;
    }

    /// Grows whenever what was told before no longer holds: everything was read from the beginning, or a curve was thinned out.
    pub(crate) fn edition(&self) -> u64 {
        self.beginnings + self.curves.thinned
    }

    /// Seconds that are left if it continues as in its last rounds.
    fn seconds_left(&self) -> Option<f64> {
        let left = self.info.as_ref()?.rounds().saturating_sub(self.curves.round());
        self.curves.seconds_a_round().filter(|_| self.state.is_alive()).map(|seconds| seconds * left as f64)
    }

    /// It as a row of a list, under some name.
    pub fn row(&self, run: &str) -> RunRow {
        let last = self.curves.last.as_ref();
        let totals = &self.curves.totals;
        let changed =
            ["status.json", "summary.json", "rounds.jsonl"].iter().filter_map(|name| written(&self.folder.path().join(name)));
        RunRow {
            run: run.to_owned(),
            state: self.state,
            problem: self.problem.clone(),
            info: self.info.clone(),
            round: self.curves.round(),
            evaluated: last.map(|last| last.round),
            local: last.and_then(|last| last.local.clone()),
            shared: last.and_then(|last| last.shared.clone()),
            shares: last.is_some_and(|last| last.shares),
            sent: last.map(|last| last.sent),
            seconds: totals.seconds(),
            memory: totals.peak_memory,
            seconds_left: self.seconds_left(),
            changed: changed.max(),
        }
    }
}
