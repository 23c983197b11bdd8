//! Compares a cohort on a GPU with every client of it on the CPU.
//!
//! Clients differ in their weights, their samples and how many these are. What a plan does not write is not a number before the first pass, so that reading it shows.
#![allow(clippy::print_stdout, reason = "a line for every case, for whoever runs the tests on a card")]
mod images;
mod pictures;

use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{Array, Params, Trains, Weights};
use fedeq_cpu::{Context, Input, RunningMoments, Start};
use fedeq_data::shard::{Batch, Inputs, Shard, Targets};
use fedeq_data::{Dataset, Images, Labels, Samples, Scaling, Sequences, Vectors};
use fedeq_equilibrium::Outcome;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::{Predictions, cross_entropy, cross_entropy_with_gradient};
use fedeq_kernels::norm::Moments;
use fedeq_models::Mode;
use fedeq_models::graph::{Graph, ParameterId};
use fedeq_models::{InputShape, normal_numbers};

use crate::data::DeviceData;
use crate::device::{Buffer, Device};
use crate::executor::{Executor, Lanes, Score};
use crate::layout::Layout;
use crate::op::equilibrium::{Progress, SolveHook};
use crate::op::{DropoutKeys, PassContext, dropout_keys};
use crate::plan::{Precision, Purpose, Size};

/// A network on a cohort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) graph: &'a Graph,
    /// Samples of every lane; there may be none.
    pub(crate) sizes: &'a [usize],
    pub(crate) mode: Mode,
    pub(crate) precision: Precision,
    pub(crate) trains: Option<Trains>,
}

impl Case<'_> {
    fn purpose(&self, size: Size) -> Purpose {
        Purpose { size, mode: self.mode, precision: self.precision, trains: self.trains, contrasts: false }
    }
}

/// How far the two may be apart: relative to the norm of what is compared, lane by lane, and besides what rounding does to the CPU's own results.
///
/// The latter is found by more passes on the CPU with weights that are a little [`off`]: where relu's argument is nearly zero, or a variance is small, that alone moves gradients a lot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Allowed {
    /// Logits, embeddings, losses and running statistics.
    pub(crate) values: f64,
    /// The gradient of every parameter. One that is small beside those of the others is compared with a hundredth of their typical norm.
    pub(crate) gradients: f64,
}

/// By how much, relatively, and in how many passes: rounding in 32 bits moves next to nothing, unless an argument is at relu's edge, and then it is on the other side in about every second one.
const fn off(precision: Precision) -> (f32, u64) {
    match precision {
        Precision::Mixed => (1.0 / 1024.0, 1),
        Precision::Exact => (1e-6, 4),
    }
}
/// How many times the difference that makes is allowed.
const TIMES: f64 = 2.0;

/// Cases on one card.
pub(crate) struct Checks {
    device: Arc<Device>,
    failed: Vec<String>,
}

/// What a client's pass gives.
#[derive(Debug, Default)]
struct Pass {
    logits: Vec<f32>,
    embedding: Vec<f32>,
    score: Score,
    gradients: Params,
    statistics: Params,
    /// How the solve of every sample went: its steps, and how it ended. Nothing for a network that solves for no fixed point.
    solves: Vec<[i32; 2]>,
}

/// A client: its weights, and which samples of the data set it has.
#[derive(Clone)]
struct Client {
    weights: Weights,
    /// Of dropout.
    seed: u64,
    indices: Vec<u32>,
}

/// A difference: of what, in which lane, and how large relative to the norm.
struct Difference {
    name: String,
    lane: usize,
    error: f64,
    allowed: f64,
}

impl Checks {
    pub(crate) fn new() -> Self {
        Self { device: Device::new(0).expect("a GPU"), failed: Vec::new() }
    }

