//! Checkpoints: keeping a run, and coming back to it.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fedeq_core::{Error, Event, InProcess, Observer, Result, ServerState, Traffic, Transport, fingerprint, write_atomically};
use serde::{Deserialize, Serialize};

use super::files::{read_json, write_json};
use super::folder::RunFolder;
use super::journal::{Journals, Lengths, Stamp, length};
use crate::experiment::{Device, EngineSettings, Experiment};

/// Everything a run consists of at some moment. Files are named by their content, so none of them changes afterwards.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// The experiment's [identity](crate::experiment::Experiment::identity).
    pub experiment: String,
    /// What it was computed on so far, see [`Experiment::devices`](crate::experiment::Experiment::devices).
    pub device: String,
    /// Rounds that are over.
    pub round: u64,
    /// Whether training is all that has happened.
    pub stage: Stage,
    /// The server's file in `checkpoints`.
    pub server: String,
    /// The files in `clients` of those who have a state of their own.
    pub clients: BTreeMap<usize, String>,
    /// What the journals held, by their names.
    pub journals: BTreeMap<String, Stamp>,
    /// Bytes sent so far.
    pub traffic: Traffic,
}

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Stage {
    /// Rounds of training.
    Training,
    /// Unseen clients have made the shared part their own as well.
    Finished,
}

/// A manifest with its own fingerprint.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    manifest: Manifest,
    fingerprint: String,
}

impl Manifest {
    /// The last one of a run, if it can be read.
    pub(super) fn last(folder: &RunFolder) -> Option<Self> {
        Self::read(&list(&folder.checkpoints()).ok()?.pop()?).ok()
    }

    /// Writes it under the number of its round.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let path = path_of(folder, self.round);
        write_json(&path, &Sealed { fingerprint: self.fingerprint(&path)?, manifest: self.clone() })
    }

    /// Reads one, and refuses it if it is not what was written.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let Sealed { manifest, fingerprint } = read_json(path)?;
        if manifest.fingerprint(path)? == fingerprint {
            return Ok(manifest);
        }
        Err(Error::damaged(path, "its fingerprint does not match its content"))
    }

    fn fingerprint(&self, path: &Path) -> Result<String> {
        let json = serde_json::to_string(self).map_err(|error| Error::io(path, "write it")(error.into()))?;
        Ok(fingerprint(json.as_bytes()))
    }
}

fn path_of(folder: &Path, round: u64) -> PathBuf {
    folder.join(format!("{round:06}.json"))
}

/// The manifests in a folder, oldest first.
pub(super) fn list(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::io(folder, "list it")(error)),
    };
    let paths = entries.flatten().map(|entry| entry.path());
    let mut manifests: Vec<PathBuf> = paths.filter(|path| path.extension().is_some_and(|end| end == "json")).collect();
    manifests.sort_by_key(|path| path.file_stem().and_then(|stem| stem.to_str()?.parse::<u64>().ok()));
    Ok(manifests)
}

/// Which checkpoint to come back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The last one.
    #[default]
    Latest,
    /// The one before it.
    Previous,
}

/// Where a run stands: all that is needed to continue.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) server: ServerState,
    pub(super) clients: BTreeMap<usize, String>,
    pub(super) traffic: Traffic,
    pub(super) stage: Stage,
}

/// How many checkpoints are kept while a run is not finished.
const KEPT: usize = 2;

/// What a checkpoint says about whose it is.
#[derive(Clone, Debug)]
pub(super) struct Seal {
    /// The experiment's identity.
    pub(super) experiment: String,
    /// What it is computed on.
    pub(super) device: String,
}

impl Seal {
    pub(super) fn of(experiment: &Experiment) -> Result<Self> {
        Ok(Self { experiment: experiment.identity()?, device: experiment.devices() })
    }
}

/// Writes a checkpoint: first what the manifest names, then the manifest.
pub(super) fn save(folder: &RunFolder, seal: &Seal, position: &Position) -> Result<()> {
    let checkpoints = folder.checkpoints();
    fs::create_dir_all(&checkpoints).map_err(Error::io(&checkpoints, "create it"))?;
    let bytes = position.server.to_bytes()?;
    let server = format!("server-{}.safetensors", fingerprint(&bytes));
    write_atomically(&checkpoints.join(&server), &bytes)?;
    let manifest = Manifest {
        experiment: seal.experiment.clone(),
        device: seal.device.clone(),
        round: position.server.round,
        stage: position.stage,
        server,
        clients: position.clients.clone(),
        journals: Journals(folder).stamp()?,
        traffic: position.traffic,
    };
    manifest.write(&checkpoints)
}

