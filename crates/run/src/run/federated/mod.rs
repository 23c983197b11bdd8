//! The server of a federation whose clients are elsewhere. Its run folder is the folder of the app that `fedeq init-federation` wrote.
//!
//! # Layout
//! - this file: a run, and the transport to clients elsewhere
//! - `models`: what clients have, where differences are sent
//! - `replies`: replies on disk until the server's state is
//! - `secret`: randomness that no client knows
//! - `sessions`: secure aggregation
mod models;
mod replies;
mod secret;
mod sessions;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{
    Acceptance, Algorithm, ClientInfo, ClientTask, Compression, Dropped, Error, Evaluation, Limits, Observer, Params, Reply,
    Request, Result, RoundContext, SecureMean, SecureRounds, Server, ServerState, Traffic, TrainStats, Transport, Unseen,
    Weights, encoded_len, fingerprint, framed_len, write_atomically,
};
use fedeq_data::Seed;
use fedeq_models::Part;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::checkpoint::{Checkpointer, Position, Seal, Stage, StateKeeper, Which, restore, save};
use super::control::{ControlThread, PauseGate};
use super::folder::{Lock, RunFolder, read_json, write_json};
use super::journal::{Journal, keep_lines};
use super::metadata::RunState;
use super::observer::LastEvaluation;
use super::progress::ProgressTracker;
use super::record::{FailedReply, Recorder};
use super::summary::RunSummary;
use crate::experiment::Experiment;

use models::SentModels;
use replies::{Cleaner, ReplyLog};
use secret::secret_of;
use sessions::Sessions;

/// What `plan.json` of an app says: all that is decided before a federation begins and is not in its experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FederationPlan {
    /// The name under which nodes store their states; unique to this app, so that it never continues from the states of another.
    pub federation: String,
    /// The number of clients that train.
    pub clients: usize,
    /// The number of clients that are met only after training; their numbers follow those of the others.
    #[serde(default)]
    pub unseen: usize,
    /// The summary as far as it is known before the run.
    pub summary: RunSummary,
}

const PLAN: &str = "plan.json";
const THETA: &str = "theta.safetensors";
/// Bytes of what a codec writes beside numbers, at most: scales of arrays and counts.
const PAYLOAD_MARGIN: usize = 1 << 16;

impl FederationPlan {
    /// All clients: those that train, and those that are met afterwards.
    pub fn everybody(&self) -> usize {
        self.clients + self.unseen
    }

    /// Writes it, with the weights that the server begins with, into the folder of an app.
    pub fn write(&self, folder: &Path, theta: &Weights) -> Result<()> {
        write_atomically(&folder.join(THETA), &theta.packed().to_bytes(&fedeq_core::Metadata::new())?)?;
        write_json(&folder.join(PLAN), self)
    }
}

/// A reply as it came from a node: read, and not yet checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedReply {
    /// Everything but the weights, as JSON.
    pub header: String,
    /// The weights; none where the reply has none.
    pub weights: Weights,
    /// What was sent in place of weights: what a codec wrote.
    pub payload: Option<Vec<u8>>,
}

/// A request to one client.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Whom it is for.
    pub client: usize,
    /// What is asked. Clients that are asked the same share it.
    pub request: &'a Request,
    /// What is sent to this client in place of the weights.
    pub payload: Option<&'a [u8]>,
}

impl ReceivedReply {
    /// The bytes it took on the wire.
    fn len(&self) -> u64 {
        match &self.payload {
            Some(payload) => framed_len(&self.header, payload.len()),
            None => encoded_len(self.header.clone(), &self.weights),
        }
    }
}

/// What became of a request: the reply, and the bytes that the request took.
struct Delivery {
    received: std::result::Result<ReceivedReply, Dropped>,
    down: u64,
}

/// Carries messages to clients elsewhere and their replies back.
pub trait ClientLink {
    /// Waits until clients `0..clients` can be reached, and says which cannot, and why.
    fn gather(&mut self, clients: usize, watch: &Watch) -> Result<Vec<Dropped>>;