    /// Compares a case, and prints its worst differences.
    pub(crate) fn run(&mut self, case: Case<'_>, allowed: Allowed) {
        let begun = std::time::Instant::now();
        crate::ensure_supported(case.graph, case.precision).expect("a network that the kernels can run");
        let clients = clients(&case);
        let data = Arc::new(dataset(case.graph, clients.iter().map(|client| client.indices.len()).sum()));
        let expected = on_cpu(&case, &clients, &data);
        let moved =
            |draw| on_cpu(&case, &clients.iter().map(|client| client.moved(case.precision, draw)).collect::<Vec<_>>(), &data);
        let moved: Vec<Vec<Pass>> = (0..off(case.precision).1).map(moved).collect();
        let cpu = begun.elapsed();
        let seen = on_gpu(&self.device, &case, &clients, &data);
        let differences: Vec<Difference> = (0..clients.len())
            .flat_map(|lane| {
                let moved: Vec<&Pass> = moved.iter().map(|passes| &passes[lane]).collect();
                compare(lane, &case, &seen[lane], &expected[lane], &moved, allowed)
            })
            .collect();
        let title = format!("{} {:?} {:?} {:?} {:?}", case.name, case.precision, case.mode, case.trains, case.sizes);
        let steps: Vec<i32> = expected.iter().flat_map(|pass| &pass.solves).map(|[steps, _]| *steps).collect();
        if let (Some(least), Some(most)) = (steps.iter().min(), steps.iter().max()) {
            println!("solves of {least} to {most} steps:");
        }
        println!("{title}: {} ({:.1} s, CPU {:.1} s)", worst(&differences), begun.elapsed().as_secs_f64(), cpu.as_secs_f64());
        let mut beyond: Vec<&Difference> = differences.iter().filter(|one| one.error > one.allowed).collect();
        beyond.sort_by(|a, b| b.error.total_cmp(&a.error));
        for Difference { name, lane, error, allowed } in beyond.iter().take(12) {
            println!("    WRONG {name}, lane {lane}: {error:.2e}, allowed {allowed:.1e}");
        }
        if !beyond.is_empty() {
            self.failed.push(format!("{title}: {} of {} comparisons", beyond.len(), differences.len()));
        }
    }

    /// Compares the bits of clients that are in one cohort with those of the same clients in another order, and in several cohorts.
    pub(crate) fn packed_in_other_ways(&mut self, case: Case<'_>) {
        let begun = std::time::Instant::now();
        let clients = clients(&case);
        let data = dataset(case.graph, clients.iter().map(|client| client.indices.len()).sum());
        let together: Vec<Vec<u32>> = on_gpu(&self.device, &case, &clients, &data).iter().map(Pass::bits).collect();
        let backwards: Vec<usize> = (0..clients.len()).rev().collect();
        let every_third = (0..3).map(|first| (first..clients.len()).step_by(3).collect::<Vec<usize>>());
        let mut wrong = Vec::new();
        for cohort in [backwards].into_iter().chain(every_third) {
            let packed: Vec<Client> = cohort.iter().map(|&client| clients[client].clone()).collect();
            let passes = on_gpu(&self.device, &case, &packed, &data);
            wrong.extend(
                cohort.iter().zip(&passes).filter(|(client, pass)| pass.bits() != together[**client]).map(|(client, _)| *client),
            );
        }
        let title = format!("{} {:?} {:?} {:?}, packed in other ways", case.name, case.precision, case.mode, case.trains);
        println!("{title}: {} of {} differ ({:.1} s)", wrong.len(), 2 * clients.len(), begun.elapsed().as_secs_f64());
        if !wrong.is_empty() {
            self.failed.push(format!("{title}: clients {wrong:?}"));
        }
    }

    /// Fails if a case did.
    pub(crate) fn finish(self) {
        assert!(self.failed.is_empty(), "{:#?}", self.failed);
    }
}

impl Pass {
    /// Everything that it gives, to the bit.
    fn bits(&self) -> Vec<u32> {
        let arrays = self.gradients.iter().chain(self.statistics.iter()).flat_map(|(_, array)| array.values.to_vec());
        let numbers = self.logits.iter().chain(&self.embedding).copied().chain(arrays).map(f32::to_bits);
        let loss = self.score.loss.to_bits();
        let score = [loss as u32, (loss >> 32) as u32, self.score.correct as u32, self.score.predictions as u32];
        numbers.chain(score).chain(self.solves.iter().flatten().map(|word| *word as u32)).collect()
    }
}

