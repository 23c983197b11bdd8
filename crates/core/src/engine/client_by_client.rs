//! An engine that works on clients one by one, several side by side.
use std::borrow::Cow;

use fedeq_data::Seed;
use fedeq_equilibrium::WarmMemory;

use super::job::{Evaluated, EvaluationJob, Job, StartedEvaluation};
use super::workspace::{HostWork, Workspace};
use super::{Engine, ScoreRequest};
use crate::error::{Error, Result};
use crate::fixed_points::{Examined, Search};
use crate::message::Reply;
use crate::parallel::Workers;
use crate::params::Params;
use crate::stats::{Neighbours, Portion, Score, TrainStats};
use crate::training::Training;
use crate::weights::Weights;
use crate::work::{ContrastModels, Phase, PhaseSeed, ProximalGradient};

/// One client's data and model: what an engine that works client by client needs of each.
pub trait LocalProblem {
    /// How many training samples there are.
    fn samples(&self) -> usize;

    /// Carries out a training phase: moves `weights` and says how it went. `proximal` is the phase's proximal term, evaluated.
    fn train(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        seed: PhaseSeed,
    ) -> Result<TrainStats>;

    /// Carries out a training phase with a term on embeddings, where there is anything of the kind.
    fn train_contrasting(
        &self,
        _weights: &mut Weights,
        _memory: &mut WarmMemory,
        _phase: &Phase,
        _contrast: &ContrastModels,
        _seed: PhaseSeed,
    ) -> Result<TrainStats> {
        Err(Error::invalid("this problem has no embeddings to contrast", "choose another method"))
    }

    /// How well the weights do on a part of the local data.
    fn score(&self, weights: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score>;

    /// As [`Engine::gradient`].
    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)>;

    /// As [`Engine::fixed_points`].
    fn fixed_points(&self, _weights: &Weights, _on: Portion, _search: &Search, _seed: Seed) -> Result<Option<Vec<Examined>>> {
        Ok(None)
    }
}

/// The problems of all clients.
pub trait LocalProblems: Sync {
    /// How many clients there are.
    fn clients(&self) -> usize;

    /// A client's problem, for as long as the client works. Asked for on the thread that works on it.
    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>>;

    /// What people call a client.
    fn name(&self, client: usize) -> String {
        client.to_string()
    }

    /// How many gradient steps an epoch of a client's training has.
    fn steps(&self, client: usize, training: &Training) -> usize {
        training.steps(self.samples(client))
    }

    /// How many samples a client trains on, which tells how long it will take. Asked before every round: it should not make a problem.
    fn samples(&self, client: usize) -> usize {
        self.problem(client).map_or(0, |problem| problem.samples())
    }
}

/// An engine for problems that are solved one client at a time, as many side by side as there are workers.
pub struct ClientByClient<'a> {
    problems: &'a dyn LocalProblems,
    workers: Workers,
}

impl<'a> ClientByClient<'a> {
    /// An engine for these clients. The workers live as long as it does, or longer if they are shared.
    pub fn new(problems: &'a dyn LocalProblems, workers: Workers) -> Self {
        Self { problems, workers }
    }

    fn train_one(&self, job: &Job<'_>) -> Result<Reply> {
        let mut work = HostWork::begin(job)?;
        let problem = self.problems.problem(job.client)?;
        while let Some(phase) = work.next_phase()? {
            let stats = phase.carry_out(problem.as_ref())?;
            work.trained(stats);
        }
        work.end()
    }

    fn evaluate_one(&self, job: &EvaluationJob<'_>) -> Result<Reply> {
        let StartedEvaluation { state, requests } = job.begin()?;
        let problem = self.problems.problem(job.client)?;
        let host = state.to_host()?;
        let workspace = Workspace::new(job.received, Cow::Borrowed(&*host));
        let score = |ScoreRequest { model, on, neighbours }: &ScoreRequest| {
            problem.score(&workspace.evaluate(model)?, *on, neighbours.as_ref())
        };
        let scores = requests.iter().map(score).collect::<Result<Vec<_>>>()?;
        let evaluated = Evaluated::of(&host, job.received, scores);
        drop(host);
        job.end(state, evaluated)
    }
}

impl Engine for ClientByClient<'_> {
    fn clients(&self) -> usize {
        self.problems.clients()
    }

    fn name(&self, client: usize) -> String {
        self.problems.name(client)
    }

    fn samples(&self, client: usize) -> usize {
        self.problems.samples(client)
    }

    fn steps(&self, client: usize, training: &Training) -> usize {
        self.problems.steps(client, training)
    }

    fn train(&self, jobs: &[Job<'_>]) -> Vec<Result<Reply>> {
        self.workers.map_clients(jobs, |job| self.samples(job.client), |job| self.train_one(job))
    }

    fn evaluate(&self, jobs: &[EvaluationJob<'_>]) -> Vec<Result<Reply>> {
        self.workers.map_clients(jobs, |_| 0, |job| self.evaluate_one(job))
    }

    fn gradient(&self, client: usize, weights: &Weights) -> Result<(f64, Params)> {
        self.problems.problem(client)?.gradient(weights)
    }

    fn fixed_points(
        &self,
        client: usize,
        weights: &Weights,
        on: Portion,
        search: &Search,
        seed: Seed,
    ) -> Result<Option<Vec<Examined>>> {
        self.problems.problem(client)?.fixed_points(weights, on, search, seed)
    }
}