    /// Sends each client its request; replies come in the same order.
    fn exchange(&mut self, requests: &[Outgoing<'_>], watch: &Watch) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>>;
}

/// What a link may ask and tell while it waits.
#[derive(Clone)]
pub struct Watch {
    gate: Arc<PauseGate>,
    progress: Arc<ProgressTracker>,
    folder: RunFolder,
    round: u64,
}

impl Watch {
    /// Whether somebody has asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.gate.is_stopped()
    }

    /// A client has replied.
    pub fn replied(&self, client: usize) {
        self.progress.replied(client);
    }

    /// A node says that it is a client, and is not taken for it. Written down, so that it can be found.
    pub fn refused(&self, node: &str, client: usize, reason: &str) -> Result<()> {
        let Dropped { reason, .. } = Dropped::new(client, reason);
        let failure = FailedReply { round: self.round, task: None, client, reason, node: Some(node.into()) };
        Journal::open(self.folder.failures_file())?.json(&failure)
    }

    /// Waits as long as the run is paused. True means stop.
    fn stops(&self, interrupted: &dyn Fn() -> bool) -> bool {
        self.gate.stops(interrupted)
    }
}

/// Clients elsewhere.
pub struct Remote<'a> {
    link: &'a mut dyn ClientLink,
    algorithm: &'a dyn Algorithm,
    acceptance: Acceptance,
    watch: Watch,
    interrupted: &'a (dyn Fn() -> bool + Sync),
    /// Whether clients have anything to do when training is over; if not, nobody is asked.
    finishes: bool,
    /// Replies since the last checkpoint, where clients may have been asked too often since to repeat them.
    replies: Option<ReplyLog>,
    /// How messages of training are compressed, if they are.
    compression: Option<&'a Compression>,
    /// What clients have, where differences are sent to them.
    models: Option<SentModels>,
    /// What noise comes from, where models are made private.
    secret: Option<Seed>,
    /// Sessions of secure aggregation, where the server learns only sums.
    sessions: Option<Sessions>,
    traffic: Traffic,
    seconds: f64,
}

/// Whoever watches a federation.
pub type FederationObserver<'a> = dyn for<'t> Observer<Remote<'t>> + 'a;