impl Client {
    /// The same with weights that are a little off.
    fn moved(&self, precision: Precision, draw: u64) -> Self {
        let (by, _) = off(precision);
        let moved = |(name, array): (&str, &Array)| {
            let noise = normal_numbers(11 + draw, name, array.values.len());
            let values =
                array.values.iter().zip(noise).map(|(value, noise)| value * (1.0 + by * noise.clamp(-1.0, 1.0))).collect();
            (name.to_owned(), Array::new(array.shape.clone(), values))
        };
        let params = self.weights.params.iter().map(moved).collect();
        Self {
            weights: Weights { params, statistics: self.weights.statistics.clone() },
            indices: self.indices.clone(),
            seed: self.seed,
        }
    }
}

/// The largest difference of every kind, and how much was allowed for it.
fn worst(differences: &[Difference]) -> String {
    let of = |kind: &str| {
        let name = |one: &&Difference| one.name.starts_with(kind);
        let most = differences.iter().filter(name).max_by(|a, b| a.error.total_cmp(&b.error))?;
        Some(format!("{} {:.1e} of {:.0e} (lane {})", most.name, most.error, most.allowed, most.lane))
    };
    let kinds = ["logits", "embedding", "loss", "gradient", "statistic", "steps", "endings", "other bits"];
    kinds.into_iter().filter_map(of).collect::<Vec<_>>().join(", ")
}

fn clients(case: &Case<'_>) -> Vec<Client> {
    let mut next = 1;
    let client = |(lane, &size): (usize, &usize)| {
        // Not in order, and not all of them.
        let indices = (0..size).map(|at| (next + size - 1 - at) as u32).collect();
        next += size + 1;
        Client { weights: weights(case.graph, lane as u64), seed: 0x5eed_0123_4567_89ab + lane as u64, indices }
    };
    case.sizes.iter().enumerate().map(client).collect()
}

/// First weights with noise, so that nothing is zero or one, and running statistics of some batches.
fn weights(graph: &Graph, seed: u64) -> Weights {
    let mut weights = Weights::initial(graph, seed);
    weights.params = weights.params.iter().map(|(name, array)| (name.to_owned(), noisy(name, array, seed))).collect();
    let moved = |(name, array): (&str, &Array)| {
        let noise = normal_numbers(seed, name, array.values.len());
        let value = |(&value, noise): (&f32, f32)| {
            if name.ends_with(".steps") { (seed % 3) as f32 } else { value * (1.0 + 0.2 * noise.abs()) + 0.1 * noise.abs() }
        };
        (name.to_owned(), Array::new(array.shape.clone(), array.values.iter().zip(noise).map(value).collect()))
    };
    weights.statistics = weights.statistics.iter().map(moved).collect();
    weights
}

fn noisy(name: &str, array: &Array, seed: u64) -> Array {
    let typical = norm(&array.values) / (array.values.len() as f64).sqrt();
    let deviation = if typical > 0.0 { 0.2 * typical } else { 0.1 } as f32;
    let noise = normal_numbers(seed ^ 0x5eed, name, array.values.len());
    Array::new(array.shape.clone(), array.values.iter().zip(noise).map(|(value, noise)| value + deviation * noise).collect())
}

/// Samples for a network, some more than asked for.
fn dataset(graph: &Graph, samples: usize) -> Dataset {
    let (samples, classes) = (2 * samples + 2, graph.task.classes);
    let numbers = |count: usize| normal_numbers(3, "samples", count);
    let below = |limit: usize, count: usize| numbers(count).into_iter().map(move |number| (number.abs() * 1e5) as usize % limit);
    let of_classes = |values| Labels::Classes { names: (0..classes).map(|class| class.to_string()).collect(), values };
    let labels = || of_classes(below(classes, samples).map(|class| class as u16).collect());
    let (samples, labels) = match graph.task.input {
        InputShape::Image { height, width, channels } => {
            let pixels = below(256, samples * height * width * channels).map(|byte| byte as u8).collect();
            let by_channel = |first: f32| (0..channels).map(|channel| first + 0.05 * channel as f32).collect();
            let scaling = Scaling { mean: by_channel(0.45), deviation: by_channel(0.25) };
            (Samples::Images(Images { shape: [height, width, channels], pixels, white: 255, scaling }), labels())
        }
        InputShape::Vector { width } => (Samples::Vectors(Vectors { width, values: numbers(samples * width) }), labels()),
        InputShape::Symbols { length, vocabulary } => {
            // Some texts end early, some begin with padding, and some are nothing else.
            let here = |at: usize| {
                let (text, position) = (at / length, at % length);
                let ends_early = text % 3 == 2 && position >= length.div_ceil(2);
                let begins_late = text % 7 == 3 && position < length / 3;
                !ends_early && !begins_late && text % 7 != 5
            };
            let text = |shift: usize| {
                let symbols = below(vocabulary - 1, samples * length + 1).skip(shift).take(samples * length).enumerate();
                symbols.map(|(at, symbol)| if here(at) { symbol as u8 + 1 } else { 0 }).collect()
            };
            (Samples::Sequences(Sequences { length, vocabulary, symbols: text(0) }), Labels::NextSymbols(text(1)))
        }
    };
    Dataset { name: "drawn".into(), samples, labels, owners: None, test_start: None }
}

