//! Federations of digits on a GPU end where they end on the CPU, and in the same bytes however clients are packed.
#![allow(clippy::print_stdout, reason = "a line for every case, for whoever runs the tests on a card")]
use std::num::NonZeroUsize;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{
    AdaptiveClip, Aggregation, AggregationRule, Algorithm, Apfl, Array, Asynchronous, ClientByClient, ClientState, ClientStore,
    Clipping, Ditto, Engine, Error, Evaluation, Event, FedAvg, FedBn, FedEq, GeometricMedian, HeadOn, InProcess, LocalProblem,
    LocalProblems, Method, Moon, NoiseBy, Observer, OptimiserName, Params, PersonalStart, Plan, Privacy, Projection, Result,
    RoundSeconds, Sampling, Scaffold, Schedule, ScheduleShape, SecureAggregation, Server, ServerState, ServerStep, ThetaStart,
    Training, Unseen, Weighting, Weights, Workers, shared_part,
};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_cuda::{ClientData, CudaEngine, CudaOptions, Precision};
use fedeq_data::partition::{Partition, Split};
use fedeq_data::shard::{Augmentation, Remainder, Shard};
use fedeq_data::source::Source;
use fedeq_data::{Dataset, Labels, Samples, Seed, Sequences};
use fedeq_equilibrium::{Equilibrium, Stop, StoredPrecision, WarmStart};
use fedeq_models::graph::{Ends, Fusion};
use fedeq_models::{Activation, Graph, ModelConfig, NormKind, Task, normal_numbers};

/// The last of them is met after training.
const CLIENTS: usize = 7;

/// How often the CPU is asked how far it ends from itself, by how much weights are changed for it, and how many times the difference that makes is allowed.
const DRAWS: u64 = 16;
const NUDGE: f32 = 1e-6;
const TIMES: f64 = 2.0;

/// A small federation.
struct Small {
    shards: Vec<[Shard; 3]>,
    network: Arc<Network>,
    training: Training,
    /// Which of the first weights have other last bits, if any.
    nudge: Option<u64>,
}

impl Small {
    fn digits(model: &str, training: Training) -> Self {
        Self::every(1, graph(model, &Task::image(8, 8, 1, 10)), training)
    }

    /// So little to do that a processor which stands in for a card is done in seconds: a quarter of the samples, and solves of three steps.
    fn little(model: &str, training: Training) -> Self {
        let shallow = Equilibrium { stop: Stop::relative(0.0, 3), ..Equilibrium::default() };
        Self::every(4, graph(model, &Task::image(8, 8, 1, 10)).with_equilibrium(&shallow), training)
    }

    /// Clients that hold one of so many of their digits.
    fn every(nth: usize, graph: Graph, training: Training) -> Self {
        let dataset = Arc::new(Source::default().load("".as_ref()).expect("embedded"));
        let rule = Partition::LabelShards { clients: CLIENTS, shards: 2 };
        let federation = rule.assign(&dataset, &Split::default(), Seed::new(5)).expect("enough digits");
        // Small clients of different sizes: some smaller than a batch, some with batches that are not full.
        let shard = |indices: &[u32], step: usize| {
            Shard::new(Arc::clone(&dataset), indices.iter().copied().step_by(step).collect()).expect("assigned")
        };
        let client = |(number, client): (usize, &fedeq_data::partition::ClientIndices)| {
            let step = [3, 5, 40, 4, 7, 3, 6][number];
            [shard(&client.train, (nth * step).min(40)), shard(&client.validation, nth * 6), shard(&client.test, nth * 4)]
        };
        let shards = federation.clients.iter().enumerate().map(client).collect();
        Self { shards, network: Arc::new(Network::new(graph)), training, nudge: None }
    }

    /// A few digits of every client, and a network with everything that methods tell apart: normalisations, a body, a head.
    fn tiny(norm: NormKind, training: Training) -> Self {
        let graph = Graph::build(&Task::image(8, 8, 1, 10), |net| {
            let x = net.input();
            let x = net.at("stem").conv("conv", x, 16, 3, 2);
            let x = net.at("stem").norm("norm", x, norm, Fusion::After(Activation::Softplus));
            let x = net.mean_pool(x);
            let x = net.dense("dense", x, 16, Some(Activation::Softplus));
            Ends { logits: net.personal_dense(x), embedding: x }
        });
        let Self { shards, .. } = Self::digits("linear", training.clone());
        let few = |shard: &Shard, step: usize| {
            Shard::new(Arc::clone(shard.dataset()), shard.indices().iter().copied().step_by(step).collect()).expect("there")
        };
        let shards =
            shards.into_iter().map(|[train, validation, test]| [few(&train, 3), few(&validation, 3), few(&test, 3)]).collect();
        Self { shards, network: Arc::new(Network::new(graph.expect("a network"))), training, nudge: None }
    }

