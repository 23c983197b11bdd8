//! What a run folder says, whether the run is finished or not.
use std::path::PathBuf;

use fedeq_core::{Error, Evaluation, Result, Round, View};
use serde::Serialize;

use fedeq_run::experiment::Experiment;
use fedeq_run::run::{DeviceUse, RunFolder, RunState, RunSummary, Timing, Version};

/// A run as its folder tells it.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// Its folder.
    pub path: PathBuf,
    /// How it stands.
    pub state: RunState,
    /// What carried it out, if the folder says so.
    pub program: Option<Version>,
    /// What was asked for.
    pub experiment: Experiment,
    /// What came out, once it is finished.
    pub summary: Option<RunSummary>,
    /// The rounds so far.
    pub rounds: Vec<Round>,
    /// The evaluations so far.
    pub evaluations: Vec<Evaluation>,
    /// Where the time went so far.
    pub timings: Vec<Timing>,
}

impl RunRecord {
    /// Reads a run folder.
    pub fn of(folder: &RunFolder) -> Result<Self> {
        let summary = folder.summary()?;
        let state = folder.state()?;
        let is_finished = state == RunState::Finished;
        Ok(Self {
            path: folder.path().to_owned(),
            state,
            program: program(folder)?,
            experiment: folder.experiment()?,
            summary,
            rounds: journal(folder.rounds(), is_finished)?,
            evaluations: journal(folder.evaluations(), is_finished)?,
            timings: journal(folder.timings(), is_finished)?,
        })
    }

    /// Its folder's name.
    pub fn name(&self) -> String {
        self.path.file_name().map_or_else(|| self.path.display().to_string(), |name| name.to_string_lossy().into_owned())
    }

    /// Whether it is complete.
    pub fn is_finished(&self) -> bool {
        self.state == RunState::Finished
    }

    /// Rounds that are over.
    pub fn round(&self) -> u64 {
        self.rounds.last().map_or(0, |round| round.round + 1)
    }

    /// By which of a client's models the method is evaluated.
    pub fn headline(&self) -> View {
        self.experiment.method.algorithm().default_view()
    }

    /// The last evaluation so far. A finished run's summary holds the one of its end.
    pub fn last(&self) -> Option<&Evaluation> {
        self.summary.as_ref().map(|summary| &summary.evaluation).or_else(|| self.evaluations.last())
    }

    /// The evaluation after so many rounds, if there was one.
    pub(super) fn after(&self, round: u64) -> Option<&Evaluation> {
        let noted = || self.evaluations.iter().rev().find(|evaluation| evaluation.round == round);
        self.last().filter(|last| last.round == round).or_else(noted)
    }

    /// Seconds of training and evaluation so far.
    pub fn seconds(&self) -> f64 {
        self.timings.iter().map(Timing::seconds).sum()
    }

    /// What a GPU held and did so far; nothing on the CPU.
    pub fn device_use(&self) -> Option<DeviceUse> {
        let mut total = Timing::default();
        self.timings.iter().for_each(|timing| total.add(timing));
        total.device
    }

    /// The most memory the process held, in bytes, where the system told.
    pub fn peak_memory(&self) -> Option<u64> {
        self.timings.iter().filter_map(|timing| timing.peak_memory).max()
    }
}

/// A journal that a run has not begun yet is empty; a finished run has all of them.
fn journal<V>(read: Result<Vec<V>>, is_finished: bool) -> Result<Vec<V>> {
    match read {
        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound && !is_finished => Ok(Vec::new()),
        Err(Error::Io { source, path, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Err(Error::damaged(&path, "it is missing, though the run is finished"))
        }
        other => other,
    }
}

/// Nothing where the folder does not say so; what says nonsense is refused.
fn program(folder: &RunFolder) -> Result<Option<Version>> {
    match Version::read(folder.path()) {
        Err(Error::Io { .. }) => Ok(None),
        read => read.map(Some),
    }
}
