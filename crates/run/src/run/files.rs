//! The files of a run's folder: what they are called, reading and writing them.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fedeq_core::{Error, Evaluation, Result, Round, write_atomically};
use fedeq_data::Scaling;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::control::{ControlCommand, ControlFile};
use super::file_access::{LARGEST, SMALL};
use super::folder::RunFolder;
use super::journal::{JournalLines, Tail};
use super::metadata::{Roster, RunState, Status, UsedGpu, Version};
use super::progress::{Activity, Heads};
use super::record::{FailedReply, Timing};
use super::summary::RunSummary;
use crate::experiment::{Experiment, ExternalModel, Prepared};

impl RunFolder {
    /// The data that the program which began the run handed over, where one did.
    pub(super) fn data_file(&self) -> PathBuf {
        self.root.join("data.safetensors")
    }

    /// What came out; nothing if it is not finished.
    pub fn summary(&self) -> Result<Option<RunSummary>> {
        let path = self.summary_file();
        if path.is_file() { self.json(&path, LARGEST).map(Some) } else { Ok(None) }
    }

    /// What came out, as it was written.
    pub fn summary_text(&self) -> Result<String> {
        self.text(&self.summary_file(), LARGEST)
    }

    /// What its status file says.
    pub fn status(&self) -> Result<Status> {
        self.json(&self.status_file(), SMALL)
    }

    /// The rounds so far.
    pub fn rounds(&self) -> Result<Vec<Round>> {
        self.all(&self.rounds_file())
    }

    /// The evaluations so far.
    pub fn evaluations(&self) -> Result<Vec<Evaluation>> {
        self.all(&self.evaluations_file())
    }

    /// Where the time went so far.
    pub fn timings(&self) -> Result<Vec<Timing>> {
        self.all(&self.timings_file())
    }

    /// What became of the clients' heads so far.
    pub fn heads(&self) -> Result<Vec<Heads>> {
        self.all(&self.heads_file())
    }

    /// The clients whose replies did not count, in the order in which that was found; none if all did. Rounds that were repeated are among them.
    pub fn failures(&self) -> Result<Vec<FailedReply>> {
        let mut failures = Vec::new();
        self.each(&self.failures_file(), |failure| failures.push(failure)).map(|()| failures)
    }

    /// Takes the rounds so far one after the other, for journals that may be longer than memory; one that is not there yet has none.
    pub fn each_round(&self, take: impl FnMut(Round)) -> Result<()> {
        self.each(&self.rounds_file(), take)
    }

    /// Takes the evaluations so far alike.
    pub fn each_evaluation(&self, take: impl FnMut(Evaluation)) -> Result<()> {
        self.each(&self.evaluations_file(), take)
    }

    /// Takes what became of the clients' heads so far alike.
    pub fn each_heads(&self, take: impl FnMut(Heads)) -> Result<()> {
        self.each(&self.heads_file(), take)
    }

    /// The rounds, the evaluations and the timings, to be read while they are written.
    pub fn tails(&self) -> [Tail; 3] {
        [self.rounds_file(), self.evaluations_file(), self.timings_file()].map(|path| Tail::new(path, self.access.clone()))
    }

    /// The experiment as it was written.
    pub fn experiment_text(&self) -> Result<String> {
        self.text(&self.experiment_file(), SMALL)
    }

    /// A file as text; where others may have filled the folder, only if it has no more bytes than this.
    fn text(&self, path: &Path, most: u64) -> Result<String> {
        self.access.read(path, most).map_err(Error::io(path, "read it"))
    }

    /// A file of JSON, alike.
    fn json<V: DeserializeOwned>(&self, path: &Path, most: u64) -> Result<V> {
        serde_json::from_str(&self.text(path, most)?).map_err(|error| Error::damaged(path, error.to_string()))
    }

    /// The lines of a journal, one after the other; none if it is not there.
    fn each<V: DeserializeOwned>(&self, path: &Path, take: impl FnMut(V)) -> Result<()> {
        match self.access.open(path) {
            Ok(file) => take_lines(path, file, take),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(Error::io(path, "read it")(error)),
        }
    }

    /// All lines of a journal.
    fn all<V: DeserializeOwned>(&self, path: &Path) -> Result<Vec<V>> {
        let file = self.access.open(path).map_err(Error::io(path, "read it"))?;
        let mut values = Vec::new();
        take_lines(path, file, |value| values.push(value)).map(|()| values)
    }

    /// Who the clients are; an error where no process has said so.
    pub fn roster(&self) -> Result<Roster> {
        self.json(&self.roster_file(), LARGEST)
    }

    /// Says who the clients are, once.
    pub fn write_roster(&self, prepared: &Prepared) -> Result<()> {
        if self.roster_file().is_file() { Ok(()) } else { write_json(&self.roster_file(), &Roster::of(prepared)) }
    }

    /// Who is at work; nothing where no process has said so.
    pub fn activity(&self) -> Option<Activity> {
        self.json(&self.activity_file(), LARGEST).ok()
    }

    /// How long ago it was written who is at work, if that is to be known and not in the future.
    pub(super) fn activity_age(&self) -> Option<Duration> {
        fs::metadata(self.activity_file()).ok()?.modified().ok()?.elapsed().ok()
    }

