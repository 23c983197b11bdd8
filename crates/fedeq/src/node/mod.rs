//! A client of a real federation: the work behind `fedeq node`.
//!
//! The server sends the experiment with every request; the data, the state and the number of the client stay here. A request is carried out as in
//! the simulation: by `fedeq_core::Client`, with the same seeds, to the same bytes. But only the experiment that the owner of the node has accepted is
//! carried out ([`Terms`]).
mod terms;

use std::path::{Path, PathBuf};

use fedeq_core::{
    Client, ClientByClient, ClientState, ClientTask, Error, KnownModel, Reply, Request, Result, SecureClient, SigningSecret,
    Update, Workers, client_seed, decode_model, shared_part,
};
use fedeq_data::Seed;
use fedeq_flower::envelope::Envelope;
use fedeq_flower::node::{Accepted, Objection, WorkResult, Worker};
use fedeq_flower::store::TrainedModel;

use fedeq_run::experiment::{Experiment, Prepared};
use fedeq_run::run::ClientModel;

use terms::Signer;

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
    /// What was trained last and is to be part of a sum. In memory only: a node that restarts has dropped out of the round.
    secure: Option<SecureClient>,
    /// The key by which other clients know it, if it has one.
    signing: Option<SigningSecret>,
}

impl NodeWorker {
    /// Client `client` of a federation, with its data and what its owner has agreed to.
    pub fn new(client: usize, data: PathBuf, terms: Terms) -> Self {
        Self { client, data, terms, prepared: None, workers: None, secure: None, signing: None }
    }

    /// The same, known to other clients by its key.
    pub fn signing_with(mut self, signing: Option<SigningSecret>) -> Self {
        self.signing = signing;
        self
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

    /// Answers a message of secure aggregation.
    fn aggregate(&mut self, envelope: &Envelope) -> Result<WorkResult> {
        let Envelope { federation, request, payload, .. } = envelope;
        let message = payload.as_ref().map(|payload| payload.bytes.as_slice());
        let message =
            message.ok_or_else(|| Error::invalid("the message of secure aggregation is missing", "the server must send one"))?;
        let session = self.secure.as_mut().filter(|secure| secure.is_of(federation, request.round)).ok_or_else(|| {
            let problem = format!("this node has nothing to add to the sum of round {}", request.round + 1);
            Error::invalid(problem, "a node that was restarted after it trained has dropped out of the round")
        })?;
        Ok(WorkResult { reply: Reply::Aggregation(session.answer(message)?), state: None })
    }

    fn carry_out(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> Result<WorkResult> {
        if envelope.request.task == ClientTask::Aggregate {
            return self.aggregate(envelope);
        }
        let number = self.client;
        let (workers, terms, signing) = (self.workers()?, self.terms.clone(), self.signing.clone());
        let prepared = self.prepare(&envelope.experiment)?;
        terms.check_samples(prepared, number)?;
        require_all_updates(prepared, &envelope.request)?;
        let mut state = state_of(prepared, number, state)?;
        require_new(&envelope.request, &state)?;
        let request = request_of(prepared, envelope, number, &state)?;
        let engine = ClientByClient::new(prepared, workers);
        let Experiment { method, training, plan, .. } = &prepared.experiment;
        let seed = client_seed(prepared.clients_seed(), number);
        let mut client = Client {
            algorithm: method.algorithm(),
            training,
            engine: &engine,
            number,
            state: &mut state,
            seed,
            compression: plan.compression.as_ref(),
        };
        let reply = protected(prepared, client.handle(&request)?, &request)?;
        let mut secure = None;
        if let Reply::Update(update) = &reply {
            secure = secured(prepared, number, signing.as_ref(), &request, update, &envelope.federation)?;
        }
        let reply = if secure.is_some() { reply.masked() } else { reply };
        let reply = terms.disclosure.apply(reply, method.algorithm().weighting());
        let is_changed = request.task.changes_state();
        let result = WorkResult { reply, state: is_changed.then(|| state.to_bytes()).transpose()? };
        if secure.is_some() {
            self.secure = secure;
        }
        Ok(result)
    }
}

/// What a client trained, for the sum of the round where the server learns only that.
fn secured(
    prepared: &Prepared,
    client: usize,
    signing: Option<&SigningSecret>,
    request: &Request,
    update: &Update,
    federation: &str,
) -> Result<Option<SecureClient>> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let algorithm = method.algorithm();
    let Some(rounds) = plan.secure_rounds(algorithm, prepared.splits.clients.len())? else { return Ok(None) };
    SecureClient::new(rounds, client, signing, algorithm, federation, request, update, secret_seed()?).map(Some)
}

/// A reply with the client's part of the noise, where clients add it to what they send in clear; where the server gets only a sum, it is added under the masks.
fn protected(prepared: &Prepared, reply: Reply, request: &Request) -> Result<Reply> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let (algorithm, clients) = (method.algorithm(), prepared.splits.clients.len());
    let Some((privacy, mechanism)) = plan.privacy.zip(plan.mechanism(algorithm, clients)?) else { return Ok(reply) };
    if plan.secure_aggregation.is_some() {
        return Ok(reply);
    }
    privacy.protect(&mechanism, algorithm, reply, &request.weights, secret_seed()?)
}

