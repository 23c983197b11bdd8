//! Where the states of simulated clients live: in memory up to a cap, beyond it on disk.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::file::{fingerprint, write_atomically};
use crate::state::{ClientState, KeptState};

/// The states of all clients of a simulation, by client number. Clients that have not trained yet take no room: they are all
/// alike but for their dual, which is made when it is asked for.
pub struct ClientStore {
    fresh: Box<dyn Fn(usize) -> ClientState + Send + Sync>,
    memory: BTreeMap<usize, CachedState>,
    /// Client numbers by the time they were last used.
    recent: BTreeMap<u64, usize>,
    clock: u64,
    bytes: usize,
    capacity: usize,
    folder: PathBuf,
    /// The file of each client's state as it is on disk.
    files: BTreeMap<usize, String>,
    /// What clients that changed since the last settled moment were then.
    settled: BTreeMap<usize, SavedState>,
    /// Files that a checkpoint may name; others go as soon as they are not needed.
    named: BTreeSet<String>,
}

/// What a client was at the last settled moment.
enum SavedState {
    /// What is in this file, or fresh.
    OnDisk(Option<String>),
    /// A state that no file holds.
    InMemory(Box<KeptState>),
}

struct CachedState {
    state: KeptState,
    time: u64,
    size: usize,
    /// Whether the state differs from what is on disk.
    changed: bool,
}

impl ClientStore {
    /// A store that keeps up to `capacity` bytes of states in memory and the rest in `folder`, which is made when needed.
    pub fn new(folder: PathBuf, capacity: usize, fresh: impl Fn(usize) -> ClientState + Send + Sync + 'static) -> Self {
        Self {
            fresh: Box::new(fresh),
            memory: BTreeMap::new(),
            recent: BTreeMap::new(),
            clock: 0,
            bytes: 0,
            capacity,
            folder,
            files: BTreeMap::new(),
            settled: BTreeMap::new(),
            named: BTreeSet::new(),
        }
    }

    /// The folder in which states are kept.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes of states in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A copy of a client's state, as plain numbers.
    pub fn get(&mut self, client: usize) -> Result<ClientState> {
        Ok(self.get_kept(client)?.to_host()?.into_owned())
    }

    /// A copy of a client's state, as it is kept.
    pub fn get_kept(&mut self, client: usize) -> Result<KeptState> {
        if let Some(held) = self.memory.get_mut(&client) {
            self.clock += 1;
            self.recent.remove(&held.time);
            self.recent.insert(self.clock, client);
            held.time = self.clock;
            return Ok(held.state.clone());
        }
        let fresh = (self.fresh)(client);
        let Some(file) = self.files.get(&client) else { return Ok(fresh.into()) };
        let path = self.folder.join(file);
        let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
        if !file.contains(&fingerprint(&bytes)) {
            return Err(Error::damaged(&path, "its content does not match its name"));
        }
        let state = ClientState::from_bytes(&bytes, &fresh).map_err(|error| Error::damaged(&path, error.to_string()))?;
        let state = KeptState::from(state);
        self.hold(client, state.clone(), false)?;
        Ok(state)
    }

    /// A client as it was before it trained.
    pub(crate) fn fresh(&self, client: usize) -> ClientState {
        (self.fresh)(client)
    }

    /// A client's new state.
    pub fn put(&mut self, client: usize, state: impl Into<KeptState>) -> Result<()> {
        if !self.settled.contains_key(&client) {
            let settled = self.as_settled(client);
            self.settled.insert(client, settled);
        }
        self.hold(client, state.into(), true)
    }

    /// What clients are now is what [`roll_back`](Self::roll_back) goes back to.
    pub fn settle(&mut self) -> Result<()> {
        for (client, settled) in std::mem::take(&mut self.settled) {
            self.bytes -= settled.size();
            if let SavedState::OnDisk(Some(file)) = settled {
                self.remove_if_unused(client, &file)?;
            }
        }
        Ok(())
    }

    /// Clients are again what they were at the last settled moment.
    pub fn roll_back(&mut self) -> Result<()> {
        for (client, settled) in std::mem::take(&mut self.settled) {
            self.bytes -= settled.size();
            self.release(client);
            match settled {
                SavedState::InMemory(state) => self.hold(client, *state, true)?,
                SavedState::OnDisk(Some(file)) => drop(self.files.insert(client, file)),
                SavedState::OnDisk(None) => drop(self.files.remove(&client)),
            }
        }
        Ok(())
    }

