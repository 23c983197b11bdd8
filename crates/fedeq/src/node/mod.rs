//! A client of a real federation: the work behind `fedeq node`.
//!
//! The server sends the experiment with every request; data, state and who this client is stay here. What is done with a request is what
//! the simulation does with it: `fedeq_core::Client`, the same seeds, the same bytes.
use std::path::PathBuf;

use fedeq_core::{Client, ClientState, Result, Sites, client_seed};
use fedeq_flower::letter::Assignment;
use fedeq_flower::node::{Done, Worker};

use crate::experiment::{Experiment, Prepared};

/// A client, wherever its data lies.
pub struct Member {
    /// Which client of the federation it is, from 0.
    number: usize,
    /// Where its data lies.
    data: PathBuf,
    /// The experiment at work, by its text: kept from one request to the next.
    prepared: Option<(String, Prepared)>,
}

impl Member {
    /// Client `number` of a federation over the data in a folder.
    pub fn new(number: usize, data: PathBuf) -> Self {
        Self { number, data, prepared: None }
    }

    /// Loads data and builds the network, unless that was done for the request before.
    fn prepare(&mut self, text: &str) -> Result<&Prepared> {
        if self.prepared.as_ref().is_none_or(|(known, _)| known != text) {
            let mut experiment = Experiment::from_resolved(text)?;
            experiment.data.folder = self.data.clone();
            let prepared = experiment.prepare()?;
            prepared.require_client(self.number)?;
            self.prepared = Some((text.to_owned(), prepared));
        }
        Ok(self.prepared.as_ref().map(|(_, prepared)| prepared).expect("it was just put there"))
    }

    fn answer(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> Result<Done> {
        let number = self.number;
        let prepared = self.prepare(&assignment.experiment)?;
        let fresh = prepared.fresh_state(number);
        let mut state = state.map_or(Ok(fresh.clone()), |bytes| ClientState::from_bytes(bytes, &fresh))?;
        let site = prepared.site(number)?;
        let Experiment { method, training, .. } = &prepared.experiment;
        let seed = client_seed(prepared.clients_seed(), number);
        let mut client = Client { algorithm: method.algorithm(), training, site: site.as_ref(), state: &mut state, seed };
        let reply = client.handle(&assignment.request)?;
        let is_changed = assignment.request.task.changes_state();
        Ok(Done { reply, state: is_changed.then(|| state.to_bytes()).transpose()? })
    }
}

impl Worker for Member {
    fn number(&self) -> u64 {
        self.number as u64
    }

    fn work(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> std::result::Result<Done, String> {
        self.answer(assignment, state).map_err(|error| error.to_string())
    }
}
