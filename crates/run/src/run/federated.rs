//! The server of a federation whose clients are elsewhere. Its run folder is the folder of the app that `fedeq init-federation` wrote.
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{
    Acceptance, Algorithm, ClientInfo, ClientTask, Dropped, Error, Evaluation, Limits, Observer, Params, Reply, Request, Result,
    RoundContext, Server, ServerState, Traffic, TrainStats, Transport, Unseen, Weights, decode_parts, encode_parts, encoded_len,
    fingerprint, write_atomically,
};
use fedeq_models::Part;
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
}

/// Carries messages to clients elsewhere and their replies back.
pub trait ClientLink {
    /// Waits until clients `0..clients` can be reached, and says which cannot, and why.
    fn gather(&mut self, clients: usize, watch: &Watch) -> Result<Vec<Dropped>>;

    /// Sends each client its request; replies come in the same order.
    fn exchange(
        &mut self,
        requests: &[(usize, &Request)],
        watch: &Watch,
    ) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>>;
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
    traffic: Traffic,
    seconds: f64,
}

/// Whoever watches a federation.
pub type FederationObserver<'a> = dyn for<'t> Observer<Remote<'t>> + 'a;

impl Remote<'_> {
    /// Replies in the order of the requests: those that are on disk, and those that come now.
    fn received(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>> {
        let Some(log) = &self.replies else { return self.link.exchange(requests, &self.watch) };
        let keys = requests.iter().map(|(client, request)| ReplyLog::key(*client, request)).collect::<Result<Vec<_>>>()?;
        let mut known: Vec<Option<ReceivedReply>> = keys.iter().map(|key| log.read(key)).collect();
        let missing: Vec<usize> = (0..requests.len()).filter(|at| known[*at].is_none()).collect();
        let asked: Vec<(usize, &Request)> = missing.iter().map(|at| requests[*at]).collect();
        let came = if asked.is_empty() { Vec::new() } else { self.link.exchange(&asked, &self.watch)? };
        let mut came: BTreeMap<usize, _> = missing.into_iter().zip(came).collect();
        let mut all = Vec::with_capacity(requests.len());
        for (at, key) in keys.iter().enumerate() {
            let reply = match (known[at].take(), came.remove(&at)) {
                (Some(known), _) => Ok(known),
                (None, Some(came)) => came,
                (None, None) => Err(Dropped::new(requests[at].0, "no reply")),
            };
            if let Ok(reply) = &reply {
                log.write(key, reply)?;
            }
            all.push(reply);
        }
        Ok(all)
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
        let received = self.received(requests)?;
        let begun = Instant::now();
        let mut replies = Vec::with_capacity(received.len());
        for ((client, request), received) in requests.iter().zip(received) {
            if self.counts(task) {
                self.traffic.down += encoded_len(request.header()?, &request.weights);
            }
            replies.push(received.and_then(|ReceivedReply { header, weights }| {
                if self.counts(task) {
                    self.traffic.up += encoded_len(header.clone(), &weights);
                }
                Reply::from_parts(&header, weights).map_err(|error| Dropped::new(*client, &error.to_string()))
            }));
        }
        self.seconds += begun.elapsed().as_secs_f64();
        Ok(replies)
    }

    fn acceptance(&self) -> Acceptance {
        self.acceptance
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

/// Replies since the last checkpoint, by request. A node repeats its last few replies; a client that is asked many times before the next checkpoint would
/// have forgotten the first, and the server could not come back to where it was.
struct ReplyLog {
    folder: PathBuf,
}

impl ReplyLog {
    fn key(client: usize, request: &Request) -> Result<String> {
        Ok(format!("{client:06}-{}", fingerprint(&request.encode()?)))
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.safetensors"))
    }

    /// One that is damaged is asked for again.
    fn read(&self, key: &str) -> Option<ReceivedReply> {
        let (header, weights) = decode_parts(&fs::read(self.path(key)).ok()?).ok()?;
        Some(ReceivedReply { header, weights })
    }

    fn write(&self, key: &str, reply: &ReceivedReply) -> Result<()> {
        let path = self.path(key);
        if path.exists() {
            return Ok(());
        }
        fs::create_dir_all(&self.folder).map_err(Error::io(&self.folder, "create it"))?;
        write_atomically(&path, &encode_parts(reply.header.clone(), &reply.weights)?)
    }

    /// Removes all of them: there is a checkpoint after them.
    fn clear(&self) -> Result<()> {
        match fs::remove_dir_all(&self.folder) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&self.folder, "remove it")(error)),
            _ => Ok(()),
        }
    }
}

/// Clears the replies when a checkpoint has been written.
struct ReplyCleaner;

impl Observer<Remote<'_>> for ReplyCleaner {
    fn observe(&mut self, event: &fedeq_core::Event<'_>, transport: &mut Remote<'_>) -> Result<ControlFlow<()>> {
        if let (fedeq_core::Event::Settled { .. }, Some(log)) = (event, &transport.replies) {
            log.clear()?;
        }
        Ok(ControlFlow::Continue(()))
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
        let is_asynchronous = self.experiment.plan.asynchronous.is_some();
        let replies = is_asynchronous.then(|| ReplyLog { folder: folder.path().join("replies") });
        let algorithm = self.experiment.method.algorithm();
        let finishes = self.finishes();
        let traffic = position.traffic;
        let (gate, progress) = (Arc::clone(&watch.gate), Arc::clone(&watch.progress));
        let mut transport = Remote { link, algorithm, acceptance, watch, interrupted, finishes, replies, traffic, seconds: 0.0 };
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
        let summary = self.plan.summary.clone().completed(folder, evaluation, unseen)?;
        folder.write_summary(&summary)?;
        checkpointer.keep_only_last(&mut transport)?;
        Ok(summary)
    }

    /// Whether the method gives any client something to do when training is over: one that never took part, or one that took part in every round.
    fn finishes(&self) -> bool {
        let Experiment { method, training, .. } = &self.experiment;
        let (rounds, rho) = (self.rounds(), method.algorithm().initial_rho());
        let round = RoundContext { round: rounds, rounds, rho, training };
        let always = ClientInfo { participations: rounds, last_round: rounds.checked_sub(1), has_second: true };
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
            &mut [&mut recorder, &mut rounds, &mut evaluations, observer, checkpointer, &mut ReplyCleaner];
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