/// Every client's pass on the CPU, side by side; nothing but its statistics for one without samples.
fn on_cpu(case: &Case<'_>, clients: &[Client], data: &Arc<Dataset>) -> Vec<Pass> {
    let one = |client: &Client| match NonZeroUsize::new(client.indices.len()) {
        Some(size) => {
            let shard = Shard::new(Arc::clone(data), client.indices.clone()).expect("samples of the data set");
            let batch = shard.in_order(size).next().expect("one batch of all samples");
            cpu_pass(case, client, &batch)
        }
        None => Pass { statistics: client.weights.statistics.clone(), ..Pass::default() },
    };
    std::thread::scope(|scope| {
        let passes: Vec<_> = clients.iter().map(|client| scope.spawn(move || one(client))).collect();
        passes.into_iter().map(|pass| pass.join().expect("a pass on the CPU")).collect()
    })
}

fn cpu_pass(case: &Case<'_>, client: &Client, batch: &Batch) -> Pass {
    let (graph, weights) = (case.graph, &client.weights);
    let trained = |parameter: &fedeq_models::graph::Parameter| case.trains.is_some_and(|trains| trains.includes(parameter.part));
    let (input, length): (Input<'_>, usize) = match &batch.inputs {
        Inputs::Dense { values, .. } => (Input::Numbers(values), 1),
        Inputs::Symbols { values, shape } => (Input::Symbols(values), shape[1]),
    };
    let mut executor = fedeq_cpu::Executor::new(graph, batch.len(), length, case.mode, trained);
    let numbers = |parameter: &fedeq_models::graph::Parameter| {
        Arc::clone(&weights.params.get(&parameter.path).expect("a parameter").values)
    };
    let parameters: Vec<Arc<Vec<f32>>> = graph.parameters.iter().map(numbers).collect();
    let mut statistics = statistics_of(graph, weights);
    let dropout = (case.mode == Mode::Train).then_some(client.seed);
    let mut context = Context { parameters: &parameters, statistics: &mut statistics, dropout, start: Start::Model };
    executor.forward(input, &mut context);
    let embedding = executor.embedding(input).map(<[f32]>::to_vec).unwrap_or_default();
    // The way back may use the memory of the logits.
    let (logits, score) = (executor.logits().to_vec(), cpu_loss(&mut executor, batch));
    let mut gradients = vec![0.0; executor.trained().len()];
    if case.trains.is_some() {
        executor.backward(input, &mut context, &mut gradients);
    }
    let trained = executor.trained();
    let named = graph.parameters.iter().enumerate().filter(|(index, _)| trained.has(ParameterId(*index)));
    let gradients = named.map(|(index, parameter)| {
        let values = gradients[trained.range(ParameterId(index))].to_vec();
        (parameter.path.clone(), Array::new(parameter.shape.clone(), values))
    });
    let gradients = gradients.collect();
    Pass { logits, embedding, score, gradients, statistics: named_statistics(graph, statistics), solves: cpu_solves(&executor) }
}

fn cpu_solves(executor: &fedeq_cpu::Executor) -> Vec<[i32; 2]> {
    let Some(solved) = executor.solved() else { return Vec::new() };
    let ending = |outcome: &Outcome| match outcome {
        Outcome::Converged => 1,
        Outcome::StepLimit => 2,
        Outcome::NotFinite => 3,
    };
    let report = solved.report;
    report.steps.iter().zip(&report.outcome).map(|(&steps, outcome)| [steps as i32, ending(outcome)]).collect()
}

