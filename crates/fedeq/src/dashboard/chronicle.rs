//! What is known of a run: read once, and added to as the run goes on.
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fedeq_core::{Evaluation, Result, Round, View};
use serde::Serialize;

use super::point::{EvaluationPoint, RoundPoint, TimingPoint};
use crate::preset::Preset;
use crate::run::{Activity, RunFolder, State, Status, Tail, Timing};

/// How a run stands, as far as one can tell from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Standing {
    Running,
    Paused,
    Finished,
    Stopped,
    Failed,
    /// It says it is running, but nobody works on it.
    Killed,
    /// Something in its folder cannot be read.
    #[default]
    Malformed,
}

/// What an experiment says that people want to see at a glance.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Facts {
    method: &'static str,
    data: &'static str,
    model: &'static str,
    preset: Preset,
    seed: u64,
    rounds: u64,
    headline: View,
}

/// A run's story so far.
pub(super) struct Chronicle {
    pub(super) folder: RunFolder,
    pub(super) standing: Standing,
    /// Why it cannot be read.
    pub(super) problem: Option<String>,
    pub(super) facts: Option<Facts>,
    /// Grows whenever what was told before no longer holds.
    pub(super) edition: u64,
    pub(super) rounds: Vec<RoundPoint>,
    pub(super) evaluations: Vec<EvaluationPoint>,
    pub(super) timings: Vec<TimingPoint>,
    pub(super) activity: Option<Activity>,
    tails: [Tail; 3],
    pid: Option<u32>,
    pulse: Pulse,
}

/// How one can tell that a process lives.
#[derive(Default)]
struct Pulse {
    /// Locks work on this disk: one was seen.
    lock_seen: bool,
    beat: Option<u64>,
    /// When the beat was last seen to change.
    beaten: Option<Instant>,
}

/// A process on another machine's disk that has not moved for so long is dead.
const SILENCE: Duration = Duration::from_secs(10);

impl Chronicle {
    /// A run of which nothing is known yet.
    pub(super) fn new(path: PathBuf) -> Self {
        let folder = RunFolder::at(path);
        Self {
            tails: folder.tails(),
            folder,
            standing: Standing::default(),
            problem: None,
            facts: None,
            edition: 0,
            rounds: Vec::new(),
            evaluations: Vec::new(),
            timings: Vec::new(),
            activity: None,
            pid: None,
            pulse: Pulse::default(),
        }
    }

    /// Reads what is new.
    pub(super) fn look(&mut self) {
        let was_sound = self.problem.is_none() && self.pid.is_some();
        let mut outcome = self.read();
        if outcome.is_err() && was_sound {
            // A run that was resumed goes on from its last checkpoint: some of what was read is no longer there.
            self.begin_anew();
            outcome = self.read();
        }
        self.problem = outcome.err().map(|error| error.to_string());
        if self.problem.is_some() {
            self.standing = Standing::Malformed;
        }
    }

    fn read(&mut self) -> Result<()> {
        if self.facts.is_none() {
            self.facts = Some(Facts::of(&self.folder)?);
        }
        let status = self.folder.status()?;
        if self.pid.replace(status.pid).is_some_and(|before| before != status.pid) {
            self.begin_anew();
            self.facts = Some(Facts::of(&self.folder)?);
        }
        let [rounds, evaluations, timings] = &mut self.tails;
        self.rounds.extend(rounds.added()?.iter().map(|round: &Round| RoundPoint::of(round)));
        self.evaluations.extend(evaluations.added()?.iter().map(|evaluation: &Evaluation| EvaluationPoint::of(evaluation)));
        self.timings.extend(timings.added()?.iter().map(|timing: &Timing| TimingPoint::of(timing)));
        self.activity = self.folder.activity();
        self.standing = self.standing_of(&status);
        Ok(())
    }

    fn begin_anew(&mut self) {
        self.edition += 1;
        self.tails = self.folder.tails();
        self.rounds.clear();
        self.evaluations.clear();
        self.timings.clear();
    }

    fn standing_of(&mut self, status: &Status) -> Standing {
        match status.state {
            State::Finished => Standing::Finished,
            State::Stopped => Standing::Stopped,
            State::Failed => Standing::Failed,
            State::Running | State::Paused if !self.pulse.is_felt(&self.folder, self.activity.as_ref()) => Standing::Killed,
            State::Running => Standing::Running,
            State::Paused => Standing::Paused,
        }
    }

    /// Rounds that are over.
    pub(super) fn round(&self) -> u64 {
        self.rounds.last().map_or(0, RoundPoint::round)
    }

    /// The accuracy by which the method is judged, and that of the worst tenth.
    pub(super) fn accuracy(&self) -> Option<[f64; 2]> {
        let last = self.evaluations.last()?;
        let quality = match (self.facts.as_ref()?.headline, &last.shared) {
            (View::Shared, Some(shared)) => shared,
            _ => &last.local,
        };
        Some([quality.accuracy, quality.worst])
    }

    /// Seconds that are left if it goes on as in its last rounds.
    pub(super) fn seconds_left(&self) -> Option<f64> {
        const LAST: usize = 10;
        let last = &self.timings[self.timings.len().saturating_sub(LAST)..];
        let left = self.facts.as_ref()?.rounds.saturating_sub(self.round());
        let is_alive = matches!(self.standing, Standing::Running | Standing::Paused);
        let seconds: f64 = last.iter().map(TimingPoint::seconds).sum();
        (is_alive && !last.is_empty()).then(|| seconds / last.len() as f64 * left as f64)
    }
}

impl Pulse {
    fn is_felt(&mut self, folder: &RunFolder, activity: Option<&Activity>) -> bool {
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

impl Facts {
    fn of(folder: &RunFolder) -> Result<Self> {
        let experiment = RunFolder::open(folder.path())?.experiment()?;
        Ok(Self {
            method: experiment.method.name(),
            data: experiment.data.source.name(),
            model: experiment.model.name(),
            preset: experiment.preset,
            seed: experiment.seed,
            rounds: experiment.plan.rounds,
            headline: experiment.method.algorithm().headline(),
        })
    }
}
