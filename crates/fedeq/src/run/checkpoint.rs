//! Keeping a run, and coming back to it.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;

use fedeq_core::{
    ClientStore, Error, Event, InProcess, Observer, Result, ServerState, Traffic, Transport, fingerprint, write_atomically,
};

use super::folder::RunFolder;
use super::journal::Stamp;
use super::manifest::{Manifest, Stage, list};

/// Which checkpoint to come back to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Which {
    /// The last one.
    #[default]
    Latest,
    /// The one before it.
    Previous,
}

/// Where a run stands: all that is needed to go on.
#[derive(Clone, Debug)]
pub(super) struct Position {
    pub(super) server: ServerState,
    pub(super) clients: BTreeMap<usize, String>,
    pub(super) traffic: Traffic,
    pub(super) stage: Stage,
}

/// How many checkpoints are kept.
const KEPT: usize = 2;

/// Writes a checkpoint: first what the manifest names, then the manifest.
pub(super) fn save(folder: &RunFolder, experiment: &str, position: &Position) -> Result<()> {
    let checkpoints = folder.checkpoints();
    fs::create_dir_all(&checkpoints).map_err(Error::io(&checkpoints, "create it"))?;
    let bytes = position.server.to_bytes()?;
    let server = format!("server-{}.safetensors", fingerprint(&bytes));
    write_atomically(&checkpoints.join(&server), &bytes)?;
    let manifest = Manifest {
        experiment: experiment.to_owned(),
        round: position.server.round,
        stage: position.stage,
        server,
        clients: position.clients.clone(),
        rounds: Stamp::of(&folder.rounds_file())?,
        evaluations: Stamp::of(&folder.evaluations_file())?,
        traffic: position.traffic,
    };
    manifest.write(&checkpoints)
}

/// Removes all but the last checkpoints, and the files that none of these names.
pub(super) fn prune(folder: &RunFolder, store: &ClientStore) -> Result<()> {
    let manifests = list(&folder.checkpoints())?;
    let (old, kept) = manifests.split_at(manifests.len().saturating_sub(KEPT));
    old.iter().try_for_each(|path| remove(path))?;
    let kept = kept.iter().map(|path| Manifest::read(path)).collect::<Result<Vec<_>>>()?;
    let servers: BTreeSet<&str> = kept.iter().map(|manifest| manifest.server.as_str()).collect();
    remove_other_servers(&folder.checkpoints(), &servers)?;
    store.remove_all_but(&kept.into_iter().flat_map(|manifest| manifest.clients.into_values()).collect())
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

fn remove(path: &Path) -> Result<()> {
    fs::remove_file(path).map_err(Error::io(path, "remove it"))
}

/// Comes back to a checkpoint: checks everything it names, then cuts the journals back and forgets later checkpoints.
///
/// `fresh` is the server before the first round, which is where a run without any checkpoint stands.
pub(super) fn restore(folder: &RunFolder, experiment: &str, which: Which, fresh: ServerState) -> Result<Position> {
    let mut manifests = list(&folder.checkpoints())?;
    let later = if which == Which::Previous { manifests.pop() } else { None };
    let Some(path) = manifests.pop() else { return start_over(folder, which, fresh) };
    let (manifest, position) = read(folder, experiment, &path, &fresh)?;
    manifest.rounds.cut_back(&folder.rounds_file())?;
    manifest.evaluations.cut_back(&folder.evaluations_file())?;
    later.iter().try_for_each(|path| remove(path))?;
    Ok(position)
}

/// The last checkpoint, with everything it names checked and nothing changed.
pub(super) fn last(folder: &RunFolder, experiment: &str, fresh: &ServerState) -> Result<Position> {
    let missing = || Error::damaged(&folder.checkpoints(), "there is no checkpoint in it");
    let path = list(&folder.checkpoints())?.pop().ok_or_else(missing)?;
    read(folder, experiment, &path, fresh).map(|(_, position)| position)
}

fn read(folder: &RunFolder, experiment: &str, path: &Path, fresh: &ServerState) -> Result<(Manifest, Position)> {
    let manifest = Manifest::read(path)?;
    if manifest.experiment != experiment {
        return Err(Error::damaged(path, "it belongs to another experiment"));
    }
    let server = read_server(folder, &manifest, fresh)?;
    manifest.clients.values().try_for_each(|file| ensure_named_by_content(&folder.clients().join(file)).map(|_| ()))?;
    let (clients, traffic, stage) = (manifest.clients.clone(), manifest.traffic, manifest.stage);
    Ok((manifest, Position { server, clients, traffic, stage }))
}

/// A run that was killed before its first checkpoint has lost nothing.
fn start_over(folder: &RunFolder, which: Which, server: ServerState) -> Result<Position> {
    if which == Which::Previous {
        let problem = format!("`{}` has no checkpoint before its last", folder.path().display());
        return Err(Error::invalid(problem, "leave out `--previous`, or start the run anew"));
    }
    for journal in [folder.rounds_file(), folder.evaluations_file()] {
        Stamp { bytes: 0, fingerprint: fingerprint(&[]) }.cut_back(&journal)?;
    }
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

/// Keeps the run every so many rounds, and at the end.
pub(super) struct Checkpointer<'a> {
    pub(super) folder: &'a RunFolder,
    pub(super) experiment: &'a str,
    pub(super) every: u64,
}

impl Checkpointer<'_> {
    /// Keeps the run as it is.
    pub(super) fn keep(&self, server: &ServerState, stage: Stage, transport: &mut InProcess<'_>) -> Result<()> {
        let position =
            Position { server: server.clone(), clients: transport.store().flush()?, traffic: transport.traffic(), stage };
        save(self.folder, self.experiment, &position)?;
        prune(self.folder, transport.store())
    }
}

impl<'t> Observer<InProcess<'t>> for Checkpointer<'_> {
    fn observe(&mut self, event: &Event<'_>, transport: &mut InProcess<'t>) -> Result<ControlFlow<()>> {
        if let Event::Settled { server, last } = event
            && (*last || server.round.is_multiple_of(self.every))
        {
            self.keep(server, Stage::Training, transport)?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
