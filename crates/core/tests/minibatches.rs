//! What a client trains on and in which turns, on a small network with several batches an epoch: computed once more batch by batch in a straight line, or by a client
//! that has nothing but those samples.
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex};

use fedeq_core::{
    Algorithm, Apfl, Client, ClientByClient, ClientState, ClientTask, ContrastModels, Drift, FedAvg, FedRep, LocalProblem,
    LocalProblems, Moon, Neighbours, PFedMe, Params, Phase, PhaseSeed, Portion, ProximalGradient, Request, Result, Scaffold,
    Score, TrainStats, Training, Trains, Weights, Workers, shared_part,
};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples, Seed, Vectors};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::{ModelConfig, Task};

const SAMPLES: u32 = 12;
const WIDTH: usize = 5;
const RATE: f64 = 0.1;
const SEED: u64 = 4;

/// One client with some samples, and what its training was asked to contrast.
struct Single {
    network: Arc<Network>,
    dataset: Arc<Dataset>,
    train: Vec<u32>,
    training: Training,
    contrasted: Mutex<Vec<ContrastModels>>,
}

impl Single {
    fn new(train: Vec<u32>, training: Training) -> Self {
        let value = |at: usize| ((at * 7919) % 101) as f32 / 50.0 - 1.0;
        let samples = Samples::Vectors(Vectors { width: WIDTH, values: (0..SAMPLES as usize * WIDTH).map(value).collect() });
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let labels = Labels::Classes { names, values: (0..SAMPLES as u16).map(|at| at % 3).collect() };
        let dataset = Arc::new(Dataset { name: "numbers".into(), samples, labels, owners: None, test_start: None });
        let config: ModelConfig = "mlp".parse().expect("known");
        let network = Arc::new(Network::new(config.graph(&Task::vector(WIDTH, 3)).expect("fits")));
        Self { network, dataset, train, training, contrasted: Mutex::default() }
    }

    fn shard(&self, samples: Vec<u32>) -> Shard {
        Shard::new(Arc::clone(&self.dataset), samples).expect("there")
    }

    fn with(&self, samples: Vec<u32>) -> NetworkProblem {
        let shards = [self.shard(samples), self.shard(vec![]), self.shard(vec![])];
        NetworkProblem::new(Arc::clone(&self.network), shards, &self.training)
    }

    fn model(&self, seed: u64) -> Weights {
        Weights::initial(self.network.graph(), seed)
    }

    fn fresh(&self, algorithm: &dyn Algorithm) -> ClientState {
        let initial = self.model(1);
        let dual = algorithm.initial_dual(&initial, Seed::new(2));
        ClientState::fresh(initial, dual, WarmStart::Off)
    }

    /// Has the client train in a round of three, from what it received.
    fn round(&self, algorithm: &dyn Algorithm, state: &mut ClientState, round: u64, received: &Weights) {
        let engine = ClientByClient::new(self, Workers::new(1).expect("a thread"));
        let (training, seed) = (&self.training, Seed::new(SEED));
        let mut client = Client { algorithm, training, engine: &engine, number: 0, state, seed, compression: None };
        let weights = shared_part(algorithm, received);
        let request = Request { task: ClientTask::Train, round, rounds: 3, rho: None, weights };
        client.handle(&request).expect("trained");
    }

    /// The batches of a phase of the first round.
    fn batches(&self, name: &'static str, pass: u64) -> Vec<Vec<u32>> {
        let phase = Phase { pass, ..Phase::new(name, Trains::Everything, 1, RATE) };
        let seed = phase.seed(Seed::new(SEED).derive("round", [0])).epoch(0);
        let shard = self.shard(self.train.clone());
        shard.batches(self.training.batch_size, self.training.remainder, seed).indices().collect()
    }

    /// The gradient of the mean loss of some samples.
    fn gradient(&self, x: &[f64], samples: &[u32]) -> Vec<f64> {
        let start = self.model(1);
        let mut at = x.iter().map(|&value| value as f32);
        let array = |(name, array): (&str, &fedeq_core::Array)| {
            (name.to_owned(), fedeq_core::Array::new(array.shape.clone(), at.by_ref().take(array.values.len()).collect()))
        };
        let params: Params = start.params.iter().map(array).collect();
        flat(&self.with(samples.to_vec()).gradient(&Weights { params, ..start }).expect("sound").1)
    }
}

/// Notes what training is to contrast, and trains.
struct Noting<'a>(&'a Single, NetworkProblem);

impl LocalProblem for Noting<'_> {
    fn samples(&self) -> usize {
        self.1.samples()
    }

    fn train(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        self.1.train(weights, memory, phase, proximal, seed)
    }

    fn train_contrasting(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        contrast: &ContrastModels,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        self.0.contrasted.lock().expect("one thread").push(contrast.clone());
        self.1.train_contrasting(weights, memory, phase, contrast, seed)
    }

    fn score(&self, weights: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score> {
        self.1.score(weights, on, neighbours)
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        self.1.gradient(weights)
    }
}

impl LocalProblems for Single {
    fn clients(&self) -> usize {
        1
    }

    fn problem(&self, _: usize) -> Result<Box<dyn LocalProblem + '_>> {
        Ok(Box::new(Noting(self, self.with(self.train.clone()))))
    }
}

/// Three batches an epoch of all samples.
fn training() -> Training {
    let batch_size = NonZeroUsize::new(4).expect("not 0");
    Training { learning_rate: RATE, epochs: 2, personal_epochs: 1, batch_size, ..Training::default() }
}

