//! Digits among a few clients, for tests of methods on real networks.
#![allow(dead_code, reason = "each test binary uses its own part")]
use std::sync::Arc;

use fedeq_core::{
    Algorithm, ClientByClient, ClientState, ClientStore, Engine, Evaluation, InProcess, LocalProblem, LocalProblems, Plan,
    Result, Sampling, Server, ServerState, Training, Weights, Workers, shared_part,
};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::partition::{Partition, Split};
use fedeq_data::shard::Shard;
use fedeq_data::source::Source;
use fedeq_data::{Dataset, Seed};
use fedeq_models::{ModelConfig, Task};

pub(crate) const CLIENTS: usize = 6;

/// Digits among a few clients, with a network.
pub(crate) struct Digits {
    pub(crate) dataset: Arc<Dataset>,
    shards: Vec<[Shard; 3]>,
    network: Arc<Network>,
    pub(crate) training: Training,
}

impl Digits {
    pub(crate) fn new(model: &str, training: Training) -> Self {
        let dataset = Arc::new(Source::default().load("".as_ref()).expect("embedded"));
        let rule = Partition::LabelShards { clients: CLIENTS, shards: 2 };
        let federation = rule.assign(&dataset, &Split::default(), Seed::new(5)).expect("enough digits");
        // Tiny clients: the tests are about equality, not about accuracy.
        let shard =
            |indices: &[u32]| Shard::new(Arc::clone(&dataset), indices.iter().copied().step_by(6).collect()).expect("assigned");
        let shards =
            federation.clients.iter().map(|client| [&client.train, &client.validation, &client.test].map(|part| shard(part)));
        let config: ModelConfig = model.parse().expect("a known model");
        let network = Arc::new(Network::new(config.graph(&Task::image(8, 8, 1, 10)).expect("fits digits")));
        Self { shards: shards.collect(), dataset: Arc::clone(&dataset), network, training }
    }

    pub(crate) fn initial(&self) -> Weights {
        Weights::initial(self.network.graph(), 11)
    }

    pub(crate) fn run(&self, algorithm: &dyn Algorithm, rounds: u64, threads: usize) -> Outcome {
        self.run_on(&ClientByClient::new(self, Workers::new(threads).expect("threads")), algorithm, rounds)
    }

    pub(crate) fn run_on(&self, engine: &dyn Engine, algorithm: &dyn Algorithm, rounds: u64) -> Outcome {
        let initial = self.initial();
        let mut server = ServerState::new(shared_part(algorithm, &initial), CLIENTS, None);
        let dual = algorithm.initial_dual(&initial, Seed::new(3));
        let warm_start = self.training.warm_start;
        let mut store = ClientStore::new("nowhere".into(), usize::MAX, move |_| {
            ClientState::fresh(initial.clone(), dual.clone(), warm_start)
        });
        let never = || false;
        let mut transport = InProcess::new(algorithm, &self.training, engine, &mut store, Seed::new(1), &never);
        let plan = Plan {
            rounds,
            sampling: Sampling { fraction: 0.5, ..Sampling::default() },
            evaluate_every: 1,
            measure_theory: false,
            ..Plan::default()
        };
        let mut federation = Server { algorithm, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
        assert!(federation.run(&mut server, &mut []).expect("training").is_continue());
        let evaluation = federation.evaluation(&server).expect("evaluated");
        let states = (0..CLIENTS).map(|client| store.get(client).expect("in memory")).collect();
        Outcome { server, evaluation, states }
    }
}

pub(crate) struct Outcome {
    pub(crate) server: ServerState,
    pub(crate) evaluation: Evaluation,
    pub(crate) states: Vec<ClientState>,
}

impl Outcome {
    /// Everything that must not depend on threads, as bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.server.weights.packed().to_bytes(&Default::default()).expect("writable");
        self.states.iter().for_each(|state| bytes.extend(state.to_bytes().expect("writable")));
        bytes.extend(format!("{:?}", self.evaluation).into_bytes());
        bytes
    }
}

impl LocalProblems for Digits {
    fn clients(&self) -> usize {
        self.shards.len()
    }

    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>> {
        Ok(Box::new(NetworkProblem::new(Arc::clone(&self.network), self.shards[client].clone(), &self.training)))
    }
}

pub(crate) fn brief() -> Training {
    Training { learning_rate: 0.05, epochs: 1, personal_epochs: 1, ..Training::default() }
}