    fn texts(model: &str, training: Training) -> Self {
        let (length, vocabulary, samples) = (16, 30, 40 * CLIENTS);
        let symbol =
            |at: usize| if at % (5 * length) >= 5 * length - 6 { 0 } else { ((at * 7 + at / 13) % (vocabulary - 1) + 1) as u8 };
        let dataset = Arc::new(Dataset {
            name: "drawn".into(),
            samples: Samples::Sequences(Sequences { length, vocabulary, symbols: (0..samples * length).map(symbol).collect() }),
            labels: Labels::NextSymbols((0..samples * length).map(|at| symbol(at + 1)).collect()),
            owners: None,
            test_start: None,
        });
        let shard = |from: usize, to: usize| Shard::new(Arc::clone(&dataset), (from as u32..to as u32).collect()).expect("there");
        let client = |number: usize| {
            let first = 40 * number;
            [shard(first, first + 12 + 2 * number), shard(first + 26, first + 30), shard(first + 30, first + 40)]
        };
        let graph = graph(model, &Task::next_symbol(length, vocabulary));
        Self { shards: (0..CLIENTS).map(client).collect(), network: Arc::new(Network::new(graph)), training, nudge: None }
    }

    fn gpu(&self, options: &CudaOptions) -> CudaEngine {
        let client = |(number, shards): (usize, &[Shard; 3])| ClientData { name: format!("c{number}"), shards: shards.clone() };
        let clients = self.shards.iter().enumerate().map(client).collect();
        CudaEngine::new(self.network.graph(), clients, &self.training, options).expect("a GPU")
    }

    fn on_cpu(&self, method: &dyn Algorithm, plan: &Plan) -> Result<Outcome> {
        self.run(&ClientByClient::new(self, Workers::new(0).expect("threads")), method, plan)
    }

    /// How far the CPU ends from where it ended, with other last bits in the first weights: at most, in so many draws that it is that far, or in all.
    fn chaos(&self, method: &dyn Algorithm, plan: &Plan, outcome: &Outcome, far: f64) -> f64 {
        let mut most = 0.0;
        for draw in 0..DRAWS {
            let (shards, network, training) = (self.shards.clone(), Arc::clone(&self.network), self.training.clone());
            let nudged = Self { shards, network, training, nudge: Some(draw) };
            let other = nudged.on_cpu(method, plan).expect("trained");
            most = other.differences(outcome).into_iter().map(|(_, by)| by).fold(most, f64::max);
            if most >= far {
                break;
            }
        }
        most
    }

    fn run(&self, engine: &dyn Engine, algorithm: &dyn Algorithm, plan: &Plan) -> Result<Outcome> {
        let mut initial = Weights::initial(self.network.graph(), 11);
        if let Some(draw) = self.nudge {
            initial.params = initial.params.iter().map(|(name, array)| (name.to_owned(), nudged(name, array, draw))).collect();
        }
        let mut server = ServerState::new(shared_part(algorithm, &initial), CLIENTS - 1, algorithm.initial_rho());
        let dual = algorithm.initial_dual(&initial, Seed::new(3));
        let warm_start = self.training.warm_start;
        let mut store = ClientStore::new("nowhere".into(), usize::MAX, move |_| {
            ClientState::fresh(initial.clone(), dual.clone(), warm_start)
        });
        let never = || false;
        let mut transport = InProcess::new(algorithm, &self.training, engine, &mut store, Seed::new(1), &never)
            .securing(plan.secure_rounds(algorithm, CLIENTS - 1)?)
            .noisy(plan.has_noise_in_clear());
        let mut federation = Server { algorithm, plan, clients: CLIENTS - 1, transport: &mut transport, seed: Seed::new(2) };
        assert!(federation.run(&mut server, &mut [])?.is_continue());
        federation.meet_unseen(&server, &[CLIENTS - 1])?;
        let unseen = federation.evaluate_unseen(&server, &[CLIENTS - 1])?.expect("somebody was unseen");
        let evaluation = federation.evaluation(&server)?;
        let states = (0..CLIENTS).map(|client| store.get(client)).collect::<Result<_>>()?;
        Ok(Outcome { server, evaluation, unseen, states })
    }
}