/// Leaves the gradient of the mean loss behind.
fn cpu_loss(executor: &mut fedeq_cpu::Executor, batch: &Batch) -> Score {
    let (Targets::Classes(targets) | Targets::Symbols { values: targets, .. }) = &batch.targets;
    let padding: Option<Vec<bool>> = match &batch.inputs {
        Inputs::Symbols { values, .. } => Some(values.iter().map(|&symbol| symbol == 0).collect()),
        Inputs::Dense { .. } => None,
    };
    let (classes, set, ignored) = (executor.classes(), InstructionSet::best(), padding.as_deref());
    let loss = executor.differentiate(|logits, gradient| {
        let predictions = Predictions { logits, classes, targets, ignored };
        cross_entropy_with_gradient(set, predictions, 1.0 / predictions.count().max(1) as f32, gradient)
    });
    let predictions = Predictions { logits: executor.logits(), classes, targets, ignored };
    let loss = loss.unwrap_or_else(|| cross_entropy(set, predictions));
    let correct = predictions.correct() as i32;
    Score { loss: loss.sum / loss.count.max(1) as f64, correct, predictions: loss.count as i32 }
}

fn statistics_of(graph: &Graph, weights: &Weights) -> Vec<RunningMoments> {
    let of = |running: &fedeq_models::graph::RunningStatistics| {
        let [mean, variance, steps] =
            running.names().map(|name| weights.statistics.get(&name).expect("a statistic").values.to_vec());
        RunningMoments { moments: Moments { mean, variance }, steps: steps[0] }
    };
    graph.statistics.iter().map(of).collect()
}

fn named_statistics(graph: &Graph, statistics: Vec<RunningMoments>) -> Params {
    let arrays = graph.statistics.iter().zip(statistics).flat_map(|(layer, running)| {
        let RunningMoments { moments: Moments { mean, variance }, steps } = running;
        let arrays = [mean, variance, vec![steps]].map(|values| Array::new(vec![values.len()], values));
        layer.names().into_iter().zip(arrays)
    });
    arrays.collect()
}

/// The pass of all clients on the GPU, twice: the second one must give the same bits.
fn on_gpu(device: &Arc<Device>, case: &Case<'_>, clients: &[Client], data: &Dataset) -> Vec<Pass> {
    let layout = Layout::new(case.graph, case.precision);
    let data = DeviceData::new(device, data).expect("the data set on the device");
    data.ensure_fits(case.graph).expect("data for the network");
    let (lanes, most) = (clients.len(), case.sizes.iter().copied().max().unwrap_or(0).max(1));
    let size = Size { lanes, most, length: data.length() };
    let purpose = case.purpose(size);
    let mut executor = Executor::new(device, case.graph, &layout, purpose).expect("a plan");
    executor.poison().expect("poison");
    place(device, &mut executor, clients);
    let mut values = vec![0.0; lanes * layout.stride()];
    for (client, lane) in clients.iter().zip(values.chunks_exact_mut(layout.stride())) {
        layout.write(case.graph, &client.weights.params, lane).expect("the parameters");
    }
    let parameters = Buffer::of(device, &values).expect("parameters");
    let mut passes = Vec::new();
    for again in [false, true] {
        let seen = gpu_pass(device, case, clients, &data, &layout, &executor, &parameters);
        if again {
            passes = passes.into_iter().zip(seen).map(|(first, second)| told_apart(first, second)).collect();
        } else {
            passes = seen;
        }
    }
    passes
}

/// Who is where: the samples of a lane have its slots, in order.
fn place(device: &Device, executor: &mut Executor, clients: &[Client]) {
    let most = executor.purpose.size.most;
    let spans: Vec<i32> =
        clients.iter().enumerate().flat_map(|(lane, client)| [(lane * most) as i32, client.indices.len() as i32]).collect();
    let rows: Vec<i32> = (0..(clients.len() * most) as i32).collect();
    executor.spans.write(device, 0, &spans).expect("spans");
    executor.rows.write(device, 0, &rows).expect("rows");
    for (lane, client) in clients.iter().enumerate() {
        let indices: Vec<i32> = client.indices.iter().map(|&index| index as i32).collect();
        executor.indices.write(device, lane * most, &indices).expect("indices");
    }
}