impl Remote<'_> {
    /// Sends requests, and gives replies in their order.
    fn carried(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<Delivery>> {
        let task = requests.first().map(|(_, request)| request.task);
        let models = self.models.as_ref().filter(|_| task == Some(ClientTask::Train));
        let begun = Instant::now();
        let encode = |(client, request): &(usize, &Request)| models.map(|models| models.encode(*client, request)).transpose();
        let encoded = requests.par_iter().map(encode).collect::<Result<Vec<_>>>()?;
        self.seconds += begun.elapsed().as_secs_f64();
        let outgoing: Vec<Outgoing<'_>> = requests
            .iter()
            .zip(&encoded)
            .map(|(&(client, request), encoded)| Outgoing {
                client,
                request,
                payload: encoded.as_ref().map(|model| &*model.body),
            })
            .collect();
        let received = self.received(&outgoing)?;
        let mut deliveries = Vec::with_capacity(received.len());
        for ((Outgoing { client, request, payload }, received), encoded) in outgoing.iter().zip(received).zip(&encoded) {
            if let (Some(models), Some(encoded)) = (&self.models, encoded) {
                models.note(*client, request.round, received.is_ok().then_some(&encoded.arrives))?;
            }
            let down = match payload {
                Some(payload) => framed_len(&request.header()?, payload.len()),
                None => encoded_len(request.header()?, &request.weights),
            };
            deliveries.push(Delivery { received, down });
        }
        Ok(deliveries)
    }

    /// Replies in the order of the requests: those that are on disk, and those that come now.
    fn received(&mut self, requests: &[Outgoing<'_>]) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>> {
        let Some(log) = &self.replies else { return self.link.exchange(requests, &self.watch) };
        let key = |outgoing: &Outgoing<'_>| ReplyLog::key(outgoing.client, outgoing.request);
        let keys = requests.iter().map(key).collect::<Result<Vec<_>>>()?;
        let mut known: Vec<Option<ReceivedReply>> = keys.iter().map(|key| log.read(key)).collect();
        let missing: Vec<usize> = (0..requests.len()).filter(|at| known[*at].is_none()).collect();
        let asked: Vec<Outgoing<'_>> = missing.iter().map(|at| requests[*at]).collect();
        let came = if asked.is_empty() { Vec::new() } else { self.link.exchange(&asked, &self.watch)? };
        let mut came: BTreeMap<usize, _> = missing.into_iter().zip(came).collect();
        let mut all = Vec::with_capacity(requests.len());
        for (at, key) in keys.iter().enumerate() {
            let reply = match (known[at].take(), came.remove(&at)) {
                (Some(known), _) => Ok(known),
                (None, Some(came)) => came,
                (None, None) => Err(Dropped::new(requests[at].client, "no reply")),
            };
            if let Ok(reply) = &reply {
                log.write(key, reply)?;
            }
            all.push(reply);
        }
        Ok(all)
    }

    /// A reply as numbers.
    fn read(&self, received: ReceivedReply, request: &Request) -> Result<Reply> {
        let ReceivedReply { header, weights, payload } = received;
        match (payload, self.compression.filter(|compression| compression.up.is_some())) {
            (Some(payload), Some(compression)) => {
                let reply = Reply::from_compressed(&header, payload)?;
                let bytes = reply.compressed().unwrap_or_default();
                let weights = compression.decompress(self.algorithm, bytes, &request.weights)?;
                Ok(reply.with_weights(weights))
            }
            (Some(_), None) => Err(Error::message("its weights are compressed, and are not expected to be")),
            (None, _) if self.sessions.is_some() => {
                let has_weights = weights != Weights::default();
                match Reply::from_parts(&header, weights)? {
                    Reply::Update(_) if has_weights => {
                        Err(Error::message("it has weights, of which the server wants only a sum"))
                    }
                    reply => Ok(reply.masked()),
                }
            }
            (None, compression) => match Reply::from_parts(&header, weights)? {
                Reply::Update(_) if compression.is_some() => Err(Error::message("its weights are not compressed")),
                reply => Ok(reply),
            },
        }
    }

    /// Whether messages to a task are counted: those of training, unless clients are only told that it is their turn.
    fn counts(&self, task: ClientTask) -> bool {
        task == ClientTask::Train && (self.algorithm.shares(Part::Shared) || self.algorithm.shares(Part::Personal))
    }
}

impl Transport for Remote<'_> {
    fn exchange(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<Reply, Dropped>>> {
        if self.watch.stops(&self.interrupted) {
            return Err(Error::Interrupted);
        }
        let Some((_, first)) = requests.first() else { return Ok(Vec::new()) };
        let task = first.task;
        if task == ClientTask::Finish && !self.finishes {
            return Ok(requests.iter().map(|_| Ok(Reply::Done(TrainStats::default()))).collect());
        }
        self.watch.round = self.watch.progress.activity().round;
        self.watch.progress.asked(task, &requests.iter().map(|(client, _)| *client).collect::<Vec<_>>());
        let deliveries = self.carried(requests)?;
        let begun = Instant::now();
        let counts = self.counts(task);
        let mut replies = Vec::with_capacity(deliveries.len());
        for ((client, request), Delivery { received, down }) in requests.iter().zip(deliveries) {
            if counts {
                self.traffic.down += down;
            }
            let reply = received.and_then(|received| {
                if counts {
                    self.traffic.up += received.len();
                }
                self.read(received, request).map_err(|error| Dropped::new(*client, &error.to_string()))
            });
            replies.push(reply);
        }
        self.seconds += begun.elapsed().as_secs_f64();
        Ok(replies)
    }

    fn acceptance(&self) -> Acceptance {
        self.acceptance
    }

    fn secret(&self) -> Option<Seed> {
        self.secret
    }

    fn secure_mean(&mut self, request: &Request, clients: &[usize]) -> Result<Option<SecureMean>> {
        self.summed(request, clients)
    }

    fn traffic(&self) -> Traffic {
        self.traffic
    }

    fn seconds(&self) -> f64 {
        self.seconds
    }
}

/// The clients keep their states themselves; only replies are kept until the server's state is.
impl StateKeeper for Remote<'_> {
    fn settle(&mut self) -> Result<()> {
        Ok(())
    }

    fn roll_back(&mut self) -> Result<()> {
        Ok(())
    }

    fn flush(&mut self) -> Result<BTreeMap<usize, String>> {
        Ok(BTreeMap::new())
    }

    /// Called when a checkpoint is on disk.
    fn remove_all_but(&mut self, _: &BTreeSet<String>) -> Result<()> {
        Ok(())
    }
}

/// The server's side of a federation, ready to go on from its last checkpoint.
pub struct FederatedRun {
    folder: RunFolder,
    experiment: Experiment,
    /// The experiment as nodes are sent it.
    text: String,
    plan: FederationPlan,
    fresh: ServerState,
    position: Position,
    seal: Seal,
    /// Given back when the run is dropped.
    _lock: Lock,
}

