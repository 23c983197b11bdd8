//! A client of a real federation: the work behind `fedeq node`.
//!
//! The server sends the experiment with every request; the data, the state and the number of the client stay here. A request is carried out as in
//! the simulation: by `fedeq_core::Client`, with the same seeds, to the same bytes. But only the experiment that the owner of the node has accepted is
//! carried out ([`Terms`]).
mod terms;

use std::path::{Path, PathBuf};

use fedeq_core::{Client, ClientByClient, ClientState, ClientTask, Error, Request, Result, Workers, client_seed};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::node::{Objection, WorkResult, Worker};
use fedeq_flower::store::TrainedModel;

use fedeq_run::experiment::{Experiment, Prepared};
use fedeq_run::run::ClientModel;

pub use terms::Terms;

/// Carries out requests on a client's data.
pub struct NodeWorker {
    /// Which client of the federation it is, from 0.
    client: usize,
    /// The folder or the file of its data.
    data: PathBuf,
    /// What its owner has agreed to.
    terms: Terms,
    /// The last experiment, with its text: reused if the next request is about the same.
    prepared: Option<(String, Prepared)>,
    /// The threads that train: they stay from one request to the next.
    workers: Option<Workers>,
}

impl NodeWorker {
    /// Client `client` of a federation, with its data and what its owner has agreed to.
    pub fn new(client: usize, data: PathBuf, terms: Terms) -> Self {
        Self { client, data, terms, prepared: None, workers: None }
    }

    /// Loads the data and builds the network, unless the last request was about the same experiment.
    fn prepare(&mut self, text: &str) -> Result<&Prepared> {
        if self.prepared.as_ref().is_none_or(|(known, _)| known != text) {
            self.prepared = Some((text.to_owned(), prepare(text, self.client, &self.data)?));
        }
        Ok(self.prepared.as_ref().map(|(_, prepared)| prepared).expect("it was just put there"))
    }

    fn workers(&mut self) -> Result<Workers> {
        let workers = self.workers.take().map_or_else(|| Workers::new(0), Ok)?;
        Ok(self.workers.insert(workers).clone())
    }

    fn carry_out(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> Result<WorkResult> {
        let number = self.client;
        let (workers, terms) = (self.workers()?, self.terms.clone());
        let prepared = self.prepare(&envelope.experiment)?;
        terms.check_samples(prepared, number)?;
        let mut state = state_of(prepared, number, state)?;
        require_new(&envelope.request, &state)?;
        let engine = ClientByClient::new(prepared, workers);
        let Experiment { method, training, .. } = &prepared.experiment;
        let seed = client_seed(prepared.clients_seed(), number);
        let mut client = Client {
            algorithm: method.algorithm(),
            training,
            engine: &engine,
            number,
            state: &mut state,
            seed,
            compression: None,
        };
        let reply = terms.disclosure.apply(client.handle(&envelope.request)?, Some(method.algorithm().weighting()));
        let is_changed = envelope.request.task.changes_state();
        Ok(WorkResult { reply, state: is_changed.then(|| state.to_bytes()).transpose()? })
    }
}

/// Refuses to train a round a second time: the dual would be updated twice. (A repeated request whose reply is stored does not reach this point.)
fn require_new(request: &Request, state: &ClientState) -> Result<()> {
    let is_over = request.task == ClientTask::Train && state.last_round.is_some_and(|last| request.round <= last);
    let problem =
        || format!("this client has trained in round {} before, from other weights or another experiment", request.round + 1);
    if is_over {
        Err(Error::invalid(problem(), "continue the earlier run, or start over with an empty `--state` folder"))
    } else {
        Ok(())
    }
}

/// The model that a node has trained, ready to predict without a server.
pub fn load_model(trained: &TrainedModel, data: &Path) -> Result<(Prepared, ClientModel)> {
    let TrainedModel { client, state, latest, .. } = trained;
    let client = usize::try_from(*client).unwrap_or(usize::MAX);
    let prepared = prepare(&latest.experiment, client, data)?;
    let state = state_of(&prepared, client, Some(state))?;
    let model = ClientModel::of(&prepared, client, &latest.request.weights, &state)?;
    Ok((prepared, model))
}

/// A short description of a trained model: experiment and round.
pub fn describe(trained: &TrainedModel) -> Result<String> {
    let title = Experiment::from_resolved(&trained.latest.experiment)?.title();
    let Request { task, round, rounds, .. } = &trained.latest.request;
    let round = round + u64::from(*task == ClientTask::Train); // Rounds are counted from 0, and evaluated when they are over.
    Ok(format!("{title}, round {round} of {rounds}"))
}

/// Loads a client's data and builds its network.
fn prepare(experiment: &str, client: usize, data: &Path) -> Result<Prepared> {
    let prepared = Experiment::from_resolved(experiment)?.on_another_machine(data.to_owned()).at_client(client).prepare()?;
    prepared.require_client(client)?;
    if prepared.experiment.plan.compression.is_some() {
        return Err(Error::invalid("`plan.compression` is not supported in a Flower federation yet", "leave it out"));
    }
    if prepared.experiment.plan.secure_aggregation.is_some() {
        return Err(Error::invalid("`plan.secure_aggregation` is not supported in a Flower federation yet", "leave it out"));
    }
    Ok(prepared)
}

/// A client's state as it was stored; a fresh one if none was.
fn state_of(prepared: &Prepared, client: usize, stored: Option<&[u8]>) -> Result<ClientState> {
    let fresh = prepared.fresh_state(client);
    stored.map_or(Ok(fresh.clone()), |bytes| ClientState::from_bytes(bytes, &fresh))
}

impl Worker for NodeWorker {
    fn client(&self) -> u64 {
        self.client as u64
    }

    fn review(&self, envelope: &Envelope) -> std::result::Result<String, Objection> {
        self.terms.review(envelope).map(|agreement| agreement.to_string())
    }

    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> std::result::Result<WorkResult, String> {
        self.carry_out(envelope, state).map_err(|error| format!("{error}; {}", error.hint()))
    }
}