/// The first pass, with a sign in its loss if the second one differs.
fn told_apart(first: Pass, second: Pass) -> Pass {
    let bits = |pass: &Pass| -> Vec<u32> {
        let gradients = pass.gradients.iter().flat_map(|(_, array)| array.values.to_vec());
        pass.logits.iter().copied().chain(gradients).map(f32::to_bits).collect()
    };
    let same = bits(&first) == bits(&second);
    let score = if same { first.score } else { Score { predictions: -1, ..first.score } };
    Pass { score, ..first }
}

/// How the solves of the last pass went, slot by slot; nothing for a network that solves for no fixed point.
fn solves(executor: &Executor) -> Vec<Progress> {
    let Some(solved) = executor.plan.ops.iter().find_map(|op| op.solved()) else { return Vec::new() };
    let words = executor.numbers(solved.progress, 8 * executor.purpose.size.samples()).expect("how solves went");
    words.as_chunks().0.iter().map(Progress::of_words).collect()
}

/// A cohort on a card without a comparison: for timings, and for what is done beside a pass.
pub(crate) struct Bench {
    pub(crate) device: Arc<Device>,
    pub(crate) executor: Executor,
    layout: Layout,
    data: DeviceData,
    parameters: Buffer<f32>,
    gradients: Buffer<f32>,
    statistics: Buffer<f32>,
    seeds: Seeds,
}

/// Where dropout's random numbers come from: the keys of the second of two steps.
struct Seeds {
    step: Buffer<i32>,
    keys: Buffer<u32>,
}

impl Seeds {
    fn new(device: &Device, clients: &[Client]) -> Self {
        let keys = dropout_keys(clients.iter().map(|_| 77).chain(clients.iter().map(|client| client.seed)));
        Self { step: Buffer::of(device, &[1]).expect("a step"), keys: Buffer::of(device, &keys).expect("keys") }
    }

    fn of(&self, mode: Mode) -> Option<DropoutKeys> {
        (mode == Mode::Train).then(|| DropoutKeys { step: self.step.pointer(), keys: self.keys.pointer() })
    }
}

impl Bench {
    pub(crate) fn new(case: Case<'_>) -> Self {
        let (device, layout, clients) = (Device::new(0).expect("a GPU"), Layout::new(case.graph, case.precision), clients(&case));
        let data = dataset(case.graph, clients.iter().map(|client| client.indices.len()).sum());
        let data = DeviceData::new(&device, &data).expect("the data set on the device");
        let (lanes, most) = (clients.len(), case.sizes.iter().copied().max().unwrap_or(0).max(1));
        let size = Size { lanes, most, length: data.length() };
        let purpose = case.purpose(size);
        let mut executor = Executor::new(&device, case.graph, &layout, purpose).expect("a plan");
        place(&device, &mut executor, &clients);
        let (mut parameters, mut statistics) =
            (vec![0.0; lanes * layout.stride()], vec![0.0; lanes * layout.statistics_stride()]);
        for (lane, client) in clients.iter().enumerate() {
            let lane_of = |stride: usize| lane * stride..(lane + 1) * stride;
            layout.write(case.graph, &client.weights.params, &mut parameters[lane_of(layout.stride())]).expect("the parameters");
            let statistics = &mut statistics[lane_of(layout.statistics_stride())];
            layout.write_statistics(case.graph, &client.weights, statistics).expect("the statistics");
        }
        Self {
            executor,
            data,
            parameters: Buffer::of(&device, &parameters).expect("parameters"),
            gradients: Buffer::zeros(&device, parameters.len()).expect("gradients"),
            statistics: Buffer::of(&device, &statistics).expect("statistics"),
            seeds: Seeds::new(&device, &clients),
            layout,
            device,
        }
    }