impl FederatedRun {
    /// Opens the folder of an app, for this process alone. Everything in it is checked.
    pub fn open(folder: &Path) -> Result<Self> {
        if !folder.join(PLAN).is_file() {
            let problem = format!("`{}` has no `{PLAN}`", folder.display());
            return Err(Error::invalid(problem, "give the folder of an app that `fedeq init-federation` wrote"));
        }
        let folder = RunFolder::at(folder.to_owned());
        let plan: FederationPlan = read_json(&folder.path().join(PLAN))?;
        let (experiment, text) = (folder.experiment()?, folder.experiment_text()?);
        experiment.method.algorithm().validate()?;
        experiment.plan.validate(experiment.method.algorithm())?;
        let fresh = ServerState::new(theta(folder.path())?, plan.clients, experiment.method.algorithm().initial_rho());
        let lock = folder.lock()?;
        let seal = Seal::of(&experiment)?;
        adopt_old_checkpoint(&folder, &seal, &fresh)?;
        let position = restore(&folder, &experiment, Which::Latest, fresh.clone())?;
        if folder.kept_rounds().is_none() {
            // A run without any checkpoint has no round in its journals.
            save(&folder, &seal, &position)?;
        }
        Ok(Self { folder, experiment, text, plan, fresh, position, seal, _lock: lock })
    }

    /// What it is, in a line.
    pub fn title(&self) -> String {
        format!(
            "{} with {} clients, {} of {} rounds done",
            self.experiment.title(),
            self.plan.clients,
            self.round(),
            self.rounds()
        )
    }

    /// What was decided beforehand.
    pub fn plan(&self) -> &FederationPlan {
        &self.plan
    }

    /// The experiment, as nodes are sent it.
    pub fn experiment(&self) -> &str {
        &self.text
    }

    /// The weights that the server began with: those of every message have their names and shapes.
    pub fn theta(&self) -> &Weights {
        &self.fresh.weights
    }

    /// The most bytes that a client sends in place of weights: no codec takes more than the numbers themselves, and messages of secure aggregation have sizes of their own.
    pub fn largest_payload(&self) -> usize {
        let Weights { params, statistics } = &self.fresh.weights;
        let numbers = 4 * (params.count() + statistics.count()) + PAYLOAD_MARGIN;
        let secure = self.secure_rounds().ok().flatten();
        let answer = secure.and_then(|secure| secure.largest_answer(self.plan.clients, &self.fresh.weights).ok());
        numbers.max(answer.unwrap_or_default())
    }

    /// Rounds that are over.
    pub fn round(&self) -> u64 {
        self.position.server.round
    }

    /// Rounds in all.
    pub fn rounds(&self) -> u64 {
        self.experiment.plan.rounds
    }

    /// Carries it out to the end. If it is stopped or fails, all rounds that were over are kept.
    ///
    /// While it works it also obeys the [`ControlCommand`](super::ControlCommand) in its folder. `distance` is the largest that an update may have from what was sent.
    pub fn train(
        &self,
        link: &mut dyn ClientLink,
        quorum: f64,
        distance: f64,
        observer: &mut FederationObserver<'_>,
        interrupted: &(dyn Fn() -> bool + Sync),
    ) -> Result<RunSummary> {
        let limits = Limits { distance, fixed_points: self.experiment.training.watch_fixed_points.is_some() };
        let acceptance = Acceptance { quorum, limits: Some(limits) };
        acceptance.validate()?;
        self.folder.remove_command()?;
        self.folder.write_version(None)?;
        self.folder.write_status(RunState::Running)?;
        let (gate, progress) = (Arc::new(PauseGate::default()), Arc::new(ProgressTracker::after(self.round())));
        let control = ControlThread { folder: &self.folder, gate: &gate, progress: &progress };
        let watch =
            Watch { gate: Arc::clone(&gate), progress: Arc::clone(&progress), folder: self.folder.clone(), round: self.round() };
        let outcome = control.beside(|| self.work(link, acceptance, observer, interrupted, watch));
        let noted = self.folder.write_status(RunState::after(&outcome));
        // What went wrong first is what there is to tell.
        outcome.and_then(|summary| noted.map(|()| summary))
    }

