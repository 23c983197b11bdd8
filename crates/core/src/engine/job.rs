//! What engines are given to do.
use fedeq_data::Seed;
use fedeq_models::Part;

use super::Engine;
use crate::algorithm::{Algorithm, Update, View};
use crate::client::{shared_part, shares_anything};
use crate::compression::{CompressedUpdate, Compression, CompressionState, ReceivedModel};
use crate::disclosure::Disclosure;
use crate::divergence::{after as diverged_after, ensure_finite};
use crate::error::{Error, Result};
use crate::fixed_points::FixedPoints;
use crate::message::{ClientTask, Reply, Request, Scores, Theory};
use crate::sent::SentWeights;
use crate::state::{ClientState, KeptState};
use crate::stats::{Neighbours, Portion, Score, TrainStats};
use crate::training::Training;
use crate::weights::Weights;
use crate::work::{ClientInfo, Expression, LocalUpdate, RoundContext};

/// Where clients get their states when they begin, and leave them when they are done.
pub(crate) trait States: Sync {
    /// A client begins.
    fn begin(&self, client: usize) -> Result<KeptState>;

    /// What a client that is at work kept for the sake of compression when it began.
    fn compression(&self, client: usize) -> Result<CompressionState>;

    /// A client is done; `changed` tells whether its state is another one now.
    fn end(&self, client: usize, state: KeptState, changed: bool) -> Result<()>;
}

/// What all jobs of a federation have in common.
#[derive(Clone, Copy)]
pub(crate) struct JobContext<'a> {
    pub(crate) algorithm: &'a dyn Algorithm,
    pub(crate) training: &'a Training,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) states: &'a dyn States,
    pub(crate) compression: Option<&'a Compression>,
}

impl JobContext<'_> {
    /// The state of a client that begins. Weights of another shape than the client's own are refused; a state in an engine's form was checked when it still was plain numbers.
    fn begin(&self, client: usize, request: &Request) -> Result<KeptState> {
        let state = self.states.begin(client)?;
        if let Some(state) = state.here() {
            request.weights.ensure_like(&shared_part(self.algorithm, &state.own))?;
        }
        Ok(state)
    }
}

/// A client's local work in a round.
///
/// It is begun when its turn comes: only clients at work hold a copy of their state.
pub struct Job<'a> {
    /// Whose it is.
    pub client: usize,
    /// What the server sent. Clients that received the same share it.
    pub received: &'a Weights,
    /// The client's randomness in this round; each phase [derives](crate::Phase::seed) its own from it.
    pub seed: Seed,
    pub(crate) request: &'a Request,
    pub(crate) work: JobContext<'a>,
}

/// A job that has begun.
pub struct Started {
    /// The client's state.
    pub state: KeptState,
    /// What it is to do.
    pub update: LocalUpdate,
}

/// What came of a job's steps.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Done {
    /// How the training went, all phases together.
    pub stats: TrainStats,
    /// The value of what is [sent](LocalUpdate::sent).
    pub sent: SentWeights,
    /// `||theta_i - theta||` between the client's own model and what was received; 0 where nothing was.
    pub gap: f64,
}