    fn run(&self) -> PassContext<'_> {
        let tables = Lanes {
            parameters: self.parameters.pointer(),
            gradients: self.gradients.pointer(),
            statistics: self.statistics.pointer(),
        };
        let dropout = self.seeds.of(self.executor.purpose.mode);
        PassContext { dropout, ..self.executor.run(&self.layout, tables, self.data.symbols()) }
    }

    /// A training step without the descent.
    pub(crate) fn step(&self) {
        let run = self.run();
        self.executor.load(&run, &self.data).expect("load");
        self.executor.forward(&run).expect("forward");
        self.executor.loss(&run, &self.data).expect("loss");
        self.executor.backward(&run).expect("backward");
    }

    /// A pass forward with something around its solve; says how the solves went, slot by slot.
    pub(crate) fn forward_with(&self, hook: &dyn SolveHook) -> Vec<Progress> {
        let run = PassContext { hook: Some(hook), ..self.run() };
        self.executor.load(&run, &self.data).expect("load");
        self.executor.forward(&run).expect("forward");
        solves(&self.executor)
    }
}

fn gpu_pass(
    device: &Arc<Device>,
    case: &Case<'_>,
    clients: &[Client],
    data: &DeviceData,
    layout: &Layout,
    executor: &Executor,
    parameters: &Buffer<f32>,
) -> Vec<Pass> {
    let (graph, lanes, size) = (case.graph, clients.len(), executor.purpose.size);
    let mut values = vec![0.0; lanes * layout.statistics_stride()];
    for (client, lane) in clients.iter().zip(values.chunks_exact_mut(layout.statistics_stride().max(1))) {
        layout.write_statistics(graph, &client.weights, lane).expect("the statistics");
    }
    let statistics = Buffer::of(device, &values).expect("statistics");
    // What is not written stays not a number.
    let gradients = Buffer::<f32>::new(device, lanes * layout.stride()).expect("gradients");
    device.fill(gradients.pointer(), 0xff, gradients.len()).expect("poison");
    let seeds = Seeds::new(device, clients);
    let tables = Lanes { parameters: parameters.pointer(), gradients: gradients.pointer(), statistics: statistics.pointer() };
    let run = PassContext { dropout: seeds.of(case.mode), ..executor.run(layout, tables, data.symbols()) };
    executor.load(&run, data).expect("load");
    executor.forward(&run).expect("forward");
    executor.loss(&run, data).expect("loss");
    let rows = size.samples() * size.length;
    let logits = executor.numbers(executor.plan.logits, rows * executor.plan.logits_pitch).expect("logits");
    let embedding = executor.plan.embedding.map(|slot| {
        let width = embedding_width(case);
        (executor.numbers(slot, rows * width).expect("embedding"), width)
    });
    let mut scores = vec![Score::default(); lanes];
    executor.scores.read(device, 0, &mut scores).expect("scores");
    let mut by_lane = vec![0.0; lanes * layout.stride()];
    if case.trains.is_some() {
        executor.backward(&run).expect("backward");
        gradients.read(device, 0, &mut by_lane).expect("gradients");
    }
    statistics.read(device, 0, &mut values).expect("statistics");
    let solves = solves(executor);
    let pass = |(lane, client): (usize, &Client)| {
        let (first, count) = (lane * size.most * size.length, client.indices.len() * size.length);
        let rows_of = |values: &[f32], pitch: usize, width: usize| -> Vec<f32> {
            let rows = values[first * pitch..(first + count) * pitch].chunks_exact(pitch);
            rows.flat_map(|row| row[..width].to_vec()).collect()
        };
        let trained = |part| case.trains.is_some_and(|trains| trains.includes(part));
        Pass {
            logits: rows_of(&logits, executor.plan.logits_pitch, graph.task.classes),
            embedding: embedding.as_ref().map(|(values, width)| rows_of(values, *width, *width)).unwrap_or_default(),
            score: scores[lane],
            gradients: layout.read(graph, &by_lane[lane * layout.stride()..][..layout.stride()], trained),
            statistics: layout.read_statistics(graph, &values[lane * layout.statistics_stride()..]),
            solves: solves.iter().skip(lane * size.most).take(client.indices.len()).map(|one| [one.steps, one.outcome]).collect(),
        }
    };
    clients.iter().enumerate().map(pass).collect()
}

/// Numbers of a row of embeddings; a picture is one row.
fn embedding_width(case: &Case<'_>) -> usize {
    use fedeq_models::graph::Shape;
    match (case.graph.shape(case.graph.embedding), case.precision) {
        (Shape::Sequence(width), Precision::Mixed) => width.next_multiple_of(8),
        (shape, _) => shape.count(1),
    }
}