/// Who keeps the states of a run's clients.
pub(super) trait StateKeeper {
    /// What clients are now is what to come back to.
    fn settle(&mut self) -> Result<()>;

    /// Comes back to it.
    fn roll_back(&mut self) -> Result<()>;

    /// Makes sure that all states are on disk, and says in which files.
    fn flush(&mut self) -> Result<BTreeMap<usize, String>>;

    /// Removes what none of these names.
    fn remove_all_but(&mut self, wanted: &BTreeSet<String>) -> Result<()>;
}

impl StateKeeper for InProcess<'_> {
    fn settle(&mut self) -> Result<()> {
        self.store().settle()
    }

    fn roll_back(&mut self) -> Result<()> {
        self.store().roll_back()
    }

    fn flush(&mut self) -> Result<BTreeMap<usize, String>> {
        self.store().flush()
    }

    fn remove_all_but(&mut self, wanted: &BTreeSet<String>) -> Result<()> {
        self.store().remove_all_but(wanted)
    }
}

/// Removes all but the last `kept` checkpoints, and the files that none of these names.
fn prune(folder: &RunFolder, states: &mut impl StateKeeper, kept: usize) -> Result<()> {
    let manifests = list(&folder.checkpoints())?;
    let (old, kept) = manifests.split_at(manifests.len().saturating_sub(kept));
    old.iter().try_for_each(|path| remove(path))?;
    let kept = kept.iter().map(|path| Manifest::read(path)).collect::<Result<Vec<_>>>()?;
    let servers: BTreeSet<&str> = kept.iter().map(|manifest| manifest.server.as_str()).collect();
    remove_other_servers(&folder.checkpoints(), &servers)?;
    states.remove_all_but(&kept.into_iter().flat_map(|manifest| manifest.clients.into_values()).collect())
}

