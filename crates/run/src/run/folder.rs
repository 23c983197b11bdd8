//! The folder of a run.
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fedeq_core::{Error, Evaluation, Params, Result, Round, write_atomically};
use fedeq_data::Scaling;
use fedeq_data::source::scale::Scale;
use fedeq_models::ModelConfig;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::checkpoint::{Manifest, Stage, keep_only_last};
use super::control::{ControlCommand, ControlFile};
use super::file_access::{FileAccess, LARGEST, SMALL};
use super::find::is_run;
use super::journal::{JournalLines, Journals, Tail};
use super::metadata::{Roster, RunState, Status, UsedGpu, Version};
use super::progress::{Activity, Heads};
use super::record::{FailedReply, Timing};
use super::summary::RunSummary;
use crate::experiment::{Experiment, ExternalModel, Prepared};

/// A folder that holds a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    root: PathBuf,
    /// Which of its files may be read.
    access: FileAccess,
}

/// Held as long as a process works on a run; given back when the process ends, however it ends.
pub(super) struct Lock {
    _file: File,
}

impl RunFolder {
    /// Makes a new folder; one that already exists is never touched, unless it is empty or a process was killed while it made it.
    pub fn create(root: &Path) -> Result<Self> {
        if let Some(parent) = root.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent).map_err(Error::io(parent, "create it"))?;
        }
        match fs::create_dir(root) {
            Ok(()) => Ok(Self::at(root.to_owned())),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                if is_unborn(root) {
                    Ok(Self::at(root.to_owned()))
                } else {
                    Err(taken(root))
                }
            }
            Err(error) => Err(Error::io(root, "create it")(error)),
        }
    }

    /// A folder that may or may not hold a run.
    pub fn at(root: PathBuf) -> Self {
        Self { root, access: FileAccess::Anywhere }
    }

    /// The same folder, of which only some files may be read: for showing what somebody else may have put there.
    pub fn within(self, access: FileAccess) -> Self {
        Self { access, ..self }
    }

    /// The folder of a run that is there.
    pub fn open(root: &Path) -> Result<Self> {
        if is_run(root) {
            return Ok(Self::at(root.to_owned()));
        }
        let problem = format!("`{}` is not a run folder", root.display());
        Err(Error::invalid(problem, "give the folder that `fedeq run` named, such as `runs/fedeq-digits-0`"))
    }

    /// Refuses the folder of a Flower federation, whose models are with its nodes and whose server is elsewhere.
    pub(super) fn require_simulation(&self) -> Result<()> {
        if !self.root.join("plan.json").is_file() {
            return Ok(());
        }
        let path = self.root.display();
        let hint = format!("continue with `flwr run`, see `{path}/README.md`; models are where `fedeq node` keeps them");
        Err(Error::invalid(format!("`{path}` is a federation over Flower"), hint))
    }

    /// A name below `runs` that nobody has taken yet: method, data and seed, and a number if that has been done before.
    pub fn usual_name(runs: &Path, experiment: &Experiment) -> PathBuf {
        let name = format!("{}-{}-{}", experiment.method.name(), experiment.data.source.name(), experiment.seed);
        let numbered = |number: u32| runs.join(if number == 1 { name.clone() } else { format!("{name}-{number}") });
        (1..).map(numbered).find(|path| !path.exists()).unwrap_or_else(|| runs.join(&name))
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.root
    }

    /// The experiment as it was resolved when the run began. Data that lies in the folder itself is found wherever the folder is now.
    pub fn experiment(&self) -> Result<Experiment> {
        let text = self.experiment_text()?;
        let experiment = Experiment::from_resolved(&text);
        let mut experiment = experiment.map_err(|error| Error::damaged(&self.experiment_file(), error.to_string()))?;
        if experiment.data.source.is_arrays() && self.data_file().is_file() {
            experiment.data.folder = self.data_file();
        }
        Ok(experiment)
    }

    /// The data that the program which began the run handed over, where one did.
    pub(super) fn data_file(&self) -> PathBuf {
        self.root.join("data.safetensors")
    }

    /// How the features of its data are scaled, if they are: as it was found out when the run began.
    pub fn scaling(&self, experiment: &Experiment) -> Result<Option<Scaling>> {
        match experiment.data.source.scale() {
            Some(Scale::Standardise) => read_json(&self.scaling_file()).map(Some),
            _ => Ok(experiment.data.source.given_scaling()),
        }
    }

    /// What a network that is computed outside of fedeq started from, without whoever computes it; nothing for one of ours.
    pub fn external(&self, experiment: &Experiment) -> Result<Option<ExternalModel>> {
        let ModelConfig::External(options) = &experiment.model else { return Ok(None) };
        let path = self.network_file();
        let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
        let (initial, _) = Params::from_bytes(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))?;
        let model = ExternalModel { name: options.network.clone(), initial, network: None };
        if model.options() == *options { Ok(Some(model)) } else { Err(Error::damaged(&path, "it holds another network")) }
    }

    /// Prepares an experiment of this folder to be looked at or continued: all that was found out when it began is as it was then. A network that is computed outside of
    /// fedeq has its numbers, and nobody who computes it.
    pub fn prepare(&self, experiment: &Experiment) -> Result<Prepared> {
        experiment.prepare_again(self.scaling(experiment)?, self.external(experiment)?)
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

    /// How it stands, as far as one can tell from this machine.
    pub fn state(&self) -> Result<RunState> {
        self.state_if(|| self.is_locked())
    }

    /// How it stands, where somebody knows better than its lock whether a process is working on it.
    pub fn state_if(&self, is_alive: impl FnOnce() -> bool) -> Result<RunState> {
        let written = self.status()?.state;
        Ok(if !written.is_alive() || is_alive() {
            written
        } else if self.summary_file().is_file() {
            // The summary is the last of its results; only the word that it is finished is missing.
            RunState::Finished
        } else {
            RunState::Killed
        })
    }

    /// Whether a process is working on it now.
    pub fn is_locked(&self) -> bool {
        self.access.open(&self.root.join(LOCK)).is_ok_and(|file| file.try_lock_shared().is_err())
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

    /// Says who is at work. Not synced to disk, and not worth stopping a run for if it fails.
    pub(super) fn write_activity(&self, activity: &Activity) {
        let partial = self.path().join("activity.json.partial");
        let written = serde_json::to_string(activity).is_ok_and(|json| fs::write(&partial, json).is_ok());
        if written {
            let _ = fs::rename(&partial, self.activity_file());
        }
    }

    /// Nobody is at work any more.
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

    /// The rounds from which a run will continue, if it has a checkpoint that can be read.
    pub fn kept_rounds(&self) -> Option<u64> {
        Manifest::last(self).map(|manifest| manifest.round)
    }

    /// Whether it is finished and still holds what it says: a summary and, unless its models were discarded, its last checkpoint.
    pub fn is_complete(&self) -> bool {
        let is_finished = self.status().is_ok_and(|status| status.state == RunState::Finished);
        let has_end = || Manifest::last(self).is_some_and(|manifest| manifest.stage == Stage::Finished);
        is_finished && matches!(self.summary(), Ok(Some(_))) && (!self.checkpoints().exists() || has_end())
    }

    /// Refuses a finished run whose journals are no longer what they were.
    pub fn check_finished(&self) -> Result<()> {
        Manifest::last(self).map_or(Ok(()), |manifest| Journals(self).check(&manifest.journals, manifest.round))
    }

    /// The clients' states.
    pub fn clients(&self) -> PathBuf {
        self.root.join("clients")
    }

    /// Manifests and the server's weights.
    pub fn checkpoints(&self) -> PathBuf {
        self.root.join("checkpoints")
    }

    /// Removes checkpoints and clients' states, and so all models; what was measured remains.
    pub fn discard_models(&self) -> Result<()> {
        for folder in [self.checkpoints(), self.clients()] {
            match fs::remove_dir_all(&folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(Error::io(&folder, "remove it")(error)),
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes all but what is needed to continue: the last checkpoint and the states that it names. A run that a process works on is refused.
    pub fn keep_only_last_checkpoint(&self) -> Result<()> {
        let _lock = self.lock()?;
        keep_only_last(self)
    }

    /// Removes the folder and all that is in it; a run that a process works on is refused.
    pub fn remove(self) -> Result<()> {
        let _lock = self.lock()?;
        fs::remove_dir_all(&self.root).map_err(Error::io(&self.root, "remove it"))
    }

    /// Takes the run for this process.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = self.root.join(LOCK);
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(Error::io(&path, "open it"))?;
        // Whoever looks whether a run is locked holds its lock for an instant, which must not pass for a process at work.
        let is_ours = (0..LOCK_ATTEMPTS).any(|attempt| {
            thread::sleep(attempt * LOCK_PATIENCE);
            file.try_lock().is_ok()
        });
        if is_ours { Ok(Lock { _file: file }) } else { Err(self.still_running()) }
    }

    fn still_running(&self) -> Error {
        let process = self.status().map_or_else(|_| "another process".into(), |status| format!("process {}", status.pid));
        Error::invalid(format!("`{}` is being worked on by {process}", self.root.display()), "wait until it is done, or stop it")
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

    fn scaling_file(&self) -> PathBuf {
        self.root.join("scaling.json")
    }

    fn network_file(&self) -> PathBuf {
        self.root.join("network.safetensors")
    }

    fn experiment_file(&self) -> PathBuf {
        self.root.join("experiment.toml")
    }

    fn summary_file(&self) -> PathBuf {
        self.root.join("summary.json")
    }

    fn status_file(&self) -> PathBuf {
        self.root.join("status.json")
    }
}

const LOCK: &str = "lock";

const LOCK_ATTEMPTS: u32 = 4;
const LOCK_PATIENCE: Duration = Duration::from_millis(5);

/// Whether a folder holds nothing but what a run writes before its experiment.
fn is_unborn(root: &Path) -> bool {
    const EARLY: [&str; 8] = [
        LOCK,
        "version.json",
        "version.json.partial",
        "scaling.json",
        "scaling.json.partial",
        "network.safetensors",
        "network.safetensors.partial",
        "experiment.toml.partial",
    ];
    let is_early =
        |entry: std::io::Result<fs::DirEntry>| entry.is_ok_and(|entry| EARLY.iter().any(|name| entry.file_name() == *name));
    fs::read_dir(root).is_ok_and(|mut entries| entries.all(is_early))
}

fn taken(root: &Path) -> Error {
    let path = root.display();
    Error::invalid(
        format!("`{path}` already exists"),
        format!("choose another with `--out`, or continue with `fedeq resume {path}`"),
    )
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