impl LocalProblems for Small {
    fn clients(&self) -> usize {
        self.shards.len()
    }

    fn name(&self, client: usize) -> String {
        format!("c{client}")
    }

    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>> {
        Ok(Box::new(NetworkProblem::new(Arc::clone(&self.network), self.shards[client].clone(), &self.training)))
    }
}

/// Other last bits.
fn nudged(name: &str, array: &Array, draw: u64) -> Array {
    let noise = normal_numbers(draw, name, array.values.len());
    let values = array.values.iter().zip(noise).map(|(value, noise)| value * (1.0 + NUDGE * noise.clamp(-1.0, 1.0)));
    Array::new(array.shape.clone(), values.collect())
}

fn graph(model: &str, task: &Task) -> Graph {
    model.parse::<ModelConfig>().expect("a known model").graph(task).expect("fits")
}

struct Outcome {
    server: ServerState,
    evaluation: Evaluation,
    unseen: Unseen,
    states: Vec<ClientState>,
}

impl Outcome {
    /// Everything but seconds, as bytes.
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.server.to_bytes().expect("writable");
        self.states.iter().for_each(|state| bytes.extend(state.to_bytes().expect("writable")));
        bytes.extend(format!("{:?} {:?}", self.evaluation, self.unseen).into_bytes());
        bytes
    }

    /// The largest differences of weights and of losses from those of another.
    fn differences(&self, other: &Self) -> Vec<(String, f64)> {
        let mut all = vec![("server".to_owned(), apart(&self.server.weights.params, &other.server.weights.params, 1e-6))];
        all.push(("server's statistics".into(), apart(&self.server.weights.statistics, &other.server.weights.statistics, 1e-6)));
        for (client, (a, b)) in self.states.iter().zip(&other.states).enumerate() {
            let size = b.own.params.norm();
            all.push((format!("own of {client}"), apart(&a.own.params, &b.own.params, 1e-6)));
            all.push((format!("statistics of {client}"), apart(&a.own.statistics, &b.own.statistics, 1e-6)));
            all.push((format!("dual of {client}"), apart(&a.dual, &b.dual, 1e-2 * size)));
            match (&a.second, &b.second) {
                (Some(a), Some(b)) => all.push((format!("second of {client}"), apart(&a.params, &b.params, 1e-6))),
                (a, b) => assert_eq!(a.is_some(), b.is_some(), "second of {client}"),
            }
            match (a.mixing, b.mixing) {
                (Some(a), Some(b)) => all.push((format!("mixing of {client}"), (a - b).abs())),
                (a, b) => assert_eq!(a, b, "mixing of {client}"),
            }
            assert_eq!((a.participations, a.last_round), (b.participations, b.last_round), "client {client}");
        }
        let relative = |a: f64, b: f64| (a - b).abs() / b.abs().max(1e-2);
        let (a, b) = (&self.evaluation, &other.evaluation);
        all.push(("loss".into(), relative(a.local.loss, b.local.loss)));
        all.push(("gap".into(), relative(a.gap, b.gap)));
        all.push(("dual norm".into(), relative(a.dual_norm, b.dual_norm)));
        all.push(("unseen loss".into(), relative(self.unseen.local.loss, other.unseen.local.loss)));
        for (name, a, b) in [("shared", &a.shared, &b.shared), ("validation", &a.validation, &b.validation)] {
            match (a, b) {
                (Some(a), Some(b)) => all.push((format!("{name} loss"), relative(a.loss, b.loss))),
                (a, b) => assert_eq!(a.is_some(), b.is_some(), "{name}"),
            }
        }
        if let (Some(a), Some(b)) = (&a.theory, &b.theory) {
            all.push(("lagrangian".into(), relative(a.lagrangian, b.lagrangian)));
            all.push(("stationarity".into(), relative(a.stationarity, b.stationarity)));
            all.push(("head gradient".into(), relative(a.head_gradient, b.head_gradient)));
        }
        // Messages say losses and gaps as text, which may have a digit more or less.
        all.push(("traffic".into(), relative(a.traffic.total() as f64, b.traffic.total() as f64)));
        all
    }
}

fn apart(a: &Params, b: &Params, floor: f64) -> f64 {
    let difference = a.minus(b).norm() / b.norm().max(floor);
    if difference.is_nan() { f64::INFINITY } else { difference }
}

fn brief() -> Training {
    Training { learning_rate: 0.02, epochs: 2, personal_epochs: 2, remainder: Remainder::Keep, ..Training::default() }
}

