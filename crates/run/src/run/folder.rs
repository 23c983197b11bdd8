//! The folder of a run: making, opening and locking it, how the run stands, and which folders are those of runs.
use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use fedeq_core::{Error, Params, Result};
use fedeq_data::Scaling;
use fedeq_data::source::scale::Scale;
use fedeq_models::ModelConfig;

use super::checkpoint::{Manifest, Stage, keep_only_last};
use super::file_access::FileAccess;
use super::files::read_json;
use super::heartbeat::Heartbeat;
use super::journal::Journals;
use super::metadata::RunState;
use super::progress::Activity;
use crate::experiment::{Experiment, ExternalModel, Prepared};

/// A folder that holds a run.
#[derive(Clone, Debug)]
pub struct RunFolder {
    pub(super) root: PathBuf,
    /// Which of its files may be read.
    pub(super) access: FileAccess,
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

    /// The same folder, of which only some files may be read: for showing what others may have put there.
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

    /// A name below `runs` that is not taken yet: method, data and seed, and a number if that has been done before.
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
    /// fedeq has its numbers, and nothing that computes it.
    pub fn prepare(&self, experiment: &Experiment) -> Result<Prepared> {
        experiment.prepare_again(self.scaling(experiment)?, self.external(experiment)?)
    }

    /// How it stands, as far as one can tell from this machine. It takes a few seconds where a process without a lock beat within the last minute.
    pub fn state(&self) -> Result<RunState> {
        self.state_if(|| Heartbeat::is_alive_now(self))
    }

    /// How it stands, for those who look again and again and keep what they have seen of its process. `activity` is what the folder says now.
    pub fn watched_state(&self, heartbeat: &mut Heartbeat, activity: Option<&Activity>) -> Result<RunState> {
        self.state_if(|| heartbeat.is_alive(self, activity))
    }

    fn state_if(&self, is_alive: impl FnOnce() -> bool) -> Result<RunState> {
        if !self.status()?.state.is_alive() || is_alive() {
            return Ok(self.status()?.state);
        }
        // It may have ended while its process was looked for.
        let written = self.status()?.state;
        Ok(if !written.is_alive() {
            written
        } else if self.summary_file().is_file() {
            // The summary is the last of its results; only the word that it is finished is missing.
            RunState::Finished
        } else {
            RunState::Killed
        })
    }

    /// Whether a process holds its lock, as far as locks reach us.
    pub(super) fn is_locked(&self) -> bool {
        let refused = |file: File| matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock));
        self.access.open(&self.root.join(LOCK)).is_ok_and(refused)
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

/// Sweeps and figures keep their runs in folders of their own; they are not nested deeper than this.
const DEPTH: usize = 4;

/// What a run folder has.
const SIGNS: [&str; 4] = ["experiment.toml", "status.json", "rounds.jsonl", "version.json"];

/// Whether a folder is that of a run, even of a damaged one: it holds at least two of the files that every run has. One of them
/// alone, such as an `experiment.toml` to start runs from, may lie anywhere.
pub(super) fn is_run(folder: &Path) -> bool {
    SIGNS.iter().filter(|sign| folder.join(sign).exists()).count() >= 2
}

/// Whether links to folders are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Links {
    /// They are.
    Followed,
    /// They are not, so that everything found is really there.
    PassedOver,
}

/// Run folders by their names, which are their paths below `root`, parts separated by `/`. A `root` that is a run itself is the only
/// one, by its own name.
pub fn runs_below(root: &Path, links: Links) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    if is_run(root) {
        found.insert(own_name(root), root.to_owned());
    } else {
        collect(root, "", DEPTH, links, &mut found);
    }
    found
}

fn own_name(root: &Path) -> String {
    let whole = fs::canonicalize(root).unwrap_or_else(|_| root.to_owned());
    whole.file_name().map_or_else(|| "run".into(), |name| name.to_string_lossy().into_owned())
}

fn collect(folder: &Path, name: &str, depth: usize, links: Links, found: &mut BTreeMap<String, PathBuf>) {
    let is_folder = |entry: &fs::DirEntry| match links {
        Links::Followed => entry.path().is_dir(),
        Links::PassedOver => entry.file_type().is_ok_and(|kind| kind.is_dir()),
    };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten().filter(is_folder) {
        // A name that is no text cannot stand in an address; a hidden folder wants to be left alone.
        let Some(own) = entry.file_name().to_str().filter(|own| !own.starts_with('.')).map(str::to_owned) else { continue };
        let (path, name) = (entry.path(), if name.is_empty() { own } else { format!("{name}/{own}") });
        if is_run(&path) {
            found.insert(name, path);
        } else if depth > 1 {
            collect(&path, &name, depth - 1, links, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(paths: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::TempDir::new().expect("a folder");
        for path in paths {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
            fs::write(path, "").expect("writable");
        }
        folder
    }

    fn names(root: &Path, links: Links) -> Vec<String> {
        runs_below(root, links).into_keys().collect()
    }

    #[test]
    fn runs_are_found_in_folders_of_folders_and_nothing_else_is() {
        let runs = ["b", "a/x", ".c", "1/2/3/4/5"].map(|run| [format!("{run}/status.json"), format!("{run}/version.json")]);
        let others = ["a/sweep.csv", "d/letter.txt", "experiment.toml", "a/experiment.toml"].map(str::to_owned);
        let paths: Vec<String> = runs.concat().into_iter().chain(others).collect();
        let folder = tree(&paths.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(names(folder.path(), Links::PassedOver), ["a/x", "b"]);
    }

    #[test]
    fn a_run_itself_is_the_only_one() {
        let folder = tree(&["one/experiment.toml", "one/rounds.jsonl", "one/clients/status.json"]);
        assert_eq!(names(&folder.path().join("one"), Links::PassedOver), ["one"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_where_that_is_wanted() {
        let folder = tree(&["one/experiment.toml", "one/status.json", "chosen/letter.txt"]);
        std::os::unix::fs::symlink(folder.path().join("one"), folder.path().join("chosen/link")).expect("writable");
        assert_eq!(names(&folder.path().join("chosen"), Links::Followed), ["link"]);
        assert!(names(&folder.path().join("chosen"), Links::PassedOver).is_empty());
    }

    #[test]
    fn a_folder_that_is_not_there_holds_nothing() {
        assert!(names(Path::new("nowhere/at/all"), Links::Followed).is_empty());
    }
}