impl Job<'_> {
    /// The client begins. Fails where the message does not fit the client, or the run is to stop.
    pub fn begin(&self) -> Result<Started> {
        let state = self.work.begin(self.client, self.request)?;
        let steps = self.work.engine.steps(self.client, self.work.training);
        let update = self.update(&ClientInfo { steps, ..state.info() });
        Ok(Started { state, update })
    }

    fn update(&self, me: &ClientInfo) -> LocalUpdate {
        let Request { task, round, rounds, rho, .. } = *self.request;
        let (algorithm, round) = (self.work.algorithm, RoundContext { round, rounds, rho, training: self.work.training });
        match task {
            ClientTask::Finish => algorithm.finish(me, &round),
            ClientTask::Adopt => algorithm.adopt(me, &round),
            ClientTask::Train | ClientTask::Evaluate | ClientTask::Measure | ClientTask::Aggregate => {
                algorithm.client_update(me, &round)
            }
        }
    }

    /// The client is done, and in this state now. `update` is what it was to do.
    pub fn end(&self, update: &LocalUpdate, mut state: KeptState, done: Done) -> Result<Reply> {
        let Done { stats, sent, gap } = done;
        state.end_phases();
        let kept = self.work.compression.map(|_| self.work.states.compression(self.client)).transpose()?.unwrap_or_default();
        if self.request.task != ClientTask::Train {
            state.keep_compression(kept);
            // Most methods have nothing left to do when training is over: what did not change need not be kept again.
            let changed = self.request.task == ClientTask::Adopt || !update.steps.is_empty();
            self.work.states.end(self.client, state, changed)?;
            return Ok(Reply::Done(stats));
        }
        // What is kept and sent beyond what local training has seen: duals, statistics, terms of a consensus.
        if !(sent.is_finite() && state.is_finite() && gap.is_finite()) {
            let problem = "the model or its dual is no longer finite after local training";
            return Err(diverged_after(problem.into(), self.work.training));
        }
        let sent = self.compressed(sent, kept, &mut state)?;
        state.took_part(self.request.round);
        self.work.states.end(self.client, state, true)?;
        let samples = self.work.engine.samples(self.client) as u64;
        Ok(Reply::Update(Update { weights: sent, samples, gap, stats }))
    }
}

impl Job<'_> {
    /// What is sent, as a codec writes it if there is one; what is to be `kept` for the next time goes into the client's state.
    fn compressed(&self, sent: SentWeights, mut kept: CompressionState, state: &mut KeptState) -> Result<SentWeights> {
        let Some(compression) = self.work.compression.filter(|_| shares_anything(self.work.algorithm)) else { return Ok(sent) };
        if compression.down.is_some() {
            kept.received = Some(ReceivedModel { round: self.request.round, weights: self.received.clone() });
        }
        let sent = match compression.up {
            None => sent,
            Some(codec) => {
                let sent = sent.to_host()?;
                sent.ensure_like(self.received)?;
                let base = (!self.work.algorithm.sends_changes()).then_some(&self.received.params);
                let CompressedUpdate { bytes, unsent } =
                    compression.compress(codec, &sent, base, &kept.unsent, self.seed.derive("compress", []))?;
                kept.unsent = unsent;
                SentWeights::compressed(bytes)
            }
        };
        state.keep_compression(kept);
        Ok(sent)
    }
}

/// A client's models, to be scored.
pub struct EvaluationJob<'a> {
    /// Whose they are.
    pub client: usize,
    /// What the server sent.
    pub received: &'a Weights,
    /// The client's own randomness.
    pub(crate) seed: Seed,
    pub(crate) request: &'a Request,
    pub(crate) work: JobContext<'a>,
}

/// How well a model does on a part of a client's data.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreRequest {
    /// The model.
    pub model: Expression,
    /// The data.
    pub on: Portion,
    /// Whether the client's training samples vote along.
    pub neighbours: Option<Neighbours>,
}

impl ScoreRequest {
    /// All that an evaluation asks of a client: its local model on test samples, the default one on validation samples, the shared one on test samples where something is shared.
    pub fn all(algorithm: &dyn Algorithm, me: &ClientInfo) -> Vec<Self> {
        let (local, shared) = (algorithm.local_view(me), algorithm.shared_view(me));
        let of_local = |on: Portion| Self { model: local.clone(), on, neighbours: algorithm.neighbours() };
        let of_shared = |shared: &Expression, on: Portion| Self { model: shared.clone(), on, neighbours: None };
        let validation = match (algorithm.default_view(), &shared) {
            (View::Shared, Some(shared)) => of_shared(shared, Portion::Validation),
            _ => of_local(Portion::Validation),
        };
        let mut all = vec![of_local(Portion::Test), validation];
        all.extend(shared.iter().map(|shared| of_shared(shared, Portion::Test)));
        all
    }
}

/// An evaluation that has begun.
pub struct StartedEvaluation {
    /// The client's state, which stays as it is.
    pub state: KeptState,
    /// What is asked: one score for each.
    pub requests: Vec<ScoreRequest>,
}

/// What came of an evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Evaluated {
    /// One for each request.
    pub scores: Vec<Score>,
    /// `||theta_i - theta||` between the client's own model and what was received; 0 where nothing was.
    pub gap: f64,
    /// `||lambda_i||`
    pub dual_norm: f64,
}