fn remove_other_servers(checkpoints: &Path, wanted: &BTreeSet<&str>) -> Result<()> {
    let entries = fs::read_dir(checkpoints).map_err(Error::io(checkpoints, "list it"))?;
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_manifest = name.ends_with(".json");
        if !is_manifest && !wanted.contains(name.as_str()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Keeps the last checkpoint of a run that no process works on, and removes all that it does not name.
pub(super) fn keep_only_last(folder: &RunFolder) -> Result<()> {
    let mut manifests = list(&folder.checkpoints())?;
    let Some(last) = manifests.pop() else { return Ok(()) };
    let manifest = Manifest::read(&last)?;
    manifests.iter().try_for_each(|path| remove(path))?;
    remove_other_servers(&folder.checkpoints(), &BTreeSet::from([manifest.server.as_str()]))?;
    let named: BTreeSet<&String> = manifest.clients.values().collect();
    for entry in fs::read_dir(folder.clients()).into_iter().flatten().flatten() {
        if !named.contains(&entry.file_name().to_string_lossy().into_owned()) {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io(path, "remove it"))
}

/// Comes back to a checkpoint: checks everything it names, then cuts the journals back and forgets later checkpoints.
///
/// `fresh` is the server before the first round, which is where a run without any checkpoint stands.
pub(super) fn restore(folder: &RunFolder, experiment: &Experiment, which: Which, fresh: ServerState) -> Result<Position> {
    let mut manifests = list(&folder.checkpoints())?;
    let later = if which == Which::Previous { manifests.pop() } else { None };
    let Some(path) = manifests.pop() else { return start_over(folder, which, fresh) };
    let (manifest, position) = read(folder, experiment, &path, &fresh)?;
    Journals(folder).cut_back(&manifest.journals, manifest.round)?;
    later.iter().try_for_each(|path| remove(path))?;
    Ok(position)
}

/// The last checkpoint of a finished run, with everything it names checked and nothing changed.
pub(super) fn last(folder: &RunFolder, experiment: &Experiment, fresh: &ServerState) -> Result<Position> {
    let missing = || Error::damaged(&folder.checkpoints(), "there is no checkpoint in it");
    let path = list(&folder.checkpoints())?.pop().ok_or_else(missing)?;
    let (manifest, position) = read(folder, experiment, &path, fresh)?;
    if manifest.device != experiment.devices() {
        return Err(other_device(folder, &manifest.device, &experiment.engine));
    }
    if manifest.stage == Stage::Finished { Ok(position) } else { Err(lost_end(folder, manifest.round)) }
}

fn lost_end(folder: &RunFolder, round: u64) -> Error {
    let run = folder.path().display();
    Error::invalid(
        format!("the last checkpoint of `{run}` is gone: the one that is left was written after round {round}, before the end"),
        format!("do the rest again with `fedeq resume {run}`, to the same bytes"),
    )
}

fn read(folder: &RunFolder, experiment: &Experiment, path: &Path, fresh: &ServerState) -> Result<(Manifest, Position)> {
    let manifest = Manifest::read(path)?;
    // A checkpoint belongs to the experiment as it was computed until then.
    if manifest.experiment != experiment.computed_on(&manifest.device).identity()? {
        return Err(Error::damaged(path, "it belongs to another experiment"));
    }
    let server = read_server(folder, &manifest, fresh)?;
    manifest.clients.values().try_for_each(|file| ensure_named_by_content(&folder.clients().join(file)).map(|_| ()))?;
    let (clients, traffic, stage) = (manifest.clients.clone(), manifest.traffic, manifest.stage);
    Ok((manifest, Position { server, clients, traffic, stage }))
}

/// Lets an experiment continue on its device or on the one that is `said` aloud. Other devices round otherwise, so a run that continues elsewhere without
/// a word is refused, and one that moves remembers where it was.
pub(super) fn settle_device(folder: &RunFolder, which: Which, experiment: &mut Experiment, said: Option<Device>) -> Result<()> {
    let mut manifests = list(&folder.checkpoints())?;
    if which == Which::Previous {
        manifests.pop();
    }
    // Whether the manifest is sound is found out when it is used.
    let begun = manifests.pop().and_then(|path| Manifest::read(&path).ok()).filter(|manifest| manifest.round > 0);
    let Some(manifest) = begun else {
        experiment.engine.earlier_devices.clear();
        said.into_iter().for_each(|device| experiment.engine.set_device(device));
        return Ok(());
    };
    let mut before = experiment.computed_on(&manifest.device);
    match said {
        Some(device) => before.move_to(device, experiment.engine.precision),
        None if before.engine.kind() == experiment.engine.kind() => {}
        None => return Err(other_device(folder, &manifest.device, &experiment.engine)),
    }
    *experiment = before;
    Ok(())
}

fn other_device(folder: &RunFolder, before: &str, now: &EngineSettings) -> Error {
    let problem =
        format!("`{}` was computed on `{before}` so far, and `engine.device` is now `{}`", folder.path().display(), now.kind());
    let hint = format!(
        "set `engine.device` back in its `experiment.toml` (and `engine.precision`), or say `--device {}` to compute the rest there: \
         the result is then that of neither device",
        now.device
    );
    Error::invalid(problem, hint)
}

/// A run that was killed before its first checkpoint has lost nothing.
fn start_over(folder: &RunFolder, which: Which, server: ServerState) -> Result<Position> {
    if which == Which::Previous {
        let problem = format!("`{}` has no checkpoint before its last", folder.path().display());
        return Err(Error::invalid(problem, "leave out `--previous`, or start a new run"));
    }
    if length(&folder.rounds_file()) > 0 {
        // The first checkpoint is written before the first round.
        return Err(Error::damaged(&folder.checkpoints(), "there is no checkpoint left in it, though rounds have been trained"));
    }
    Journals(folder).cut_back(&BTreeMap::new(), 0)?;
    Ok(Position { server, clients: BTreeMap::new(), traffic: Traffic::default(), stage: Stage::Training })
}

/// The bytes of a file whose name holds their fingerprint.
fn ensure_named_by_content(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).map_err(|error| Error::damaged(path, format!("it cannot be read: {error}")))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if name.contains(&fingerprint(&bytes)) {
        return Ok(bytes);
    }
    Err(Error::damaged(path, "its content does not match its name"))
}

fn read_server(folder: &RunFolder, manifest: &Manifest, fresh: &ServerState) -> Result<ServerState> {
    let path = folder.checkpoints().join(&manifest.server);
    let bytes = ensure_named_by_content(&path)?;
    ServerState::from_bytes(&bytes, manifest.round, fresh).map_err(|error| Error::damaged(&path, error.to_string()))
}

/// Keeps the run every so many rounds, after some time, when it is stopped, and at the end.
pub(super) struct Checkpointer<'a> {
    folder: &'a RunFolder,
    seal: &'a Seal,
    every: u64,
    interval: Duration,
    keeps_nothing: bool,
    /// What was complete last.
    settled: ServerSnapshot,
    /// The round of the last checkpoint, and when it was written.
    kept: (u64, Instant),
}

/// A moment between rounds, beside what the clients' store knows of it.
struct ServerSnapshot {
    server: ServerState,
    traffic: Traffic,
    lengths: Lengths,
}

impl<'a> Checkpointer<'a> {
    /// Continues from a position that is kept already.
    pub(super) fn new(folder: &'a RunFolder, seal: &'a Seal, engine: &EngineSettings, position: &Position) -> Self {
        let interval = Duration::from_secs(engine.checkpoint_seconds);
        Self { every: engine.checkpoint_every, interval, ..Self::every_round(folder, seal, position) }
    }

    /// The same, keeping every round.
    pub(super) fn every_round(folder: &'a RunFolder, seal: &'a Seal, position: &Position) -> Self {
        let settled =
            ServerSnapshot { server: position.server.clone(), traffic: position.traffic, lengths: Journals(folder).lengths() };
        let kept = (position.server.round, Instant::now());
        Self { folder, seal, every: 1, interval: Duration::MAX, keeps_nothing: false, settled, kept }
    }

    /// The same, writing nothing: whoever resumes the run finds it where it stood.
    pub(super) fn keeping_nothing(self) -> Self {
        Self { keeps_nothing: true, ..self }
    }

    /// Keeps the run at its end, and then nothing else.
    pub(super) fn finish<T: Transport + StateKeeper>(&mut self, server: &ServerState, transport: &mut T) -> Result<()> {
        self.keep(server, Stage::Finished, transport.traffic(), transport)
    }

    /// A finished run needs no checkpoint to fall back on; its last one is the same however often it was kept or stopped before.
    pub(super) fn keep_only_last(&self, states: &mut impl StateKeeper) -> Result<()> {
        prune(self.folder, states, 1)
    }

    /// Goes back to the last moment between rounds and keeps it: the run was stopped, or it failed.
    pub(super) fn keep_settled(&mut self, states: &mut impl StateKeeper) -> Result<()> {
        states.roll_back()?;
        Journals(self.folder).cut_to(&self.settled.lengths)?;
        if self.kept.0 == self.settled.server.round {
            return Ok(());
        }
        let (server, traffic) = (self.settled.server.clone(), self.settled.traffic);
        self.keep(&server, Stage::Training, traffic, states)
    }

    fn keep(&mut self, server: &ServerState, stage: Stage, traffic: Traffic, states: &mut impl StateKeeper) -> Result<()> {
        if self.keeps_nothing {
            return Ok(());
        }
        // The one before the last makes room before the next is written, so that no more than two are ever there.
        prune(self.folder, states, KEPT - 1)?;
        let position = Position { server: server.clone(), clients: states.flush()?, traffic, stage };
        save(self.folder, self.seal, &position)?;
        self.kept = (server.round, Instant::now());
        prune(self.folder, states, KEPT)
    }

    fn is_due(&self, round: u64) -> bool {
        round.is_multiple_of(self.every) || self.kept.1.elapsed() >= self.interval
    }
}

impl<T: Transport + StateKeeper> Observer<T> for Checkpointer<'_> {
    fn observe(&mut self, event: &Event<'_>, transport: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Settled { server, last } = event {
            transport.settle()?;
            let (traffic, lengths) = (transport.traffic(), Journals(self.folder).lengths());
            self.settled = ServerSnapshot { server: (*server).clone(), traffic, lengths };
            if *last || self.is_due(server.round) {
                self.keep(server, Stage::Training, traffic, transport)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
