//! What is known of a run: read once, and added to while the run continues.
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fedeq_core::{Evaluation, Result, Round, View};
use serde::Serialize;

use super::point::{EvaluationPoint, RoundPoint, TimingPoint};
use super::thinned::Thinned;
use fedeq_run::preset::Preset;
use fedeq_run::run::{Activity, FileAccess, RunFolder, RunState, Tail, Timing};

/// What an experiment says that people want to see at a glance.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RunInfo {
    method: &'static str,
    data: &'static str,
    model: &'static str,
    preset: Preset,
    seed: u64,
    rounds: u64,
    headline: View,
    /// What it is computed on.
    device: String,
}

/// A run's story so far.
pub(super) struct RunView {
    pub(super) folder: RunFolder,
    pub(super) state: RunState,
    /// Why it cannot be read.
    pub(super) problem: Option<String>,
    pub(super) info: Option<RunInfo>,
    /// Grows whenever everything is read from the beginning.
    beginnings: u64,
    pub(super) story: Story,
    pub(super) activity: Option<Activity>,
    tails: [Tail; 3],
    pid: Option<u32>,
    heartbeat: Heartbeat,
}

/// What the journals say.
#[derive(Default)]
pub(super) struct Story {
    pub(super) rounds: Thinned<RoundPoint>,
    pub(super) evaluations: Thinned<EvaluationPoint>,
    pub(super) timings: Thinned<TimingPoint>,
    pub(super) totals: Timing,
    /// How often a curve was thinned out.
    thinned: u64,
    /// Seconds of the last rounds.
    last_seconds: VecDeque<f64>,
}

/// How one can tell that a process lives.
#[derive(Default)]
struct Heartbeat {
    /// Locks work on this disk: one was seen.
    lock_seen: bool,
    beat: Option<u64>,
    /// When the beat was last seen to change.
    beaten: Option<Instant>,
}

/// A process on another machine's disk that has not moved for so long is dead.
const SILENCE: Duration = Duration::from_secs(10);

impl RunView {
    /// A run of which nothing is known yet.
    pub(super) fn new(path: PathBuf, access: FileAccess) -> Self {
        let folder = RunFolder::at(path).within(access);
        Self {
            tails: folder.tails(),
            folder,
            state: RunState::Malformed,
            problem: None,
            info: None,
            beginnings: 0,
            story: Story::default(),
            activity: None,
            pid: None,
            heartbeat: Heartbeat::default(),
        }
    }

    /// Reads what is new.
    pub(super) fn look(&mut self) {
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
        self.story.go_on(&mut self.tails)?;
        self.activity = self.folder.activity();
        let (folder, activity, heartbeat) = (&self.folder, self.activity.as_ref(), &mut self.heartbeat);
        self.state = folder.state_if(|| heartbeat.is_alive(folder, activity))?;
        Ok(())
    }

    fn start_over(&mut self) {
        self.beginnings = self.edition() + 1;
        self.tails = self.folder.tails();
        self.story = Story::default();
    }

    /// Grows whenever what was told before no longer holds: everything was read from the beginning, or a curve was thinned out.
    pub(super) fn edition(&self) -> u64 {
        self.beginnings + self.story.thinned
    }

    /// Rounds that are over.
    pub(super) fn round(&self) -> u64 {
        self.story.rounds.last().map_or(0, RoundPoint::round)
    }

    /// How clients fared when they were last evaluated.
    pub(super) fn evaluation(&self) -> Option<&EvaluationPoint> {
        self.story.evaluations.last()
    }

    /// Seconds that are left if it continues as in its last rounds.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        let last = &self.story.last_seconds;
        let left = self.info.as_ref()?.rounds.saturating_sub(self.round());
        let is_alive = self.state.is_alive();
        let seconds: f64 = last.iter().sum();
        (is_alive && !last.is_empty()).then(|| seconds / last.len() as f64 * left as f64)
    }
}

/// The rounds by which the time that is left is estimated.
const LAST: usize = 10;

impl Story {
    /// Reads what was added to the journals.
    fn go_on(&mut self, [rounds, evaluations, timings]: &mut [Tail; 3]) -> Result<()> {
        rounds.added(|round: Round| self.thinned += u64::from(self.rounds.push(RoundPoint::of(&round))))?;
        evaluations.added(|judged: Evaluation| {
            self.thinned += u64::from(self.evaluations.push(EvaluationPoint::of(&judged)));
        })?;
        timings.added(|timing: Timing| self.time(&timing))
    }

    fn time(&mut self, timing: &Timing) {
        self.totals.add(timing);
        self.last_seconds.push_back(timing.seconds());
        if self.last_seconds.len() > LAST {
            self.last_seconds.pop_front();
        }
        self.thinned += u64::from(self.timings.push(TimingPoint::of(timing, &self.totals)));
    }
}

impl Heartbeat {
    fn is_alive(&mut self, folder: &RunFolder, activity: Option<&Activity>) -> bool {
        let is_locked = folder.is_locked();
        self.lock_seen |= is_locked;
        let beat = activity.map(|activity| activity.beat);
        if self.beat.is_some() && beat != self.beat {
            self.beaten = Some(Instant::now());
        }
        self.beat = beat;
        // Over some network disks locks do not reach us, and only the beat tells.
        let beats = self.beaten.is_some_and(|beaten| beaten.elapsed() < SILENCE);
        is_locked || (!self.lock_seen && beats)
    }
}

impl RunInfo {
    fn of(folder: &RunFolder) -> Result<Self> {
        RunFolder::open(folder.path())?;
        let experiment = folder.experiment()?;
        Ok(Self {
            method: experiment.method.name(),
            data: experiment.data.source.name(),
            model: experiment.model.name(),
            preset: experiment.preset,
            seed: experiment.seed,
            rounds: experiment.plan.rounds,
            headline: experiment.method.algorithm().default_view(),
            device: experiment.devices(),
        })
    }
}