impl Evaluated {
    /// These scores of a client whose state is plain numbers.
    pub fn of(state: &ClientState, received: &Weights, scores: Vec<Score>) -> Self {
        Self { scores, gap: gap(&state.own, received), dual_norm: state.dual.norm() }
    }
}

impl EvaluationJob<'_> {
    /// The client begins. Fails where the message does not fit the client, or the run is to stop.
    pub fn begin(&self) -> Result<StartedEvaluation> {
        if self.request.task == ClientTask::Aggregate {
            return Err(Error::message("it is a message of secure aggregation, and no work for an engine"));
        }
        let state = self.work.begin(self.client, self.request)?;
        let requests = ScoreRequest::all(self.work.algorithm, &state.info());
        Ok(StartedEvaluation { state, requests })
    }

    /// The client is done: this is what came of its requests.
    pub fn end(&self, state: KeptState, evaluated: Evaluated) -> Result<Reply> {
        let scores = self.scores(&state, evaluated)?;
        ensure_finite(&scores, self.work.training)?;
        self.work.states.end(self.client, state, false)?;
        Ok(Reply::Scores(Box::new(scores)))
    }

    fn scores(&self, state: &KeptState, evaluated: Evaluated) -> Result<Scores> {
        let Evaluated { scores, gap, dual_norm } = evaluated;
        let score = |at: usize| scores.get(at).copied();
        let is_measured = self.request.task == ClientTask::Measure;
        let is_watched = self.work.training.watch_fixed_points.is_some();
        // Only these look at the numbers themselves.
        let host = (is_measured || is_watched).then(|| state.to_host()).transpose()?;
        let host = host.as_deref();
        Ok(Scores {
            local: score(0).unwrap_or_default(),
            validation: score(1).filter(|score| score.predictions > 0),
            shared: score(2),
            participations: state.info().participations,
            gap,
            dual_norm,
            theory: host.filter(|_| is_measured).map(|state| self.theory(state)).transpose()?,
            fixed_points: host.map(|state| self.fixed_points(state)).transpose()?.flatten(),
            disclosure: Disclosure::Everything,
        })
    }

    /// What the solves of some test samples end in by the default model, if that is watched.
    fn fixed_points(&self, state: &ClientState) -> Result<Option<FixedPoints>> {
        let JobContext { algorithm, training, engine, .. } = self.work;
        let Some(search) = &training.watch_fixed_points else { return Ok(None) };
        let me = state.info();
        let shared = algorithm.shared_view(&me).filter(|_| algorithm.default_view() == View::Shared);
        let model = state.view(&shared.unwrap_or_else(|| algorithm.local_view(&me)), self.received)?;
        let seed = self.seed.derive("fixed points", [self.request.round]);
        let examined = engine.fixed_points(self.client, &model, Portion::Test, search, seed)?;
        Ok(examined.map(|examined| FixedPoints::of(&examined)))
    }

    fn theory(&self, state: &ClientState) -> Result<Theory> {
        let rho = self.request.rho.unwrap_or_default();
        let (loss, gradient) = self.work.engine.gradient(self.client, &state.own)?;
        let theta_gradient = gradient.filter(|path| Part::of(path) == Part::Shared);
        let head_gradient = gradient.filter(|path| Part::of(path) == Part::Personal).norm();
        if state.dual.is_empty() {
            return Ok(Theory { lagrangian: loss, stationarity: theta_gradient.norm(), head_gradient });
        }
        // For every parameter that has a dual: `theta` for FeDEQ, the whole model where all of it is shared.
        let with_dual = |name: &str| state.dual.get(name).is_some();
        let difference = state.own.params.filter(with_dual).minus(&self.received.params);
        let lagrangian = loss + state.dual.dot(&difference) + 0.5 * rho * difference.dot(&difference);
        Ok(Theory { lagrangian, stationarity: theta_gradient.plus(1.0, &state.dual).norm(), head_gradient })
    }
}

/// `||theta_i - theta||` over what is shared; 0 where nothing is.
pub(crate) fn gap(own: &Weights, received: &Weights) -> f64 {
    let theta = received.theta();
    own.theta().filter(|name| theta.get(name).is_some()).minus(&theta).norm()
}