/// What noise comes from: the system's randomness, so that a server cannot subtract it.
fn secret_seed() -> Result<Seed> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| {
        Error::invalid(format!("the system gives no randomness: {error}"), "noise cannot be drawn without it")
    })?;
    Ok(Seed::from_secret(secret))
}

/// A request with its weights: those that were sent, or what a codec wrote of them.
fn request_of(prepared: &Prepared, envelope: &Envelope, client: usize, state: &ClientState) -> Result<Request> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let compression = plan.compression.filter(|_| envelope.request.task == ClientTask::Train);
    let codec = compression.and_then(|compression| compression.down);
    match (compression.zip(codec), &envelope.payload) {
        (None, None) => Ok(envelope.request.clone()),
        (Some((compression, codec)), Some(payload)) => {
            let first = shared_part(method.algorithm(), &prepared.fresh_state(client).own);
            let known = KnownModel::of(&compression, &state.compression, envelope.request.round, || first.clone());
            Ok(Request { weights: decode_model(&payload.bytes, codec, &known, &first)?, ..envelope.request.clone() })
        }
        (expected, _) => {
            let problem = if expected.is_some() { "the weights are not compressed" } else { "the weights are compressed" };
            Err(Error::invalid(
                format!("{problem}, which is not what the experiment says"),
                "the server must follow `plan.compression`",
            ))
        }
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

/// Refuses to train for more updates than an asynchronous experiment has: each is a turn of this client's, and how many there are depends on how many clients the data have.
fn require_all_updates(prepared: &Prepared, request: &Request) -> Result<()> {
    let plan = &prepared.experiment.plan;
    if request.task != ClientTask::Train || plan.asynchronous.is_none() {
        return Ok(());
    }
    let in_a_round = plan.sampling.cohort_size(prepared.splits.clients.len())? as u64;
    if request.rounds == plan.rounds.saturating_mul(in_a_round) {
        return Ok(());
    }
    let problem =
        format!("the request says `rounds = {}`, and the experiment has {in_a_round} updates in each round", request.rounds);
    Err(Error::invalid(problem, "the server must ask for what the experiment says"))
}

/// The model that a node has trained, ready to predict without a server.
pub fn load_model(trained: &TrainedModel, data: &Path) -> Result<(Prepared, ClientModel)> {
    let TrainedModel { client, state, latest, .. } = trained;
    let client = usize::try_from(*client).unwrap_or(usize::MAX);
    let prepared = prepare(&latest.experiment, client, data)?;
    let state = state_of(&prepared, client, Some(state))?;
    // What came as a codec wrote it is in the state as numbers.
    let received = state.compression.received.as_ref().filter(|_| latest.payload.is_some());
    let weights = received.map_or(&latest.request.weights, |received| &received.weights);
    let model = ClientModel::of(&prepared, client, weights, &state)?;
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

    fn review(&self, envelope: &Envelope) -> std::result::Result<Accepted, Objection> {
        self.terms.review(envelope, &Signer { client: self.client, signing: self.signing.as_ref() })
    }

    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> std::result::Result<WorkResult, String> {
        self.carry_out(envelope, state).map_err(|error| format!("{error}; {}", error.hint()))
    }
}
