//! Engines carry out local work, for many clients at once.
//!
//! # Layout
//! - this file: what an engine can do
//! - `job`: what it is given
//! - `workspace`: a job's assignments on the host, the same for every engine that keeps its numbers there
//! - `client_by_client`: an engine that works on clients one by one, several side by side
mod client_by_client;
mod job;
mod workspace;

use fedeq_data::Seed;

use crate::error::Result;
use crate::fixed_points::{Examined, Search};
use crate::message::Reply;
use crate::params::Params;
use crate::stats::Portion;
use crate::training::Training;
use crate::weights::Weights;

pub use client_by_client::{ClientByClient, LocalProblem, LocalProblems};
pub use job::{Done, Evaluated, EvaluationJob, Job, ScoreRequest, Started, StartedEvaluation};
pub(crate) use job::{JobContext, States};
pub use workspace::{HostWork, ReadyPhase, Workspace};

/// Carries out local work for many clients at once.
///
/// An engine holds data and networks. It is given the jobs of a whole round in one call, so it may train clients side by side, or all of them in one batch, phase by phase: the
/// same [`LocalUpdate`](crate::LocalUpdate) tells every engine what to do. Two engines that compute alike give the same bytes, whatever the order in which they work.
///
/// A job's state comes as a [`KeptState`](crate::KeptState): as plain numbers, or in the form in which this engine left it in the round before.
pub trait Engine: Sync {
    /// How many clients there are.
    fn clients(&self) -> usize;

    /// What people call a client.
    fn name(&self, client: usize) -> String {
        client.to_string()
    }

    /// How many samples a client trains on.
    fn samples(&self, client: usize) -> usize;

    /// How many gradient steps an epoch of a client's training has.
    fn steps(&self, client: usize, training: &Training) -> usize {
        training.steps(self.samples(client))
    }

    /// Carries out training jobs; replies come in the order of the jobs. Each job is [begun](Job::begin), its steps are carried out, and it is [ended](Job::end).
    fn train(&self, jobs: &[Job<'_>]) -> Vec<Result<Reply>>;

    /// Scores models; replies come in the order of the jobs. Each job is [begun](EvaluationJob::begin), its requests are carried out, and it is [ended](EvaluationJob::end).
    fn evaluate(&self, jobs: &[EvaluationJob<'_>]) -> Vec<Result<Reply>>;

    /// The mean training loss of a client and its gradient with respect to all parameters, over all its training samples. This is the true gradient,
    /// through a fixed point by the implicit function theorem, whatever stands in for it in training.
    fn gradient(&self, client: usize, weights: &Weights) -> Result<(f64, Params)>;

    /// What the equilibrium solves of some of a client's samples end in when they are started elsewhere; nothing where the model solves for no fixed point.
    fn fixed_points(
        &self,
        _client: usize,
        _weights: &Weights,
        _on: Portion,
        _search: &Search,
        _seed: Seed,
    ) -> Result<Option<Vec<Examined>>> {
        Ok(None)
    }
}