    fn work(
        &self,
        link: &mut dyn ClientLink,
        acceptance: Acceptance,
        observer: &mut FederationObserver<'_>,
        interrupted: &(dyn Fn() -> bool + Sync),
        watch: Watch,
    ) -> Result<RunSummary> {
        let Self { folder, position, .. } = self;
        if let (Stage::Finished, Some(summary)) = (position.stage, folder.summary()?) {
            return Ok(summary);
        }
        let missing = link.gather(self.plan.everybody(), &watch)?;
        acceptance.require_quorum("have a node", self.plan.everybody() - missing.len(), &missing)?;
        let plan = &self.experiment.plan;
        // Between two checkpoints clients are asked many things, or for what they give only once.
        let logs_replies = plan.asynchronous.is_some() || plan.secure_aggregation.is_some();
        let replies = logs_replies.then(|| ReplyLog { folder: folder.path().join("replies") });
        let algorithm = self.experiment.method.algorithm();
        let finishes = self.finishes();
        let traffic = position.traffic;
        let (gate, progress) = (Arc::clone(&watch.gate), Arc::clone(&watch.progress));
        let compression = self.experiment.plan.compression.as_ref();
        let models = self.models();
        let mut transport = Remote {
            link,
            algorithm,
            acceptance,
            watch,
            interrupted,
            finishes,
            replies,
            compression,
            models,
            secret: self.experiment.plan.privacy.map(|_| secret_of(folder.path())).transpose()?,
            sessions: self.sessions()?,
            traffic,
            seconds: 0.0,
        };
        let mut server = position.server.clone();
        let mut checkpointer = Checkpointer::every_round(folder, &self.seal, position);
        let done = self.federate(&mut server, &mut transport, &mut checkpointer, observer, &gate, &progress);
        let met = done.and_then(|evaluation| Ok((evaluation, self.meet_unseen(&server, &mut transport)?)));
        let (evaluation, unseen) = match met {
            Ok(met) => met,
            Err(error) => {
                return Err(match (checkpointer.keep_settled(&mut transport), error) {
                    (Err(problem), Error::Interrupted) => problem,
                    (_, error) => error,
                });
            }
        };
        checkpointer.finish(&server, &mut transport)?;
        let mut summary = self.plan.summary.clone().completed(folder, evaluation, unseen)?;
        let mechanism = plan.mechanism(algorithm, self.plan.clients)?;
        summary.privacy = mechanism.map(|mechanism| mechanism.summary(server.round));
        folder.write_summary(&summary)?;
        checkpointer.keep_only_last(&mut transport)?;
        Ok(summary)
    }

    /// What clients have, where differences are sent to them.
    fn models(&self) -> Option<SentModels> {
        let compression = self.experiment.plan.compression?;
        let codec = compression.down?;
        let (folder, first) = (self.folder.path().join("models"), self.fresh.weights.clone());
        Some(SentModels { folder, compression, codec, first, seed: self.experiment.clients_seed() })
    }

    /// Sessions of secure aggregation, where the server learns only sums.
    fn sessions(&self) -> Result<Option<Sessions>> {
        let (federation, folder) = (self.plan.federation.clone(), self.folder.path().join("secure"));
        Ok(self.secure_rounds()?.map(|rounds| Sessions { rounds, federation, folder }))
    }

    fn secure_rounds(&self) -> Result<Option<SecureRounds>> {
        let Experiment { method, plan, .. } = &self.experiment;
        plan.secure_rounds(method.algorithm(), self.plan.clients)
    }

    /// Whether the method gives any client something to do when training is over: one that never took part, or one that took part in every round.
    fn finishes(&self) -> bool {
        let Experiment { method, training, .. } = &self.experiment;
        let (rounds, rho) = (self.rounds(), method.algorithm().initial_rho());
        let round = RoundContext { round: rounds, rounds, rho, training };
        let always =
            ClientInfo { participations: rounds, last_round: rounds.checked_sub(1), has_second: true, mixing: None, steps: 1 };
        [ClientInfo::default(), always].iter().any(|me| !method.algorithm().finish(me, &round).steps.is_empty())
    }