fn compare(lane: usize, case: &Case<'_>, seen: &Pass, expected: &Pass, moved: &[&Pass], allowed: Allowed) -> Vec<Difference> {
    let mut all = Vec::new();
    let mut add = |name: String, error: f64, allowed: f64| all.push(Difference { name, lane, error, allowed });
    // The error and what is allowed, given the CPU's own differences.
    let judged = |values: &dyn Fn(&Pass) -> &[f32], floor: f64, allowed: f64| {
        let from_expected = |pass: &Pass| relative(values(pass), values(expected), floor);
        (from_expected(seen), allowed + TIMES * moved.iter().map(|pass| from_expected(pass)).fold(0.0, f64::max))
    };
    for (name, _) in expected.statistics.iter() {
        let (error, most) = judged(&|pass| find(&pass.statistics, name), 1e-3, allowed.values);
        add(format!("statistic {name}"), error, if name.ends_with(".steps") { 0.0 } else { most });
    }
    if case.sizes[lane] == 0 {
        for (name, array) in seen.gradients.iter() {
            add(format!("gradient {name} of no lane"), relative(&array.values, &vec![0.0; array.values.len()], 1e-30), 0.0);
        }
        return all;
    }
    let (error, most) = judged(&|pass| &pass.logits, 1e-3, allowed.values);
    add("logits".into(), error, most);
    if case.trains.is_none() && case.graph.embedding != case.graph.input() {
        let (error, most) = judged(&|pass| &pass.embedding, 1e-3, allowed.values);
        add("embedding".into(), error, most);
    }
    let apart = |a: Score, b: Score| (a.loss - b.loss).abs() / b.loss.abs().max(1.0);
    let (a, b) = (seen.score, expected.score);
    let own = moved.iter().map(|pass| apart(pass.score, b)).fold(0.0, f64::max);
    add("loss".into(), apart(a, b), allowed.values + TIMES * own);
    add("other bits the second time".into(), f64::from(a.predictions == -1), 0.0);
    add("predictions".into(), f64::from((a.predictions - b.predictions).abs()), 0.0);
    if case.precision == Precision::Exact {
        add("correct".into(), f64::from((a.correct - b.correct).abs()), 0.0);
    }
    if !expected.solves.is_empty() {
        // A residual that meets its tolerance but for rounding makes a difference of a step.
        let steps = |pass: &Pass| -> Vec<f32> { pass.solves.iter().map(|[steps, _]| *steps as f32).collect() };
        let (a, b) = (steps(seen), steps(expected));
        let apart = a.iter().zip(&b).map(|(a, b)| (a - b).abs()).sum::<f32>() / b.iter().sum::<f32>();
        let exact = case.precision == Precision::Exact;
        add("steps of solves".into(), f64::from(apart), if exact { 0.03 } else { 0.3 });
        let ends = seen.solves.iter().zip(&expected.solves).filter(|(a, b)| a[1] != b[1]).count();
        add("endings of solves".into(), ends as f64 / b.len() as f64, if exact { 0.1 } else { 0.5 });
    }
    let typical = expected.gradients.norm() / (expected.gradients.iter().count().max(1) as f64).sqrt();
    for (name, _) in expected.gradients.iter() {
        let (error, most) = judged(&|pass| find(&pass.gradients, name), 1e-2 * typical, allowed.gradients);
        add(format!("gradient {name}"), error, most);
    }
    all
}

fn find<'a>(params: &'a Params, name: &str) -> &'a [f32] {
    &params.get(name).expect("the same names").values
}

fn norm(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt()
}

/// `|a - b| / |b|`, or beside `floor` where `b` is smaller; infinite where it is not a number or counts differ.
fn relative(a: &[f32], b: &[f32], floor: f64) -> f64 {
    if a.len() != b.len() {
        return f64::INFINITY;
    }
    let difference: Vec<f32> = a.iter().zip(b).map(|(a, b)| a - b).collect();
    let error = norm(&difference) / norm(b).max(floor).max(1e-30);
    if error.is_nan() { f64::INFINITY } else { error }
}