    /// Writes every state that is not on disk yet; returns the file of every client that has trained.
    pub fn flush(&mut self) -> Result<BTreeMap<usize, String>> {
        let changed: Vec<usize> = self.memory.iter().filter(|(_, held)| held.changed).map(|(&client, _)| client).collect();
        for client in changed {
            self.write(client)?;
        }
        self.named.extend(self.files.values().cloned());
        Ok(self.files.clone())
    }

    /// Goes back to the states in these files, as [`flush`](Self::flush) gave them.
    pub fn restore(&mut self, files: BTreeMap<usize, String>) {
        self.memory.clear();
        self.recent.clear();
        self.settled.clear();
        self.bytes = 0;
        self.named.extend(files.values().cloned());
        self.files = files;
    }

    /// Removes files that none of these names, such as states from before the last checkpoints.
    pub fn remove_all_but(&mut self, wanted: &BTreeSet<String>) -> Result<()> {
        self.named.clone_from(wanted);
        let Ok(entries) = fs::read_dir(&self.folder) else { return Ok(()) };
        let current: BTreeSet<&String> = self.files.values().collect();
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if !wanted.contains(&name) && !current.contains(&name) {
                fs::remove_file(entry.path()).map_err(Error::io(&entry.path(), "remove it"))?;
            }
        }
        Ok(())
    }

    /// What a client is now, to come back to.
    fn as_settled(&mut self, client: usize) -> SavedState {
        let on_disk = SavedState::OnDisk(self.files.get(&client).cloned());
        let settled = match self.memory.get(&client) {
            Some(held) if held.changed => SavedState::InMemory(Box::new(held.state.clone())),
            _ => on_disk,
        };
        self.bytes += settled.size();
        settled
    }

    fn hold(&mut self, client: usize, state: KeptState, changed: bool) -> Result<()> {
        self.release(client);
        let size = state.size();
        self.clock += 1;
        self.bytes += size;
        self.recent.insert(self.clock, client);
        self.memory.insert(client, CachedState { state, time: self.clock, size, changed });
        if self.bytes > self.capacity {
            self.put_settled_on_disk()?;
        }
        while self.bytes > self.capacity && self.memory.len() > 1 {
            let (_, &oldest) = self.recent.first_key_value().expect("memory is not empty");
            if self.memory[&oldest].changed {
                self.write(oldest)?;
            }
            self.release(oldest);
        }
        Ok(())
    }

    fn release(&mut self, client: usize) {
        if let Some(held) = self.memory.remove(&client) {
            self.bytes -= held.size;
            self.recent.remove(&held.time);
        }
    }

    /// Makes room: states to come back to are wanted only if a run is stopped.
    fn put_settled_on_disk(&mut self) -> Result<()> {
        for (&client, settled) in &mut self.settled {
            if let SavedState::InMemory(state) = settled {
                let name = write_state(&self.folder, client, state)?;
                self.bytes -= settled.size();
                *settled = SavedState::OnDisk(Some(name));
            }
        }
        Ok(())
    }

    fn write(&mut self, client: usize) -> Result<()> {
        let held = self.memory.get_mut(&client).expect("only what is held is written");
        let name = write_state(&self.folder, client, &held.state)?;
        held.changed = false;
        match self.files.insert(client, name) {
            Some(old) => self.remove_if_unused(client, &old),
            None => Ok(()),
        }
    }

    /// Removes a client's file, unless it holds what the client is or was, or a checkpoint may name it.
    fn remove_if_unused(&self, client: usize, file: &str) -> Result<()> {
        let is_now = self.files.get(&client).is_some_and(|now| now == file);
        let was = matches!(self.settled.get(&client), Some(SavedState::OnDisk(Some(was))) if was == file);
        if is_now || was || self.named.contains(file) {
            return Ok(());
        }
        let path = self.folder.join(file);
        fs::remove_file(&path).map_err(Error::io(&path, "remove it"))
    }
}

impl SavedState {
    /// The bytes it takes in memory.
    fn size(&self) -> usize {
        match self {
            Self::OnDisk(_) => 0,
            Self::InMemory(state) => state.size(),
        }
    }
}

/// A state's file is named by its content, so that what a checkpoint names stays as it was.
fn write_state(folder: &Path, client: usize, state: &KeptState) -> Result<String> {
    let bytes = state.to_host()?.to_bytes()?;
    let name = format!("{client:06}-{}.safetensors", fingerprint(&bytes));
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    write_atomically(&folder.join(&name), &bytes)?;
    Ok(name)
}
