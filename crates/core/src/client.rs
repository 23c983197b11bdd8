//! Clients: a request in, a reply out. The same code runs in simulation and on a device.
use std::sync::Mutex;

use fedeq_data::Seed;
use fedeq_models::Part;

use crate::algorithm::Algorithm;
use crate::compression::{Compression, CompressionState};
use crate::divergence::blame_penalty;
use crate::engine::{Engine, EvaluationJob, Job, JobContext, States};
use crate::error::Result;
use crate::message::{Reply, Request};
use crate::parallel::lock;
use crate::state::{ClientState, KeptState};
use crate::training::Training;
use crate::weights::Weights;

/// One client at work: what it owns, and who works for it.
pub struct Client<'a> {
    /// What it has agreed to do.
    pub algorithm: &'a dyn Algorithm,
    /// How it trains.
    pub training: &'a Training,
    /// Who carries out its work, with its data.
    pub engine: &'a dyn Engine,
    /// Which of the engine's clients it is.
    pub number: usize,
    /// What it keeps.
    pub state: &'a mut ClientState,
    /// Its own randomness.
    pub seed: Seed,
    /// How its updates are compressed, if they are.
    pub compression: Option<&'a Compression>,
}

impl Client<'_> {
    /// Does what is asked. A request that is refused changes nothing.
    pub fn handle(&mut self, request: &Request) -> Result<Reply> {
        let Self { algorithm, training, engine, number, seed, compression, .. } = *self;
        let states = Single(Mutex::new(self.state));
        let clients = Clients { algorithm, training, engine, states: &states, seed_of: &|_| seed, compression };
        clients.handle_one(number, request)
    }
}

/// The state of the only client.
struct Single<'a>(Mutex<&'a mut ClientState>);

impl States for Single<'_> {
    fn begin(&self, _: usize) -> Result<KeptState> {
        Ok(lock(&self.0).clone().into())
    }

    fn compression(&self, _: usize) -> Result<CompressionState> {
        Ok(lock(&self.0).compression.clone())
    }

    fn end(&self, _: usize, state: KeptState, changed: bool) -> Result<()> {
        if changed {
            **lock(&self.0) = state.to_host()?.into_owned();
        }
        Ok(())
    }
}

/// All clients of a federation, or some of them: how requests become an engine's jobs, and what comes of these becomes replies.
pub(crate) struct Clients<'a> {
    pub(crate) algorithm: &'a dyn Algorithm,
    pub(crate) training: &'a Training,
    pub(crate) engine: &'a dyn Engine,
    pub(crate) states: &'a dyn States,
    /// A client's own randomness.
    pub(crate) seed_of: &'a dyn Fn(usize) -> Seed,
    /// How updates are compressed, if they are.
    pub(crate) compression: Option<&'a Compression>,
}

impl Clients<'_> {
    /// Does what is asked of each; replies come in the same order.
    pub(crate) fn handle(&self, requests: &[(usize, &Request)]) -> Vec<Result<Reply>> {
        let trains = |(_, request): &(usize, &Request)| request.task.changes_state();
        let alike = requests.chunk_by(|one, other| trains(one) == trains(other));
        let replies = alike.flat_map(|group| if trains(&group[0]) { self.train(group) } else { self.evaluate(group) });
        let blame = |error, request: &Request| blame_penalty(error, self.algorithm, self.training, request);
        replies.zip(requests).map(|(reply, (_, request))| reply.map_err(|error| blame(error, request))).collect()
    }

    fn handle_one(&self, client: usize, request: &Request) -> Result<Reply> {
        self.handle(&[(client, request)]).pop().expect("an engine replies to every job")
    }

    fn work(&self) -> JobContext<'_> {
        let Self { algorithm, training, engine, states, compression, .. } = *self;
        JobContext { algorithm, training, engine, states, compression }
    }

    fn train(&self, requests: &[(usize, &Request)]) -> Vec<Result<Reply>> {
        let mut jobs = Vec::with_capacity(requests.len());
        for &(client, request) in requests {
            let seed = (self.seed_of)(client).derive("round", [request.round]);
            jobs.push(Job { client, received: &request.weights, seed, request, work: self.work() });
        }
        self.engine.train(&jobs)
    }

    fn evaluate(&self, requests: &[(usize, &Request)]) -> Vec<Result<Reply>> {
        let mut jobs = Vec::with_capacity(requests.len());
        for &(client, request) in requests {
            let seed = (self.seed_of)(client);
            jobs.push(EvaluationJob { client, received: &request.weights, seed, request, work: self.work() });
        }
        self.engine.evaluate(&jobs)
    }
}

/// A client's own randomness, from that of all clients.
pub fn client_seed(clients: Seed, client: usize) -> Seed {
    clients.derive("client", [client as u64])
}

/// The part of a model that a method shares, with zeros for what it sends beside it.
pub fn shared_part(algorithm: &dyn Algorithm, own: &Weights) -> Weights {
    if !shares_anything(algorithm) {
        return Weights::default();
    }
    let mut shared = own.only(|part| algorithm.shares(part));
    if algorithm.keeps_normalisations() {
        shared = shared.without_norms();
    }
    if algorithm.sends_control() { shared.beside(&shared.params.zeros_like()) } else { shared }
}

/// Whether a method shares anything.
pub fn shares_anything(algorithm: &dyn Algorithm) -> bool {
    algorithm.shares(Part::Shared) || algorithm.shares(Part::Personal)
}
