//! Whole rounds, by the engine.
use std::ops::ControlFlow;
use std::sync::Arc;

use fedeq_core::{
    ClientByClient, ClientState, ClientStore, Engine, Event, InProcess, LocalProblem, LocalProblems, Method, Observer,
    PhaseBytes, Plan, Sampling, Server, ServerState, Training, Workers, shared_part,
};
use fedeq_cpu::Network;
use fedeq_cuda::{ClientData, CudaEngine, CudaOptions, Precision};
use fedeq_data::partition::ClientIndices;
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Seed};
use serde_json::{Value, json};

use crate::Result;
use crate::file;
use crate::job::{self, Round};
use crate::samples::{problem, root};
use crate::setting::read_weights;

/// Everything the clients of a federation need.
struct House<'a> {
    dataset: Arc<Dataset>,
    clients: Vec<ClientIndices>,
    network: Arc<Network>,
    training: &'a Training,
}

impl LocalProblems for House<'_> {
    fn clients(&self) -> usize {
        self.clients.len()
    }

    fn problem(&self, client: usize) -> fedeq_core::Result<Box<dyn LocalProblem + '_>> {
        let made = problem(&self.network, &self.dataset, &self.clients[client], self.training);
        made.map(|problem| Box::new(problem) as Box<dyn LocalProblem>)
            .map_err(|error| fedeq_core::Error::invalid(error.to_string(), "check the data"))
    }

    fn samples(&self, client: usize) -> usize {
        self.clients[client].train.len()
    }
}

/// The engine that was asked for.
enum On<'h> {
    Cpu(ClientByClient<'h>),
    Cuda(Box<CudaEngine>),
}

impl On<'_> {
    fn get(&self) -> &dyn Engine {
        match self {
            Self::Cpu(engine) => engine,
            Self::Cuda(engine) => engine.as_ref(),
        }
    }

    fn start_profile(&mut self) {
        if let Self::Cuda(engine) = self {
            engine.start_profile();
        }
    }

    /// Launches and milliseconds of every kernel of a GPU that was looked at, the longest first.
    fn end_profile(&mut self) -> Vec<(&'static str, u64, f64)> {
        let Self::Cuda(engine) = self else { return Vec::new() };
        let times = engine.end_profile().into_iter().map(|(name, time)| (name, time.launches, 1e3 * time.seconds));
        let mut times: Vec<_> = times.collect();
        times.sort_by(|(_, _, a), (_, _, b)| b.total_cmp(a));
        times
    }

    /// The most memory held on a GPU.
    fn device_bytes(&self) -> u64 {
        match self {
            Self::Cpu(_) => 0,
            Self::Cuda(engine) => engine.usage().peak,
        }
    }
}

fn client_data(dataset: &Arc<Dataset>, indices: &ClientIndices) -> Result<ClientData> {
    let shard = |indices: &Vec<u32>| Shard::new(Arc::clone(dataset), indices.clone());
    let shards = [shard(&indices.train)?, shard(&indices.validation)?, shard(&indices.test)?];
    Ok(ClientData { name: indices.name.clone(), shards })
}

/// Writes down what each round took, and stops after so many.
struct Stopwatch {
    rounds: usize,
    start: fedeq_core::Params,
    seconds: Vec<f64>,
    /// Of the server's own step.
    server: Vec<f64>,
    losses: Vec<f64>,
    steps: Vec<f64>,
    moves: Vec<f64>,
    training: PhaseBytes,
}

impl Observer<InProcess<'_>> for Stopwatch {
    fn observe(&mut self, event: &Event<'_>, _: &mut InProcess<'_>) -> fedeq_core::Result<ControlFlow<()>> {
        match event {
            Event::Round { round, seconds } => {
                self.seconds.push(seconds.total);
                self.server.push(seconds.server);
                self.losses.push(round.loss);
                self.training = self.training.or_more(&seconds.memory);
                let solves = &round.solves;
                self.steps.push(solves.steps as f64 / solves.samples.max(1) as f64);
            }
            Event::Settled { server, .. } => self.moves.push(server.weights.params.minus(&self.start).norm()),
            Event::Evaluation { .. } | Event::Dropped { .. } => {}
        }
        // Not before the state is settled, so that the last move is seen.
        Ok(if self.moves.len() == self.rounds { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }
}

/// The most memory that training a client took, in units of 1e6 bytes.
fn megabytes_of(training: PhaseBytes) -> f64 {
    training.most() as f64 / 1e6
}

impl Round {
    pub(crate) fn time(&self) -> Result<Value> {
        let held = file::read(&self.folder, self.setting.kind)?;
        let network = self.setting.network()?;
        let initial = read_weights(&self.folder, &network)?;
        let clients = held.clients[..self.clients].to_vec();
        let house = House { dataset: Arc::new(held.dataset), clients, network, training: &self.training };
        let method = Method::named(&self.method)?;
        let algorithm = method.algorithm();
        let dual = algorithm.initial_dual(&initial, Seed::new(3));
        let warm_start = self.training.warm_start;
        let mut server = ServerState::new(shared_part(algorithm, &initial), self.clients, None);
        let mut store = ClientStore::new("nowhere".into(), usize::MAX, move |_| {
            ClientState::fresh(initial.clone(), dual.clone(), warm_start)
        });
        let mut engine = self.engine(&house)?;
        if self.profile {
            engine.start_profile();
        }
        let never = || false;
        let mut transport = InProcess::new(algorithm, &self.training, engine.get(), &mut store, root(), &never);
        // One round more than is wanted: the plan's last round would also evaluate all clients.
        let sampling = Sampling { fraction: self.cohort as f64 / self.clients as f64, ..Sampling::default() };
        let plan = Plan { rounds: self.rounds as u64 + 1, sampling, evaluate_every: 0, ..Plan::default() };
        let start = server.weights.params.clone();
        let mut watch = Stopwatch {
            rounds: self.rounds,
            start,
            seconds: vec![],
            server: vec![],
            losses: vec![],
            steps: vec![],
            moves: vec![],
            training: PhaseBytes::default(),
        };
        let mut federation =
            Server { algorithm, plan: &plan, clients: self.clients, transport: &mut transport, seed: Seed::new(2) };
        let _stopped = federation.run(&mut server, &mut [&mut watch])?;
        Ok(json!({
            "seconds": watch.seconds,
            "loss": watch.losses[0],
            "move": watch.moves[0],
            "solver_steps": watch.steps,
            "training_mb": megabytes_of(watch.training),
            "training_bytes": watch.training,
            "server_seconds": watch.server,
            "device_gb": engine.device_bytes() as f64 / 1e9,
            "kernels": engine.end_profile(),
        }))
    }

    fn engine<'h>(&self, house: &'h House<'_>) -> Result<On<'h>> {
        if self.device == job::On::Cpu {
            return Ok(On::Cpu(ClientByClient::new(house, Workers::new(0)?)));
        }
        let precision = match self.precision {
            job::Precision::Mixed => Precision::Mixed,
            job::Precision::Exact => Precision::Exact,
        };
        let options = CudaOptions { precision, ..CudaOptions::default() };
        let clients = house.clients.iter().map(|indices| client_data(&house.dataset, indices)).collect::<Result<_>>()?;
        Ok(On::Cuda(Box::new(CudaEngine::new(house.network.graph(), clients, house.training, &options)?)))
    }
}