/// Steps that hardly move anything, so that little is made of rounding.
fn gentle() -> Training {
    let batch_size = NonZeroUsize::new(16).expect("not 0");
    Training { learning_rate: 1e-4, epochs: 1, personal_epochs: 1, batch_size, ..brief() }
}

fn rounds(rounds: u64) -> Plan {
    let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
    Plan { rounds, sampling, evaluate_every: 1, ..Plan::default() }
}

/// The same with all clients that there are in training.
fn everybody(number: u64) -> Plan {
    Plan { sampling: Sampling { fraction: 1.0, ..Sampling::default() }, ..rounds(number) }
}

fn exact() -> CudaOptions {
    CudaOptions { precision: Precision::Exact, ..CudaOptions::default() }
}

/// Cases and what went wrong in them.
#[derive(Default)]
struct Cases {
    failed: Vec<String>,
}

impl Cases {
    /// Compares with the CPU. What small networks make of few digits has jumps: a solve that takes a step more, a relu or a largest of its window that is another one. Where the GPU ends
    /// elsewhere, so must the CPU if the last bits of the first weights are others.
    fn compare(&mut self, name: &str, small: &Small, method: &dyn Algorithm, plan: &Plan, allowed: f64) {
        let begun = Instant::now();
        let expected = small.on_cpu(method, plan).expect("trained");
        let cpu = begun.elapsed().as_secs_f64();
        let begun = Instant::now();
        let engine = small.gpu(&exact());
        let found = match small.run(&engine, method, plan) {
            Ok(found) => found,
            Err(error) => return self.fail(format!("{name}: {error} ({})", error.hint())),
        };
        let gpu = begun.elapsed().as_secs_f64();
        let mut differences = found.differences(&expected);
        differences.sort_by(|a, b| b.1.total_cmp(&a.1));
        let listed: Vec<String> = differences.iter().take(3).map(|(what, by)| format!("{what} {by:.1e}")).collect();
        println!("{name}: {} (CPU {cpu:.1} s, GPU {gpu:.1} s)", listed.join(", "));
        let (what, by) = &differences[0];
        if *by <= allowed {
            return;
        }
        let has_jumps = !small.network.graph().statistics.is_empty();
        let chaos = if has_jumps { small.chaos(method, plan, &expected, by / TIMES) } else { 0.0 };
        println!("{name}: {what} differs by {by:.1e}, the CPU from itself by {chaos:.1e}");
        if TIMES * chaos < *by {
            self.fail(format!("{name}: {what} differs by {by:.1e}"));
        }
    }

    fn same_bytes(&mut self, name: &str, small: &Small, method: &dyn Algorithm, options: &CudaOptions) {
        let plan = rounds(2);
        let run = |engine: CudaEngine| small.run(&engine, method, &plan).map(|outcome| outcome.bytes());
        let lanes = |count: usize| NonZeroUsize::new(count).expect("not 0");
        let first = run(small.gpu(options));
        if let Err(error) = &first {
            return self.fail(format!("{name}: {error} ({})", error.hint()));
        }
        let first = first.expect("trained");
        let tight = CudaOptions { memory_budget: Some(3_000_000), ..options.clone() };
        for (how, engine) in [
            ("again", small.gpu(options)),
            ("two at once", small.gpu(options).most_lanes(lanes(2))),
            ("one by one", small.gpu(options).most_lanes(lanes(1))),
            ("without recording", small.gpu(options).without_recording()),
            ("in little memory", small.gpu(&tight)),
        ] {
            match run(engine) {
                Ok(bytes) if bytes == first => {}
                Ok(_) => self.fail(format!("{name}: other bytes {how}")),
                Err(error) => self.fail(format!("{name}, {how}: {error} ({})", error.hint())),
            }
        }
        println!("{name}: {} bytes", first.len());
    }

    fn fail(&mut self, what: String) {
        println!("WRONG {what}");
        self.failed.push(what);
    }

    fn finish(self) {
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }
}

/// All methods that a card can train.
fn methods() -> impl Iterator<Item = Method> {
    Method::NAMES.into_iter().map(|name| Method::named(name).expect("known"))
}

