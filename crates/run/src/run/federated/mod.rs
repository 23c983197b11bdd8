//! The server of a federation whose clients are elsewhere. Its run folder is the folder of the app that `fedeq init-federation` wrote.
//!
//! # Layout
//! - this file: a run from its last checkpoint to the end
//! - `plan`: what is decided before it begins; `earlier`: checkpoints of earlier versions
//! - `link`: the way to clients elsewhere; `remote`: the same as the server's transport
//! - `models`: what clients have, where differences are sent
//! - `replies`: replies on disk until the server's state is
//! - `secret`: randomness that no client knows
//! - `sessions`: secure aggregation
mod earlier;
mod link;
mod models;
mod plan;
mod remote;
mod replies;
mod secret;
mod sessions;

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use fedeq_core::{
    Acceptance, ClientInfo, Error, Evaluation, Limits, Observer, Result, RoundContext, SecureRounds, Server, ServerState, Unseen,
    Weights,
};

use super::checkpoint::{Checkpointer, Position, Seal, Stage, Which, restore, save};
use super::control::{ControlThread, PauseGate};
use super::folder::{Lock, RunFolder};
use super::metadata::RunState;
use super::observer::{FederationObserver, LastEvaluation};
use super::progress::ProgressTracker;
use super::record::Recorder;
use super::summary::RunSummary;
use crate::experiment::Experiment;

use earlier::adopt_old_checkpoint;
use models::SentModels;
use plan::theta;
use replies::{Cleaner, ReplyLog};
use secret::secret_of;
use sessions::Sessions;

pub use link::{ClientLink, LinkContext, Outgoing, ReceivedReply};
pub use plan::FederationPlan;
pub use remote::Remote;

/// Bytes of what a codec writes beside numbers, at most: scales of arrays and counts.
const PAYLOAD_MARGIN: usize = 1 << 16;

/// The server's side of a federation, ready to continue from its last checkpoint.
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
        let plan = FederationPlan::read(folder)?;
        let folder = RunFolder::at(folder.to_owned());
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
        let context = LinkContext {
            gate: Arc::clone(&gate),
            progress: Arc::clone(&progress),
            folder: self.folder.clone(),
            round: self.round(),
        };
        let outcome = control.beside(|| self.work(link, acceptance, observer, interrupted, context));
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
        context: LinkContext,
    ) -> Result<RunSummary> {
        let Self { folder, position, .. } = self;
        if let (Stage::Finished, Some(summary)) = (position.stage, folder.summary()?) {
            return Ok(summary);
        }
        let missing = link.gather(self.plan.all_clients(), &context)?;
        acceptance.require_quorum("have a node", self.plan.all_clients() - missing.len(), &missing)?;
        let (gate, progress) = (Arc::clone(&context.gate), Arc::clone(&context.progress));
        let mut transport = self.transport(link, acceptance, interrupted, context)?;
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
        let Experiment { method, plan, .. } = &self.experiment;
        let mechanism = plan.mechanism(method.algorithm(), self.plan.clients)?;
        summary.privacy = mechanism.map(|mechanism| mechanism.summary(server.round));
        folder.write_summary(&summary)?;
        checkpointer.keep_only_last(&mut transport)?;
        Ok(summary)
    }

    /// The clients, as the server reaches them.
    fn transport<'s>(
        &'s self,
        link: &'s mut dyn ClientLink,
        acceptance: Acceptance,
        interrupted: &'s (dyn Fn() -> bool + Sync),
        context: LinkContext,
    ) -> Result<Remote<'s>> {
        let Experiment { method, plan, .. } = &self.experiment;
        // Between two checkpoints clients are asked many things, or for what they give only once.
        let logs_replies = plan.asynchronous.is_some() || plan.secure_aggregation.is_some();
        let folder = self.folder.path();
        Ok(Remote {
            link,
            algorithm: method.algorithm(),
            acceptance,
            context,
            interrupted,
            finishes: self.finishes(),
            replies: logs_replies.then(|| ReplyLog { folder: folder.join("replies") }),
            compression: plan.compression.as_ref(),
            models: self.models(),
            noise_in_clear: plan.has_noise_in_clear(),
            secret: plan.privacy.map(|_| secret_of(folder)).transpose()?,
            sessions: self.sessions()?,
            traffic: self.position.traffic,
            seconds: 0.0,
        })
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

    /// Lets unseen clients make the shared part their own, and evaluates them.
    fn meet_unseen(&self, server: &ServerState, transport: &mut Remote<'_>) -> Result<Option<Unseen>> {
        let unseen: Vec<usize> = (self.plan.clients..self.plan.all_clients()).collect();
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
