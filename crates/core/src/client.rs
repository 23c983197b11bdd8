//! A client: a request in, a reply out. The same code runs in simulation and on a device.
use fedeq_data::Seed;
use fedeq_models::Part;

use crate::algorithm::{Algorithm, Turn, Update, View, Work};
use crate::divergence::{after as diverged_after, blame_pull, ensure_finite};
use crate::error::Result;
use crate::fixed_points::FixedPoints;
use crate::message::{Reply, Request, Scores, Task, Theory};
use crate::site::{Portion, Score, Site};
use crate::state::ClientState;
use crate::training::Training;
use crate::weights::Weights;

/// A client at work: what it owns, and what it can do.
pub struct Client<'a> {
    /// What it has agreed to do.
    pub algorithm: &'a dyn Algorithm,
    /// How it trains.
    pub training: &'a Training,
    /// Its data.
    pub site: &'a dyn Site,
    /// What it keeps.
    pub state: &'a mut ClientState,
    /// Its own randomness.
    pub seed: Seed,
}

impl Client<'_> {
    /// Does what is asked. A request that is refused changes nothing.
    pub fn handle(&mut self, request: &Request) -> Result<Reply> {
        request.weights.ensure_like(&self.expected())?;
        self.obey(request).map_err(|error| blame_pull(error, self.algorithm, self.training, request))
    }

    fn obey(&mut self, request: &Request) -> Result<Reply> {
        match request.task {
            Task::Train => self.train(request),
            Task::Evaluate => self.told(self.scores(request)?),
            Task::Measure => {
                let scores = self.scores(request)?;
                self.told(Scores { theory: Some(self.theory(request)?), ..scores })
            }
            Task::Finish => self.change(request, |algorithm, me, turn, site| algorithm.finish(&request.weights, me, turn, site)),
            Task::Adopt => self.change(request, |algorithm, me, turn, site| algorithm.adopt(&request.weights, me, turn, site)),
        }
    }

    /// The layout of what the server sends.
    fn expected(&self) -> Weights {
        travelling(self.algorithm, &self.state.own)
    }

    fn turn(&self, request: &Request) -> Turn<'_> {
        let Request { round, rounds, rho, .. } = *request;
        Turn { round, rounds, rho, seed: self.seed.derive("round", [round]), training: self.training }
    }

    fn told(&self, scores: Scores) -> Result<Reply> {
        ensure_finite(&scores, self.training)?;
        Ok(Reply::Scores(Box::new(scores)))
    }

    fn train(&mut self, request: &Request) -> Result<Reply> {
        let mut after = self.state.clone();
        let work = self.algorithm.client_update(&request.weights, &mut after, &self.turn(request), self.site)?;
        self.ensure_numbers(&work, &after)?;
        after.participations += 1;
        after.last_round = Some(request.round);
        after.memory.end_stretch();
        *self.state = after;
        let samples = self.site.samples() as u64;
        Ok(Reply::Update(Update { weights: work.sent, samples, gap: work.gap, descent: work.descent }))
    }

    /// What is kept and sent beyond what local training has seen: duals, statistics, terms of a consensus.
    fn ensure_numbers(&self, work: &Work, after: &ClientState) -> Result<()> {
        let is_finite = |weights: &Weights| weights.params.is_finite() && weights.statistics.is_finite();
        if is_finite(&work.sent) && is_finite(&after.own) && after.dual.is_finite() && work.gap.is_finite() {
            return Ok(());
        }
        Err(diverged_after("the model or its dual is no longer finite after local training".into(), self.training))
    }

    fn change(
        &mut self,
        request: &Request,
        change: impl Fn(&dyn Algorithm, &mut ClientState, &Turn<'_>, &dyn Site) -> Result<crate::site::Descent>,
    ) -> Result<Reply> {
        let mut after = self.state.clone();
        let descent = change(self.algorithm, &mut after, &self.turn(request), self.site)?;
        after.memory.end_stretch();
        *self.state = after;
        Ok(Reply::Done(descent))
    }

    fn scores(&self, request: &Request) -> Result<Scores> {
        let local = self.algorithm.local_view(&request.weights, self.state);
        let shared = self.algorithm.shared_view(&request.weights, self.state);
        let neighbours = self.algorithm.neighbours();
        let validation = match (self.algorithm.headline(), &shared) {
            (View::Shared, Some(shared)) => self.site.score(shared, Portion::Validation, None)?,
            _ => self.site.score(&local, Portion::Validation, neighbours.as_ref())?,
        };
        let judged = if self.algorithm.headline() == View::Shared { shared.as_ref() } else { None };
        let fixed_points = self.fixed_points(judged.unwrap_or(&local), request.round)?;
        let shared = shared.map(|shared| self.site.score(&shared, Portion::Test, None)).transpose()?;
        Ok(Scores {
            local: self.site.score(&local, Portion::Test, neighbours.as_ref())?,
            shared,
            validation: Some(validation).filter(|score: &Score| score.predictions > 0),
            participations: self.state.participations,
            gap: self.gap(request),
            dual_norm: self.state.dual.norm(),
            theory: None,
            fixed_points,
        })
    }

    /// What the solves of some test samples end in, if that is watched.
    fn fixed_points(&self, model: &Weights, round: u64) -> Result<Option<FixedPoints>> {
        let Some(search) = &self.training.watch_fixed_points else { return Ok(None) };
        let seed = self.seed.derive("fixed points", [round]);
        let examined = self.site.fixed_points(model, Portion::Test, search, seed)?;
        Ok(examined.map(|examined| FixedPoints::of(&examined)))
    }

    fn gap(&self, request: &Request) -> f64 {
        let theta = request.weights.theta();
        if theta.is_empty() { 0.0 } else { self.state.own.theta().minus(&theta).norm() }
    }

    fn theory(&self, request: &Request) -> Result<Theory> {
        let rho = request.rho.unwrap_or_default();
        let (loss, gradient) = self.site.gradient(&self.state.own)?;
        let theta_gradient = gradient.filter(|path| Part::of(path) == Part::Shared);
        let head_gradient = gradient.filter(|path| Part::of(path) == Part::Personal).norm();
        if self.state.dual.is_empty() {
            return Ok(Theory { lagrangian: loss, stationarity: theta_gradient.norm(), head_gradient });
        }
        let difference = self.state.own.theta().minus(&request.weights.theta());
        let lagrangian = loss + self.state.dual.dot(&difference) + 0.5 * rho * difference.dot(&difference);
        Ok(Theory { lagrangian, stationarity: theta_gradient.plus(1.0, &self.state.dual).norm(), head_gradient })
    }
}

/// The part of a model that travels under a method.
pub fn travelling(algorithm: &dyn Algorithm, own: &Weights) -> Weights {
    if sends(algorithm) { own.only(|part| algorithm.travels(part)) } else { Weights::default() }
}

/// Whether anything travels under a method.
pub(crate) fn sends(algorithm: &dyn Algorithm) -> bool {
    algorithm.travels(Part::Shared) || algorithm.travels(Part::Personal)
}