#[test]
#[ignore = "needs a GPU"]
fn every_method_ends_where_it_does_on_the_cpu() {
    let mut cases = Cases::default();
    for (model, training, allowed) in
        [("mlp", brief(), 1e-4), ("deq-mlp", brief(), 1e-4), ("resnet-xs", gentle(), 1e-3), ("deq-resnet-xs", gentle(), 1e-3)]
    {
        let small = Small::digits(model, training);
        for method in methods() {
            cases.compare(&format!("{model} {}", method.name()), &small, method.algorithm(), &rounds(3), allowed);
        }
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn little_federations_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    let small = Small::little("mlp", brief());
    for method in methods() {
        cases.compare(&format!("mlp {}", method.name()), &small, method.algorithm(), &rounds(2), 1e-4);
    }
    for (model, training, allowed) in
        [("deq-mlp", brief(), 1e-4), ("resnet-xs", gentle(), 1e-3), ("deq-resnet-xs", gentle(), 1e-3)]
    {
        let small = Small::little(model, training);
        for name in ["fedeq", "ditto"] {
            let method = Method::named(name).expect("known");
            cases.compare(&format!("{model} {name}"), &small, method.algorithm(), &rounds(2), allowed);
        }
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn bytes_of_little_federations_depend_on_neither_packing_nor_recording() {
    let mut cases = Cases::default();
    for precision in [Precision::Mixed, Precision::Exact] {
        let options = CudaOptions { precision, ..CudaOptions::default() };
        let warm_start = WarmStart::BySample { capacity: None, precision: StoredPrecision::Half, lasting: true };
        let small = Small::little("deq-resnet-xs", Training { warm_start, ..brief() });
        cases.same_bytes(&format!("deq-resnet-xs {precision:?}"), &small, &FedEq::default(), &options);
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn texts_and_all_switches_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    for model in ["transformer-4", "deq-transformer"] {
        let small = Small::texts(model, brief());
        for name in ["fedeq", "fedavg", "knn-per"] {
            let method = Method::named(name).expect("known");
            cases.compare(&format!("{model} {name}"), &small, method.algorithm(), &rounds(2), 5e-3);
        }
        let per_symbol = FedEq { per_symbol: true, rho: 0.5, ..FedEq::default() };
        cases.compare(&format!("{model} by symbol"), &small, &per_symbol, &rounds(2), 5e-3);
    }
    let falling = Schedule { shape: ScheduleShape::Cosine, warm_up: Some(1), ..Schedule::default() };
    let scheduled = Training { schedule: Some(falling), local_schedule: Some(falling), ..brief() };
    cases.compare("scheduled rates", &Small::digits("deq-mlp", scheduled), &FedEq::default(), &rounds(3), 1e-3);
    let consensus = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let own = FedEq { start: ThetaStart::OwnIfConsecutive, head_on: HeadOn::Start, ..consensus.clone() };
    let trained = Ditto { start: PersonalStart::Trained, ..Ditto::default() };
    let theory = Plan { measure_theory: true, ..rounds(2) };
    let mlp = Small::digits("deq-mlp", Training { projection: Some(Projection::Ball(0.9)), ..brief() });
    cases.compare("consensus, projected", &mlp, &consensus, &theory, 5e-3);
    cases.compare("own start, projected", &mlp, &own, &theory, 5e-3);
    cases.compare("trained start, projected", &mlp, &trained, &rounds(2), 5e-3);
    let asynchronous = Plan { asynchronous: Some(Asynchronous::default()), ..rounds(3) };
    cases.compare("asynchronous", &mlp, &consensus, &asynchronous, 5e-3);
    let resnet = Small::digits("deq-resnet-xs", gentle());
    cases.compare("theory of a residual cell", &resnet, &FedEq::default(), &theory, 2e-2);
    for warm_start in [
        WarmStart::PreviousBatch,
        WarmStart::by_sample(),
        WarmStart::BySample { capacity: Some(20_000), precision: StoredPrecision::Single, lasting: true },
    ] {
        let warm = Small::digits("deq-resnet-xs", Training { warm_start, ..gentle() });
        cases.compare(&format!("{warm_start:?}"), &warm, &FedEq::default(), &rounds(3), 1e-2);
    }
    cases.finish();
}

/// Every optimiser, so that Adam's steps are no noise where gradients are hardly any.
fn optimisers() -> Vec<(&'static str, Training)> {
    let sgd = Training { momentum: Some(0.9), ..brief() };
    let adam = Training { optimiser: OptimiserName::Adam, learning_rate: 2e-3, epsilon: Some(1e-3), ..brief() };
    vec![
        ("momentum", sgd.clone()),
        ("Nesterov", Training { nesterov: true, weight_decay: Some(0.05), ..sgd }),
        ("weight decay", Training { weight_decay: Some(0.1), ..brief() }),
        ("Adam", Training { weight_decay: Some(0.02), ..adam.clone() }),
        ("AdamW", Training { optimiser: OptimiserName::AdamW, beta_1: Some(0.8), beta_2: Some(0.98), ..adam }),
    ]
}

#[test]
#[ignore = "needs a GPU"]
fn optimisers_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    let falling = Schedule { shape: ScheduleShape::Cosine, warm_up: Some(1), ..Schedule::default() };
    let pulled = FedEq { rho: 0.5, ..FedEq::default() };
    for (name, training) in optimisers() {
        let clipped = Training { clip_gradient: Some(0.3), ..training.clone() };
        let scheduled = Training { local_schedule: Some(falling), ..clipped.clone() };
        for (how, training, method) in [
            ("alone", &training, &FedAvg::default() as &dyn Algorithm),
            ("with a proximal term", &training, &pulled as &dyn Algorithm),
            ("clipped", &clipped, &FedAvg::default() as &dyn Algorithm),
            ("clipped, with a proximal term and a schedule", &scheduled, &pulled as &dyn Algorithm),
        ] {
            cases.compare(&format!("{name} {how}"), &Small::tiny(NormKind::Group, training.clone()), method, &rounds(2), 1e-3);
        }
    }
    let clipped = Training { clip_gradient: Some(0.3), ..brief() };
    cases.compare("clipping alone", &Small::tiny(NormKind::Group, clipped), &pulled, &rounds(2), 1e-3);
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn optimisers_of_networks_of_texts_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    let by_symbol = FedEq { rho: 0.5, per_symbol: true, ..FedEq::default() };
    let few = |training| {
        let Small { shards, network, .. } = Small::texts("transformer-4", Training::default());
        let some = |shard: &Shard| Shard::new(Arc::clone(shard.dataset()), shard.indices().iter().copied().step_by(3).collect());
        let shards = shards.iter().map(|shards| shards.each_ref().map(|shard| some(shard).expect("there"))).collect();
        Small { shards, network, training, nudge: None }
    };
    for (name, training) in optimisers() {
        let small = few(Training { clip_gradient: Some(0.3), epochs: 1, personal_epochs: 1, ..training });
        cases.compare(&format!("texts, {name}"), &small, &by_symbol, &rounds(1), 5e-3);
    }
    cases.compare("texts, moon", &few(Training { epochs: 1, ..brief() }), &Moon::default(), &rounds(2), 5e-3);
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn changed_pictures_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    for augment in [
        Augmentation { crop: Some(2), flip: true },
        Augmentation { crop: None, flip: true },
        Augmentation { crop: Some(3), flip: false },
    ] {
        let small = Small::tiny(NormKind::Group, Training { augment: Some(augment), ..brief() });
        cases.compare(&format!("{augment:?}"), &small, &FedAvg::default(), &rounds(2), 1e-3);
    }
    cases.finish();
}

/// Methods that keep parts of a part with their clients, send more than a model, do other numbers of steps or mix, and train on embeddings.
fn special_methods() -> [(&'static str, Box<dyn Algorithm>); 5] {
    [
        ("fedbn", Box::new(FedBn::default())),
        ("scaffold", Box::new(Scaffold::default())),
        ("scaffold at half a rate", Box::new(Scaffold { server_rate: 0.5 })),
        ("apfl, adaptive", Box::new(Apfl { adaptive: true, ..Apfl::default() })),
        ("moon", Box::new(Moon { weight: 5.0, ..Moon::default() })),
    ]
}

/// What the server makes of updates that stay on the card: clipped, with noise, by a rule, and summed in secret.
#[test]
#[ignore = "needs a GPU"]
fn updates_on_a_card_are_aggregated_as_on_the_cpu() {
    let mut cases = Cases::default();
    let small = Small::tiny(NormKind::Group, brief());
    let method = FedAvg { weighting: Weighting::Uniform, ..FedAvg::default() };
    let robust = |rule, clip| Plan { aggregation: Aggregation { rule, clip, ..Aggregation::MEAN }, ..everybody(2) };
    let private = Privacy { noise_multiplier: Some(0.5), clip: Clipping::Fixed(0.2), ..Privacy::default() };
    let by_clients = Privacy { noise: NoiseBy::Clients, ..private };
    let secret = Some(SecureAggregation::default());
    for (name, plan) in [
        ("clipped", robust(AggregationRule::Mean, Some(Clipping::Adaptive(AdaptiveClip::default())))),
        ("median", robust(AggregationRule::Median, None)),
        ("geometric median", robust(AggregationRule::GeometricMedian(GeometricMedian::default()), None)),
        ("noise by the server", Plan { privacy: Some(private), ..everybody(2) }),
        ("noise by clients", Plan { privacy: Some(by_clients), ..everybody(2) }),
        ("summed in secret", Plan { secure_aggregation: secret.clone(), ..everybody(2) }),
        ("noise by clients, summed in secret", Plan { privacy: Some(by_clients), secure_aggregation: secret, ..everybody(2) }),
    ] {
        plan.validate(&method).expect("a plan for this method");
        cases.compare(name, &small, &method, &plan, 1e-3);
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn methods_on_a_tiny_network_end_where_they_do_on_the_cpu() {
    let mut cases = Cases::default();
    for norm in [NormKind::Group, NormKind::Batch] {
        for method in methods() {
            let name = format!("{} {norm:?}", method.name());
            cases.compare(&name, &Small::tiny(norm, brief()), method.algorithm(), &rounds(3), 1e-3);
        }
        for (name, method) in special_methods() {
            cases.compare(&format!("{name} {norm:?}"), &Small::tiny(norm, brief()), method.as_ref(), &rounds(3), 1e-3);
        }
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn bytes_of_optimisers_and_special_methods_depend_on_neither_packing_nor_recording() {
    let mut cases = Cases::default();
    for precision in [Precision::Mixed, Precision::Exact] {
        let options = CudaOptions { precision, ..CudaOptions::default() };
        for (name, training) in optimisers() {
            let augment = Some(Augmentation { crop: Some(1), flip: true });
            let small = Small::tiny(NormKind::Batch, Training { clip_gradient: Some(1.0), augment, ..training });
            cases.same_bytes(&format!("{name} {precision:?}"), &small, &FedEq::default(), &options);
        }
        for (name, method) in special_methods() {
            cases.same_bytes(&format!("{name} {precision:?}"), &Small::tiny(NormKind::Batch, brief()), method.as_ref(), &options);
        }
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn bytes_depend_on_neither_packing_nor_recording() {
    let mut cases = Cases::default();
    for precision in [Precision::Mixed, Precision::Exact] {
        let options = CudaOptions { precision, ..CudaOptions::default() };
        for (model, methods) in [
            ("deq-resnet-xs", &["fedeq", "ditto", "knn-per"][..]),
            ("resnet-xs", &["fedrep", "fedavg"][..]),
            ("deq-mlp", &["fedeq"][..]),
        ] {
            let warm_start = WarmStart::BySample { capacity: None, precision: StoredPrecision::Half, lasting: true };
            let projection = (model == "deq-mlp").then_some(Projection::Ball(0.5));
            let small = Small::digits(model, Training { warm_start, projection, ..brief() });
            for name in methods {
                let method = Method::named(name).expect("known");
                cases.same_bytes(&format!("{model} {name} {precision:?}"), &small, method.algorithm(), &options);
            }
        }
        let small = Small::texts("deq-transformer", brief());
        cases.same_bytes(&format!("deq-transformer {precision:?}"), &small, &FedEq::default(), &options);
    }
    cases.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn divergence_is_told_as_on_the_cpu() {
    for (model, rate) in [("mlp", 1e30), ("deq-resnet-xs", 1e8)] {
        let small = Small::digits(model, Training { learning_rate: rate, ..brief() });
        let expected = small.on_cpu(&FedAvg::default(), &rounds(2)).err().expect("diverged");
        let found = small.run(&small.gpu(&exact()), &FedAvg::default(), &rounds(2)).err().expect("diverged");
        println!("{model}: `{expected}` ({}), `{found}` ({})", expected.hint(), found.hint());
        assert!(matches!(found, Error::Diverged { .. }));
        assert_eq!(found.to_string().split(':').next(), expected.to_string().split(':').next(), "the same client");
        assert_eq!(found.hint(), expected.hint());
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_stop_is_obeyed_and_usage_is_told() {
    let small = Small::digits("mlp", brief());
    let engine = small.gpu(&exact());
    small.run(&engine, &FedAvg::default(), &rounds(1)).expect("trained");
    let usage = engine.usage();
    println!("{usage:?}");
    assert!(usage.bytes > 0 && usage.peak >= usage.bytes && usage.busy > 0.0 && usage.busy <= 1.0);
    let initial = Weights::initial(small.network.graph(), 11);
    let mut store = ClientStore::new("nowhere".into(), usize::MAX, move |_| {
        ClientState::fresh(initial.clone(), Params::default(), WarmStart::Off)
    });
    let (training, at_once) = (brief(), || true);
    let method = FedAvg::default();
    let mut transport = InProcess::new(&method, &training, &engine, &mut store, Seed::new(1), &at_once);
    let plan = rounds(1);
    let mut server = ServerState::new(Weights::initial(small.network.graph(), 11), CLIENTS, None);
    let mut federation =
        Server { algorithm: &method, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
    assert!(matches!(federation.run(&mut server, &mut []), Err(Error::Interrupted)));
}

/// What the first row asks for: ten of a hundred clients with 500 pictures each.
#[test]
#[ignore = "needs a GPU and measures nothing but time"]
fn seconds_of_a_round() {
    let samples = 60_000;
    let noise = |at: usize| ((at as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8;
    let images = fedeq_data::Images {
        shape: [32, 32, 3],
        pixels: (0..samples * 3072).map(noise).collect(),
        white: 255,
        scaling: fedeq_data::Scaling::identity(3),
    };
    let labels = Labels::Classes {
        names: (0..10).map(|class| class.to_string()).collect(),
        values: (0..samples).map(|at| u16::from(noise(at)) % 10).collect(),
    };
    let dataset =
        Arc::new(Dataset { name: "noise".into(), samples: Samples::Images(images), labels, owners: None, test_start: None });
    let shard = |from: usize, count: usize| {
        Shard::new(Arc::clone(&dataset), (from as u32..(from + count) as u32).collect()).expect("there")
    };
    let shards: Vec<[Shard; 3]> =
        (0..100).map(|client| [shard(600 * client, 500), shard(600 * client + 500, 0), shard(600 * client + 500, 100)]).collect();
    let settings = Equilibrium { stop: Stop::relative(0.0, 8), ..Equilibrium::default() };
    let task = Task::image(32, 32, 3, 10);
    let batch_size = NonZeroUsize::new(20).expect("not 0");
    let training = Training { learning_rate: 1e-3, batch_size, ..Training::default() };
    for (model, method) in [("deq-resnet-m", "fedeq"), ("resnet-34", "fedrep"), ("deq-resnet-s", "fedeq")] {
        let graph = graph(model, &task).with_equilibrium(&settings);
        let client = |(number, shards): (usize, &[Shard; 3])| ClientData { name: format!("c{number}"), shards: shards.clone() };
        let clients = shards.iter().enumerate().map(client).collect();
        let begun = Instant::now();
        let engine = CudaEngine::new(&graph, clients, &training, &CudaOptions::default()).expect("a GPU");
        println!("{model} {method}: ready after {:.1} s", begun.elapsed().as_secs_f64());
        let method = Method::named(method).expect("known");
        let algorithm = method.algorithm();
        let initial = Weights::initial(&graph, 11);
        let mut server = ServerState::new(shared_part(algorithm, &initial), 100, algorithm.initial_rho());
        let dual = algorithm.initial_dual(&initial, Seed::new(3));
        let mut store = ClientStore::new("nowhere".into(), usize::MAX, move |_| {
            ClientState::fresh(initial.clone(), dual.clone(), WarmStart::Off)
        });
        let never = || false;
        let mut transport = InProcess::new(algorithm, &training, &engine, &mut store, Seed::new(1), &never);
        for round in 1..=3 {
            let plan =
                Plan { evaluate_every: 0, sampling: Sampling { fraction: 0.1, ..Sampling::default() }, ..rounds(round + 1) };
            let mut federation = Server { algorithm, plan: &plan, clients: 100, transport: &mut transport, seed: Seed::new(2) };
            let mut timer = Timer::default();
            let stops: &mut dyn Observer<InProcess<'_>> = &mut timer;
            let begun = Instant::now();
            let ended = federation.run(&mut server, &mut [stops]).expect("trained");
            println!("  round {round}: {:.3} s, {:?}, {ended:?}", begun.elapsed().as_secs_f64(), timer.seconds);
            let begun = Instant::now();
            federation.evaluation(&server).expect("evaluated");
            println!("  evaluation: {:.3} s, {:?}", begun.elapsed().as_secs_f64(), engine.usage());
        }
    }
}

/// Stops after a round, and knows where its time went.
#[derive(Default)]
struct Timer {
    seconds: Option<RoundSeconds>,
}

impl Observer<InProcess<'_>> for Timer {
    fn observe(&mut self, event: &Event<'_>, _: &mut InProcess<'_>) -> Result<ControlFlow<()>> {
        if let Event::Round { seconds, .. } = event {
            self.seconds = Some((*seconds).clone());
            return Ok(ControlFlow::Break(()));
        }
        Ok(ControlFlow::Continue(()))
    }
}