fn flat(params: &Params) -> Vec<f64> {
    params.iter().flat_map(|(_, array)| array.values.iter().map(|&value| f64::from(value))).collect()
}

/// `x + factor * by`.
fn plus(x: &[f64], factor: f64, by: &[f64]) -> Vec<f64> {
    x.iter().zip(by).map(|(x, by)| x + factor * by).collect()
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    plus(a, -1.0, b).iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn assert_near(found: &Weights, expected: &[f64], start: &[f64]) {
    let (error, moved) = (distance(&flat(&found.params), expected), distance(start, expected));
    assert!(error < 1e-4 * moved && moved > 1e-3, "{error} off a way of {moved}");
}

/// The paper's Algorithm 1 with the mixing that a round begins with; the mixing of the next round, where it is adaptive.
fn apfl(single: &Single, (w, v): (&mut Vec<f64>, &mut Vec<f64>), alpha: f64) -> f64 {
    let mut next = alpha;
    for pass in 0..2 {
        for (number, batch) in single.batches("body", pass).iter().enumerate() {
            let mixture = plus(w, alpha, &plus(v, -1.0, w));
            let slope = single.gradient(&mixture, batch);
            if (pass, number) == (0, 0) {
                let along: f64 = plus(v, -1.0, w).iter().zip(&slope).map(|(a, b)| a * b).sum();
                next = (alpha - RATE * along).clamp(0.01, 1.0);
            }
            let step = single.gradient(w, batch);
            (*w, *v) = (plus(w, -RATE, &step), plus(v, -RATE * alpha, &slope));
        }
    }
    next
}

#[test]
fn apfl_steps_both_models_on_every_batch_and_moves_its_mixing_by_the_first() {
    for adaptive in [false, true] {
        let single = Single::new((0..SAMPLES).collect(), training());
        let method = Apfl { mixing: 0.3, adaptive, ..Apfl::default() };
        let (mut state, received) = (single.fresh(&method), single.model(7));
        single.round(&method, &mut state, 0, &received);
        let start = (flat(&received.params), flat(&single.model(1).params));
        let (mut w, mut v) = start.clone();
        let next = apfl(&single, (&mut w, &mut v), 0.3);
        assert_near(&state.own, &w, &start.0);
        assert_near(state.second.as_ref().expect("a personal model"), &v, &start.1);
        match state.mixing {
            Some(mixing) => {
                let moved = (next - 0.3).abs();
                assert!(adaptive && moved > 1e-4 && (mixing - next).abs() < 0.01 * moved, "{mixing} {next}");
            }
            None => assert!(!adaptive),
        }
    }
}

#[test]
fn pfedme_solves_for_its_personal_model_on_each_batch_before_the_clients_copy_moves() {
    let (single, lambda, rate) = (Single::new((0..SAMPLES).collect(), training()), 2.0, 0.2);
    let method = PFedMe { penalty: lambda, inner_steps: 3, rate, ..PFedMe::default() };
    let (mut state, received) = (single.fresh(&method), single.model(7));
    single.round(&method, &mut state, 0, &received);
    let start = flat(&received.params);
    let (mut w, mut theta) = (start.clone(), start.clone());
    for batch in (0..2).flat_map(|pass| single.batches("body", pass)) {
        for _ in 0..3 {
            let direction = plus(&single.gradient(&theta, &batch), lambda, &plus(&theta, -1.0, &w));
            theta = plus(&theta, -RATE, &direction);
        }
        w = plus(&w, -rate * lambda, &plus(&w, -1.0, &theta));
    }
    assert_near(&state.own, &w, &start);
    assert_near(state.second.as_ref().expect("a personal model"), &theta, &start);
}

#[test]
fn moon_repels_from_the_clients_model_of_its_last_round_and_attracts_to_what_it_received() {
    let single = Single::new((0..SAMPLES).collect(), training());
    let method = Moon::default();
    let mut state = single.fresh(&method);
    let mut before = vec![state.own.clone()];
    let received = [single.model(7), single.model(8), single.model(9)];
    for (round, received) in received.iter().enumerate() {
        single.round(&method, &mut state, round as u64, received);
        before.push(state.own.clone());
    }
    let contrasted = single.contrasted.lock().expect("one thread");
    assert_eq!(contrasted.len(), 3);
    for (round, models) in contrasted.iter().enumerate() {
        assert_eq!(models.repels, before[round], "round {round}");
        assert_eq!(models.attracts, received[round], "round {round}");
        assert!(before[round + 1] != before[round], "it trains in between");
    }
}

#[test]
fn with_drift_a_client_trains_as_one_that_has_the_samples_of_the_rounds_window_alone() {
    let methods: [&dyn Algorithm; 5] = [
        &FedAvg::default(),
        &FedRep::default(),
        &Scaffold::default(),
        &Apfl { adaptive: true, ..Apfl::default() },
        &PFedMe::default(),
    ];
    for method in methods {
        let drifting = Single::new((0..SAMPLES).collect(), Training { drift: Some(Drift { window: 0.5 }), ..training() });
        let received = drifting.model(7);
        let mut seen = Vec::new();
        for (round, window) in [(0, 0..6), (1, 3..9), (2, 6..12)] {
            let alone = Single::new(window.collect(), training());
            let [mut found, mut expected] = [drifting.fresh(method), alone.fresh(method)];
            drifting.round(method, &mut found, round, &received);
            alone.round(method, &mut expected, round, &received);
            assert_eq!(found, expected, "round {round}");
            seen.push(found.own);
        }
        assert!(seen[0] != seen[1] && seen[1] != seen[2]);
    }
}