    /// Says who is at work. Not synced to disk, and not worth stopping a run for if it fails.
    pub(super) fn write_activity(&self, activity: &Activity) {
        let partial = self.path().join("activity.json.partial");
        let written = serde_json::to_string(activity).is_ok_and(|json| fs::write(&partial, json).is_ok());
        if written {
            let _ = fs::rename(&partial, self.activity_file());
        }
    }

    /// No client is at work any more.
    pub(super) fn end_activity(&self) {
        let _ = fs::remove_file(self.activity_file());
    }

    /// Leaves a command for the process that carries out this run.
    pub fn leave_command(&self, command: ControlCommand) -> Result<()> {
        write_json(&self.control_file(), &ControlFile { command })
    }

    /// The command in the folder; nothing if it cannot be read, which changes nothing.
    pub(super) fn control_command(&self) -> Option<ControlCommand> {
        let path = self.control_file();
        if !path.exists() {
            return Some(ControlCommand::default());
        }
        read_json(&path).ok().map(|file: ControlFile| file.command)
    }

    /// Removes a command that was meant for an earlier process.
    pub(super) fn remove_command(&self) -> Result<()> {
        let path = self.control_file();
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&path, "remove it")(error)),
            _ => Ok(()),
        }
    }

    pub(super) fn write_experiment(&self, experiment: &Experiment) -> Result<()> {
        write_atomically(&self.experiment_file(), experiment.to_toml()?.as_bytes())
    }

    /// Says how the run stands, and that this process said so.
    pub fn write_status(&self, state: RunState) -> Result<()> {
        write_json(&self.status_file(), &Status { state, pid: std::process::id() })
    }

    /// Says which program carries out the run, and on what.
    pub(super) fn write_version(&self, gpu: Option<UsedGpu>) -> Result<()> {
        Version { gpu, ..Version::here() }.write(&self.root)
    }

    /// Says on which GPU the run is continued, where it is another one than before.
    pub(super) fn note_gpu(&self, gpu: Option<UsedGpu>) -> Result<()> {
        let Ok(version) = Version::read(&self.root) else { return Ok(()) };
        if gpu.is_none() || version.gpu == gpu { Ok(()) } else { Version { gpu, ..version }.write(&self.root) }
    }

    pub(super) fn write_summary(&self, summary: &RunSummary) -> Result<()> {
        write_json(&self.summary_file(), summary)
    }

    pub(super) fn write_scaling(&self, scaling: &Scaling) -> Result<()> {
        // Twice as many digits as there are in the numbers, so that not one bit changes on the way through text.
        let exact = |numbers: &[f32]| numbers.iter().map(|&number| f64::from(number)).collect::<Vec<f64>>();
        let (mean, deviation) = (exact(&scaling.mean), exact(&scaling.deviation));
        write_json(&self.scaling_file(), &serde_json::json!({ "mean": mean, "deviation": deviation }))
    }

    pub(super) fn write_external(&self, model: &ExternalModel) -> Result<()> {
        write_atomically(&self.network_file(), &model.initial.to_bytes(&Default::default())?)
    }

    pub(super) fn rounds_file(&self) -> PathBuf {
        self.root.join("rounds.jsonl")
    }

    pub(super) fn evaluations_file(&self) -> PathBuf {
        self.root.join("evaluations.jsonl")
    }

    pub(super) fn timings_file(&self) -> PathBuf {
        self.root.join("timings.jsonl")
    }

    pub(super) fn failures_file(&self) -> PathBuf {
        self.root.join("failures.jsonl")
    }

    pub(super) fn heads_file(&self) -> PathBuf {
        self.root.join("heads.jsonl")
    }

    fn roster_file(&self) -> PathBuf {
        self.root.join("clients.json")
    }

    fn activity_file(&self) -> PathBuf {
        self.root.join("activity.json")
    }

    fn control_file(&self) -> PathBuf {
        self.root.join("control.json")
    }

    pub(super) fn table_file(&self) -> PathBuf {
        self.root.join("metrics.csv")
    }

    pub(super) fn tensorboard(&self) -> PathBuf {
        self.root.join("tensorboard")
    }

    pub(super) fn scaling_file(&self) -> PathBuf {
        self.root.join("scaling.json")
    }

    pub(super) fn network_file(&self) -> PathBuf {
        self.root.join("network.safetensors")
    }

    pub(super) fn experiment_file(&self) -> PathBuf {
        self.root.join("experiment.toml")
    }

    pub(super) fn summary_file(&self) -> PathBuf {
        self.root.join("summary.json")
    }

    pub(super) fn status_file(&self) -> PathBuf {
        self.root.join("status.json")
    }
}

/// Writes a value as JSON, by replacing the file at once.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<()> {
    let json = serde_json::to_string_pretty(value).map_err(|error| Error::io(path, "write it")(error.into()))?;
    write_atomically(path, (json + "\n").as_bytes())
}

/// Reads a value from a JSON file.
pub fn read_json<V: DeserializeOwned>(path: &Path) -> Result<V> {
    let text = fs::read_to_string(path).map_err(Error::io(path, "read it"))?;
    serde_json::from_str(&text).map_err(|error| Error::damaged(path, error.to_string()))
}

/// Takes the whole lines of a journal; one that is still being written is left out.
fn take_lines<V: DeserializeOwned>(path: &Path, file: File, mut take: impl FnMut(V)) -> Result<()> {
    let mut lines = JournalLines::new(path, file, 0);
    while let Some((value, _)) = lines.read()? {
        take(value);
    }
    Ok(())
}
