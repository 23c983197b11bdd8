//! Where the states of simulated clients live: in memory up to a cap, beyond it on disk.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::file::{fingerprint, write_atomically};
use crate::state::ClientState;

/// The states of all clients of a simulation, by client number. Clients that have not trained yet take no room: they are all
/// alike but for their dual, which is made when it is asked for.
pub struct ClientStore {
    fresh: Box<dyn Fn(usize) -> ClientState + Send + Sync>,
    memory: BTreeMap<usize, Held>,
    /// Client numbers by the time they were last used.
    recent: BTreeMap<u64, usize>,
    clock: u64,
    bytes: usize,
    capacity: usize,
    folder: PathBuf,
    /// The file of each client's state as it is on disk.
    files: BTreeMap<usize, String>,
}

struct Held {
    state: ClientState,
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
        }
    }

    /// The folder in which states are kept.
    pub fn folder(&self) -> &std::path::Path {
        &self.folder
    }

    /// Bytes of states in memory.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// A copy of a client's state.
    pub fn get(&mut self, client: usize) -> Result<ClientState> {
        if let Some(held) = self.memory.get_mut(&client) {
            self.clock += 1;
            self.recent.remove(&held.time);
            self.recent.insert(self.clock, client);
            held.time = self.clock;
            return Ok(held.state.clone());
        }
        let fresh = (self.fresh)(client);
        let Some(file) = self.files.get(&client) else { return Ok(fresh) };
        let path = self.folder.join(file);
        let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
        if !file.contains(&fingerprint(&bytes)) {
            return Err(Error::damaged(&path, "its content does not match its name"));
        }
        let state = ClientState::from_bytes(&bytes, &fresh).map_err(|error| Error::damaged(&path, error.to_string()))?;
        self.hold(client, state.clone(), false)?;
        Ok(state)
    }

    /// A client's new state.
    pub fn put(&mut self, client: usize, state: ClientState) -> Result<()> {
        self.hold(client, state, true)
    }

    /// Writes every state that is not on disk yet; returns the file of every client that has trained.
    pub fn flush(&mut self) -> Result<BTreeMap<usize, String>> {
        let changed: Vec<usize> = self.memory.iter().filter(|(_, held)| held.changed).map(|(&client, _)| client).collect();
        for client in changed {
            self.write(client)?;
        }
        Ok(self.files.clone())
    }

    /// Goes back to the states in these files, as [`flush`](Self::flush) gave them.
    pub fn restore(&mut self, files: BTreeMap<usize, String>) {
        self.memory.clear();
        self.recent.clear();
        self.bytes = 0;
        self.files = files;
    }

    /// Removes files that none of these names, such as states from before the last checkpoints.
    pub fn remove_all_but(&self, wanted: &BTreeSet<String>) -> Result<()> {
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

    fn hold(&mut self, client: usize, state: ClientState, changed: bool) -> Result<()> {
        self.release(client);
        let size = state.size();
        self.clock += 1;
        self.bytes += size;
        self.recent.insert(self.clock, client);
        self.memory.insert(client, Held { state, time: self.clock, size, changed });
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

    /// A state's file is named by its content, so that what a checkpoint names stays as it was.
    fn write(&mut self, client: usize) -> Result<()> {
        let held = self.memory.get_mut(&client).expect("only what is held is written");
        let bytes = held.state.to_bytes()?;
        let name = format!("{client:06}-{}.safetensors", fingerprint(&bytes));
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create it"))?;
        write_atomically(&self.folder.join(&name), &bytes)?;
        held.changed = false;
        self.files.insert(client, name);
        Ok(())
    }
}
