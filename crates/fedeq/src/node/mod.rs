//! A client of a real federation: the work behind `fedeq node`.
//!
//! The server sends the experiment with every request; data, state and who this client is stay here. What is done with a request is what
//! the simulation does with it: `fedeq_core::Client`, the same seeds, the same bytes.
use std::path::{Path, PathBuf};

use fedeq_core::{Client, ClientState, Error, Request, Result, Sites, Task, client_seed};
use fedeq_flower::letter::Assignment;
use fedeq_flower::node::{Done, Worker};
use fedeq_flower::vault::Learned;

use fedeq_run::experiment::{Experiment, Prepared};
use fedeq_run::run::ClientModel;

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
            self.prepared = Some((text.to_owned(), prepare(text, self.number, &self.data)?));
        }
        Ok(self.prepared.as_ref().map(|(_, prepared)| prepared).expect("it was just put there"))
    }

    fn answer(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> Result<Done> {
        let number = self.number;
        let prepared = self.prepare(&assignment.experiment)?;
        let mut state = state_of(prepared, number, state)?;
        require_new(&assignment.request, &state)?;
        let site = prepared.site(number)?;
        let Experiment { method, training, .. } = &prepared.experiment;
        let seed = client_seed(prepared.clients_seed(), number);
        let mut client = Client { algorithm: method.algorithm(), training, site: site.as_ref(), state: &mut state, seed };
        let reply = client.handle(&assignment.request)?;
        let is_changed = assignment.request.task.changes_state();
        Ok(Done { reply, state: is_changed.then(|| state.to_bytes()).transpose()? })
    }
}

/// Refuses to train a round a second time: the dual would count it twice. Whoever repeats a question that is remembered never comes this far.
fn require_new(request: &Request, state: &ClientState) -> Result<()> {
    let is_over = request.task == Task::Train && state.last_round.is_some_and(|last| request.round <= last);
    let problem = || format!("round {} is over for this client, and it is asked for something else than then", request.round + 1);
    if is_over {
        Err(Error::invalid(problem(), "go on with the run that asked then, or begin anew with an empty `--state` folder"))
    } else {
        Ok(())
    }
}

/// The model that a node has learned, with the data in a folder: nobody else is needed to use it.
pub fn recall(learned: &Learned, data: &Path) -> Result<(Prepared, ClientModel)> {
    let Learned { client, state, latest, .. } = learned;
    let client = usize::try_from(*client).unwrap_or(usize::MAX);
    let prepared = prepare(&latest.experiment, client, data)?;
    let state = state_of(&prepared, client, Some(state))?;
    let model = ClientModel::of(&prepared, client, &latest.request.weights, &state);
    Ok((prepared, model))
}

/// What a node has learned, in a few words for people.
pub fn describe(learned: &Learned) -> Result<String> {
    let title = Experiment::from_resolved(&learned.latest.experiment)?.title();
    let Request { task, round, rounds, .. } = &learned.latest.request;
    let round = round + u64::from(*task == Task::Train); // Rounds are counted from 0, and judged when they are over.
    Ok(format!("{title}, round {round} of {rounds}"))
}

/// Loads a client's data and builds its network.
fn prepare(experiment: &str, client: usize, data: &Path) -> Result<Prepared> {
    let prepared = Experiment::from_resolved(experiment)?.on_another_machine(data.to_owned()).at_client(client).prepare()?;
    prepared.require_client(client)?;
    Ok(prepared)
}

/// A client's state as it was kept; before anything was kept, a fresh one.
fn state_of(prepared: &Prepared, client: usize, kept: Option<&[u8]>) -> Result<ClientState> {
    let fresh = prepared.fresh_state(client);
    kept.map_or(Ok(fresh.clone()), |bytes| ClientState::from_bytes(bytes, &fresh))
}

impl Worker for Member {
    fn number(&self) -> u64 {
        self.number as u64
    }

    fn work(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> std::result::Result<Done, String> {
        self.answer(assignment, state).map_err(|error| error.to_string())
    }
}
