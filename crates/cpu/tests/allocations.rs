//! A training step on a thread that has made one of its kind allocates nothing. (One test only: the counter belongs to the whole process.)
use std::alloc::{GlobalAlloc, Layout, System};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use fedeq_core::{LocalProblem, Phase, Portion, Projection, RoundContext, Training, Trains, Weights};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::shard::{Remainder, Shard};
use fedeq_data::{Dataset, Images, Labels, Samples, Scaling, Seed, Sequences};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::{ModelConfig, Task};

static COUNT: AtomicUsize = AtomicUsize::new(0);

struct Counting;

/// Passes everything on to the system and counts requests.
// SAFETY: every call is forwarded unchanged to `System`, which upholds the contract; counting touches only an atomic.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's guarantees are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BATCH: usize = 6;
const LENGTH: usize = 12;
const VOCABULARY: usize = 20;

/// Numbers that look random.
fn bytes(count: usize, below: usize) -> Vec<u8> {
    (0..count).map(|at| ((at * 7919 + at / 13 * 104_729) % 2003 % below) as u8).collect()
}

fn pictures(count: usize) -> Dataset {
    let scaling = Scaling { mean: vec![0.5], deviation: vec![0.25] };
    let images = Images { shape: [8, 8, 1], pixels: bytes(64 * count, 17), white: 16, scaling };
    let names = (0..10).map(|class: u8| class.to_string()).collect();
    let labels = Labels::Classes { names, values: bytes(count, 10).into_iter().map(u16::from).collect() };
    Dataset { name: "pictures".into(), samples: Samples::Images(images), labels, owners: None, test_start: None }
}

fn text(count: usize) -> Dataset {
    let symbols = bytes(count * LENGTH, VOCABULARY);
    let samples = Samples::Sequences(Sequences { length: LENGTH, vocabulary: VOCABULARY, symbols: symbols.clone() });
    Dataset { name: "text".into(), samples, labels: Labels::NextSymbols(symbols), owners: None, test_start: None }
}

/// A client that trains a network on the first samples of a data set.
struct Client {
    problem: NetworkProblem,
    weights: Weights,
    memory: WarmMemory,
}

impl Client {
    fn new(network: &Arc<Network>, dataset: &Arc<Dataset>, samples: usize, training: &Training) -> Self {
        let shard = |indices: Vec<u32>| Shard::new(Arc::clone(dataset), indices).expect("there");
        let shards = [shard((0..samples as u32).collect()), shard(vec![]), shard(vec![0, 1, 2])];
        let problem = NetworkProblem::new(Arc::clone(network), shards, training);
        Self { problem, weights: Weights::initial(network.graph(), 3), memory: WarmMemory::new(WarmStart::by_sample()) }
    }

    /// Allocations of a phase, and how many steps it has.
    fn train(&mut self, phase: &Phase) -> (usize, u64) {
        let Self { problem, weights, memory } = self;
        let before = COUNT.load(Ordering::Relaxed);
        let stats = problem.train(weights, memory, phase, None, phase.seed(Seed::new(4))).expect("trained");
        (COUNT.load(Ordering::Relaxed) - before, stats.steps)
    }
}

#[test]
fn a_training_step_allocates_nothing() {
    let (images, sentences) = (Task::image(8, 8, 1, 10), Task::next_symbol(LENGTH, VOCABULARY));
    let networks = [
        (r#"{ "name": "mlp" }"#, &images),
        (r#"{ "name": "resnet-xs" }"#, &images),
        (r#"{ "name": "resnet-xs", "norm": "group" }"#, &images),
        (r#"{ "name": "deq-mlp" }"#, &images),
        (r#"{ "name": "deq-resnet-xs" }"#, &images),
        (r#"{ "name": "deq-resnet-xs", "equilibrium": { "adjoint": { "implicit": {} } } }"#, &images),
        (r#"{ "name": "deq-resnet-xs", "equilibrium": { "adjoint": { "phantom": { "steps": 3, "damping": 0.5 } } } }"#, &images),
        (r#"{ "name": "deq-resnet-xs", "equilibrium": { "solver": { "broyden": {} } } }"#, &images),
        (r#"{ "name": "tied-resnet-xs", "steps": 3 }"#, &images),
        (r#"{ "name": "untied-resnet-xs", "pooling": "mean" }"#, &images),
        (r#"{ "name": "transformer-4" }"#, &sentences),
        (r#"{ "name": "deq-transformer" }"#, &sentences),
        (r#"{ "name": "deq-transformer", "injection": 8.0, "state_scale": 16.0, "personal": "output" }"#, &sentences),
        (r#"{ "name": "deq-transformer", "injection_norm": true, "layers": 2, "tied": true }"#, &sentences),
    ];
    let mut found = Vec::new();
    let [pictures, text] = [pictures(60), text(60)].map(Arc::new);
    for (config, task) in networks {
        let graph = serde_json::from_str::<ModelConfig>(config).expect("sound").graph(task).expect("fits");
        let (network, dataset) = (Arc::new(Network::new(graph)), if *task == images { &pictures } else { &text });
        let is_projected = network.graph().projected_matrix().is_some();
        let projections = [None, Some(Projection::Ball(0.9)), Some(Projection::Sphere(0.9))].into_iter();
        let kinds = projections.take(if is_projected { 3 } else { 1 });
        for (remainder, projection) in kinds.flat_map(|kind| [(Remainder::Drop, kind), (Remainder::Keep, kind)]) {
            let batch_size = NonZeroUsize::new(BATCH).expect("not zero");
            let training = Training { batch_size, remainder, learning_rate: 0.01, epochs: 1, projection, ..Training::default() };
            let round = RoundContext { round: 0, rounds: 1, rho: None, training: &training };
            // The same phases on few and on many batches.
            let mut clients = [2 * BATCH + 2, 8 * BATCH + 2].map(|samples| Client::new(&network, dataset, samples, &training));
            for trains in [Trains::Everything, Trains::Shared, Trains::Personal] {
                let phase = round.body(trains);
                for _ in 0..2 {
                    clients.iter_mut().for_each(|client| _ = client.train(&phase));
                    for Client { problem, weights, .. } in &clients {
                        problem.score(weights, Portion::Test, None).expect("scored");
                    }
                }
                // What evaluation gave back to the system is taken once more.
                clients.iter_mut().for_each(|client| _ = client.train(&phase));
                let [few, many] = clients.each_mut().map(|client| client.train(&phase));
                assert!(many.1 >= few.1 + 6, "{config}: {few:?} and {many:?}");
                if many.0 != few.0 {
                    found.push(format!(
                        "{config}, {projection:?}, {remainder:?}, {trains:?}: {few:?} and {many:?} (allocations, steps)"
                    ));
                }
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}