    /// Trains to the end of the plan, and gives the last evaluation.
    fn federate(
        &self,
        server: &mut ServerState,
        transport: &mut Remote<'_>,
        checkpointer: &mut Checkpointer<'_>,
        observer: &mut FederationObserver<'_>,
        gate: &PauseGate,
        progress: &ProgressTracker,
    ) -> Result<Evaluation> {
        let no_device = || None;
        let mut recorder = Recorder::open(&self.folder, server.round, gate, &no_device, true)?;
        let (mut evaluations, mut rounds) = (LastEvaluation::default(), RoundTracker(progress));
        let mut federation = self.server(transport);
        let observers: &mut [&mut dyn Observer<Remote<'_>>] =
            &mut [&mut recorder, &mut rounds, &mut evaluations, observer, checkpointer, &mut Cleaner];
        match federation.run(server, observers)? {
            ControlFlow::Break(()) => Err(Error::Interrupted),
            // A run that was killed after its last round has the evaluation on disk, but rounded by its way through text.
            ControlFlow::Continue(()) => evaluations.0.map_or_else(|| federation.evaluation(server), Ok),
        }
    }

    fn server<'s, 't>(&'s self, transport: &'s mut Remote<'t>) -> Server<'s, Remote<'t>> {
        let Experiment { method, plan, .. } = &self.experiment;
        let seed = self.experiment.federation_seed();
        Server { algorithm: method.algorithm(), plan, clients: self.plan.clients, transport, seed }
    }

    /// Lets those who were not there during training make the shared part their own, and evaluates them.
    fn meet_unseen(&self, server: &ServerState, transport: &mut Remote<'_>) -> Result<Option<Unseen>> {
        let unseen: Vec<usize> = (self.plan.clients..self.plan.everybody()).collect();
        let mut federation = self.server(transport);
        if self.position.stage == Stage::Training {
            federation.meet_unseen(server, &unseen)?;
        }
        federation.evaluate_unseen(server, &unseen)
    }
}

/// Lets the activity of a run tell how many rounds are over.
struct RoundTracker<'a>(&'a ProgressTracker);

impl<T: ?Sized> Observer<T> for RoundTracker<'_> {
    fn observe(&mut self, event: &fedeq_core::Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let fedeq_core::Event::Settled { server, .. } = event {
            self.0.settle(server.round);
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// What `checkpoint.json` says, which earlier versions wrote in place of `checkpoints/`.
#[derive(Deserialize)]
struct OldCheckpoint {
    done: u64,
    theta: String,
    traffic: Traffic,
}

/// Makes a checkpoint of today of one that an earlier version left, so that the federation continues from it.
fn adopt_old_checkpoint(folder: &RunFolder, seal: &Seal, fresh: &ServerState) -> Result<()> {
    let note = folder.path().join("checkpoint.json");
    if !note.is_file() || folder.kept_rounds().is_some() {
        return Ok(());
    }
    let OldCheckpoint { done, theta, traffic } = read_json(&note)?;
    let path = folder.path().join(format!("theta-{done}.safetensors"));
    let bytes = fs::read(&path).map_err(|error| Error::damaged(&path, format!("it cannot be read: {error}")))?;
    if fingerprint(&bytes) != theta {
        return Err(Error::damaged(&path, "its content does not have the fingerprint in `checkpoint.json`"));
    }
    let server = ServerState::from_bytes(&bytes, done, fresh).map_err(|error| Error::damaged(&path, error.to_string()))?;
    let round_of = |line: &str| serde_json::from_str(line).ok().map(|NumberedLine { round }| round);
    keep_lines(&folder.rounds_file(), |line| round_of(line).is_some_and(|round| round < done))?;
    keep_lines(&folder.evaluations_file(), |line| round_of(line).is_some_and(|round| round <= done))?;
    keep_lines(&folder.timings_file(), |line| round_of(line).is_some_and(|round| round <= done))?;
    save(folder, seal, &Position { server, clients: BTreeMap::new(), traffic, stage: Stage::Training })?;
    [note, path].iter().try_for_each(|path| fs::remove_file(path).map_err(Error::io(path, "remove it")))
}

/// A line of any journal.
#[derive(Deserialize)]
struct NumberedLine {
    round: u64,
}

/// The weights that a server begins with.
fn theta(folder: &Path) -> Result<Weights> {
    let path = folder.join(THETA);
    let bytes = fs::read(&path).map_err(Error::io(&path, "read it"))?;
    let (packed, _) = Params::from_bytes(&bytes).map_err(|error| Error::damaged(&path, error.to_string()))?;
    Ok(Weights::unpacked(&packed))
}
