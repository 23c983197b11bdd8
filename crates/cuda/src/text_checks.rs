//! Networks of texts on a GPU beside the same on the CPU, lane by lane.
use std::sync::Arc;

use fedeq_core::{Array, Params, Trains};
use fedeq_cpu::{Context, Input, Start};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::{Predictions, cross_entropy_with_gradient};
use fedeq_models::graph::{Dropout, Graph, ParameterId};
use fedeq_models::{ModelConfig, Task, normal_numbers};

use crate::device::{Buffer, Device, Launch, Pointer, launch};
use crate::executor::{Executor, Lanes};
use crate::layout::Layout;
use crate::op::{Cohort, DropoutKeys, dropout_keys};
use crate::plan::{Mode, Precision, Purpose, Size};

const VOCABULARY: usize = 90;
const STORED: usize = 23;

/// What is compared.
#[derive(Clone, Copy, Debug)]
struct Case {
    model: &'static str,
    length: usize,
    /// Samples of every lane.
    counts: &'static [usize],
    precision: Precision,
    /// None is an evaluation.
    trains: Option<Trains>,
    dropout: bool,
}

/// Texts with padding at the end, in front, and nothing but padding; and a label for every position.
struct Texts {
    symbols: Vec<i32>,
    labels: Vec<i32>,
}

impl Texts {
    fn new(length: usize) -> Self {
        let drawn = normal_numbers(3, "texts", 2 * STORED * length);
        let number = |value: f32, below: usize| (value.abs() * 1e4) as usize % below;
        let mut symbols: Vec<i32> =
            drawn[..STORED * length].iter().map(|&value| 1 + number(value, VOCABULARY - 1) as i32).collect();
        for text in (0..STORED).step_by(3) {
            symbols[(text + 1) * length - text % length..(text + 1) * length].fill(0);
        }
        symbols[length..2 * length].fill(0);
        symbols[2 * length..2 * length + length.min(3).min(length - 1)].fill(0);
        let labels = drawn[STORED * length..].iter().map(|&value| number(value, VOCABULARY) as i32).collect();
        Self { symbols, labels }
    }

    fn pick(values: &[i32], length: usize, texts: &[usize]) -> Vec<i32> {
        texts.iter().flat_map(|&text| values[text * length..(text + 1) * length].iter().copied()).collect()
    }
}

/// Which texts a lane has.
fn texts_of(lane: usize, count: usize) -> Vec<usize> {
    (0..count).map(|index| (7 * lane + index) % STORED).collect()
}

fn seed_of(lane: usize) -> u64 {
    0x1234_5678_9abc_def0 ^ lane as u64
}

/// Parameters none of which is zero or one, in the order of the graph.
fn parameters(graph: &Graph, lane: usize) -> Vec<Vec<f32>> {
    let drawn = |parameter: &fedeq_models::graph::Parameter| {
        let noise = normal_numbers(lane as u64, &format!("noise of {}", parameter.path), parameter.count());
        parameter.initial_values(lane as u64).iter().zip(noise).map(|(value, noise)| value + 0.05 * noise).collect()
    };
    graph.parameters.iter().map(drawn).collect()
}

/// What a lane gives.
#[derive(Debug, Default)]
struct Outcome {
    logits: Vec<f32>,
    embedding: Vec<f32>,
    loss: f64,
    correct: usize,
    predictions: usize,
    /// By parameter; nothing for those that are not trained.
    gradients: Vec<Vec<f32>>,
}

fn on_cpu(case: &Case, graph: &Graph, texts: &Texts, lane: usize, count: usize) -> Outcome {
    let mode = if case.trains.is_some() { fedeq_cpu::Mode::Train } else { fedeq_cpu::Mode::Evaluate };
    let trained = |part| case.trains.is_some_and(|trains| trains.includes(part));
    let mut executor = fedeq_cpu::Executor::new(graph, count, case.length, mode, |parameter| trained(parameter.part));
    let flat = parameters(graph, lane).concat();
    let symbols = Texts::pick(&texts.symbols, case.length, &texts_of(lane, count));
    let targets = Texts::pick(&texts.labels, case.length, &texts_of(lane, count));
    let mut context =
        Context { parameters: &flat, statistics: &mut [], dropout: case.dropout.then(|| seed_of(lane)), start: Start::Model };
    executor.forward(Input::Symbols(&symbols), &mut context);
    let logits = executor.logits().to_vec();
    let ignored: Vec<bool> = symbols.iter().map(|&symbol| symbol == 0).collect();
    let predictions = Predictions { logits: &logits, classes: VOCABULARY, targets: &targets, ignored: Some(&ignored) };
    let scale = 1.0 / predictions.count().max(1) as f32;
    let mut gradient = vec![0.0; logits.len()];
    let loss = cross_entropy_with_gradient(InstructionSet::best(), predictions, scale, &mut gradient);
    let embedding = executor.embedding(Input::Symbols(&symbols)).map(<[f32]>::to_vec).unwrap_or_default();
    let is_right = |row: usize| {
        let logits = &logits[row * VOCABULARY..(row + 1) * VOCABULARY];
        let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        logits.iter().position(|&logit| logit == largest) == Some(targets[row] as usize)
    };
    let correct = (0..targets.len()).filter(|&row| !ignored[row] && is_right(row)).count();
    let mut gradients = vec![0.0; executor.trained().len()];
    if case.trains.is_some() {
        executor.differentiate(|_, to| to.copy_from_slice(&gradient));
        executor.backward(Input::Symbols(&symbols), &mut context, &mut gradients);
    }
    let of = |index: usize| gradients[executor.trained().range(ParameterId(index))].to_vec();
    Outcome {
        logits,
        embedding,
        loss: loss.sum / loss.count.max(1) as f64,
        correct,
        predictions: loss.count,
        gradients: (0..graph.parameters.len()).map(of).collect(),
    }
}

fn on_gpu(case: &Case, device: &Arc<Device>, graph: &Graph, texts: &Texts) -> fedeq_core::Result<Vec<Outcome>> {
    let Case { length, counts, precision, trains, .. } = *case;
    let (lanes, most) = (counts.len(), counts.iter().copied().max().unwrap_or(1));
    let layout = Layout::new(graph, precision);
    let mode = if trains.is_some() { Mode::Train } else { Mode::Evaluate };
    let size = Size { lanes, most, length };
    let mut executor = Executor::new(device, graph, &layout, Purpose { size, mode, precision, trains })?;
    let mut table = vec![0.0; lanes * layout.stride()];
    for (lane, values) in table.chunks_exact_mut(layout.stride()).enumerate() {
        let arrays = graph.parameters.iter().zip(parameters(graph, lane));
        let params: Params = arrays.map(|(to, values)| (to.path.clone(), Array::new(to.shape.clone(), values))).collect();
        layout.write(graph, &params, values)?;
    }
    let table = Buffer::of(device, &table)?;
    // Whatever is not written stays a strange number.
    let gradients = Buffer::of(device, &vec![1e30_f32; lanes * layout.stride()])?;
    let (symbols, labels) = (Buffer::of(device, &texts.symbols)?, Buffer::of(device, &texts.labels)?);
    let (mut spans, mut indices) = (Vec::new(), vec![0; lanes * most]);
    for (lane, &count) in counts.iter().enumerate() {
        spans.extend([(lane * most) as i32, count as i32]);
        for (slot, text) in texts_of(lane, count).into_iter().enumerate() {
            indices[lane * most + slot] = text as i32;
        }
    }
    let rows: Vec<i32> = (0..(lanes * most) as i32).collect();
    executor.spans.write(device, 0, &spans)?;
    executor.rows.write(device, 0, &rows)?;
    executor.indices.write(device, 0, &indices)?;
    // The keys of this step are the second of two.
    let keys = Buffer::of(device, &dropout_keys((0..lanes).map(|_| 77).chain((0..lanes).map(seed_of))))?;
    let step = Buffer::of(device, &[1])?;
    let scores = Buffer::<u8>::zeros(device, 16 * lanes)?;
    let all = Lanes { parameters: table.pointer(), gradients: gradients.pointer(), statistics: Pointer::NULL };
    let mut run = executor.run(&layout, all, symbols.pointer());
    run.dropout = case.dropout.then(|| DropoutKeys { step: step.pointer(), keys: keys.pointer() });
    let loss = executor.plan.symbol_loss.expect("a network of texts");
    let pass = || {
        executor.forward(&run)?;
        loss.run(&run, labels.pointer(), scores.pointer())?;
        if trains.is_some() { executor.backward(&run) } else { Ok(()) }
    };
    pass()?;
    let read = || -> fedeq_core::Result<Vec<f32>> {
        let mut values = vec![0.0; lanes * layout.stride()];
        gradients.read(device, 0, &mut values)?;
        Ok(values)
    };
    let found = read()?;
    // Recorded and repeated, it gives the same bits.
    let mut again = device.capture(pass)?;
    again.run()?;
    again.run()?;
    assert!(read()?.iter().zip(&found).all(|(a, b)| a.to_bits() == b.to_bits()), "{case:?}: not the same bits twice");
    let pitch = if precision == Precision::Mixed { VOCABULARY.next_multiple_of(8) } else { VOCABULARY };
    let logits = executor.numbers(executor.plan.logits, lanes * most * length * pitch)?;
    let embedding = match executor.plan.embedding {
        Some(slot) => executor.numbers(slot, lanes * most * length * 64)?,
        None => Vec::new(),
    };
    let mut told = vec![0; 16 * lanes];
    scores.read(device, 0, &mut told)?;
    let outcome = |(lane, &count): (usize, &usize)| {
        let rows = lane * most * length..(lane * most + count) * length;
        let number = |at: usize| i32::from_le_bytes(told[16 * lane + at..][..4].try_into().expect("four bytes")) as usize;
        let params = layout.read(graph, &found[lane * layout.stride()..(lane + 1) * layout.stride()], |_| true);
        let trained = |part| trains.is_some_and(|trains| trains.includes(part));
        Outcome {
            logits: rows.clone().flat_map(|row| logits[row * pitch..row * pitch + VOCABULARY].iter().copied()).collect(),
            embedding: if embedding.is_empty() { Vec::new() } else { embedding[rows.start * 64..rows.end * 64].to_vec() },
            loss: f64::from_le_bytes(told[16 * lane..][..8].try_into().expect("eight bytes")),
            correct: number(8),
            predictions: number(12),
            gradients: graph
                .parameters
                .iter()
                .map(|to| if trained(to.part) { params.get(&to.path).expect("a parameter").values.to_vec() } else { Vec::new() })
                .collect(),
        }
    };
    Ok(counts.iter().enumerate().map(outcome).collect())
}

/// The length of what two vectors differ by, beside that of the expected one, or of `least` where that is longer.
fn error(found: &[f32], expected: &[f32], least: f64) -> f64 {
    assert_eq!(found.len(), expected.len());
    let norm = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    let difference = norm(&mut found.iter().zip(expected).map(|(a, b)| f64::from(a - b)));
    difference / norm(&mut expected.iter().map(|&value| f64::from(value))).max(least).max(1e-30)
}

/// Compares, and tells the worst errors of logits and of gradients; `allowed` of both.
fn compare(case: &Case, device: &Arc<Device>, allowed: [f64; 2]) -> Vec<String> {
    let model: ModelConfig = case.model.parse().expect("a known model");
    let graph = model.graph(&Task::next_symbol(case.length, VOCABULARY)).expect("fits");
    let texts = Texts::new(case.length);
    let mut wrong = Vec::new();
    let found = match on_gpu(case, device, &graph, &texts) {
        Ok(found) => found,
        Err(error) => return vec![format!("{case:?}: {error}")],
    };
    let mut worst = [(0.0_f64, String::new()), (0.0, String::new())];
    for (lane, (found, &count)) in found.iter().zip(case.counts).enumerate() {
        if count == 0 {
            let all = found.gradients.iter().flatten().all(|&gradient| gradient == 0.0);
            if !all || found.loss != 0.0 || found.predictions != 0 {
                wrong.push(format!("{case:?}: lane {lane} without samples has a loss or gradients"));
            }
            continue;
        }
        let expected = on_cpu(case, &graph, &texts, lane, count);
        let whole = expected.gradients.concat();
        let mean = error(&whole, &vec![0.0; whole.len()], 1.0) / (whole.len().max(1) as f64).sqrt();
        let mut note = |kind: usize, name: String, error: f64| {
            if error.is_nan() || error > allowed[kind] {
                wrong.push(format!("{case:?}: lane {lane}: {name}: {error:.2e}"));
            }
            if error > worst[kind].0 || error.is_nan() {
                worst[kind] = (error, name);
            }
        };
        let near = if case.precision == Precision::Exact { 0 } else { expected.predictions / 20 + 1 };
        if found.predictions != expected.predictions || found.correct.abs_diff(expected.correct) > near {
            let [a, b] = [found, &expected].map(|outcome| (outcome.correct, outcome.predictions));
            note(0, format!("right of so many: {a:?} instead of {b:?}"), f64::NAN);
        }
        note(0, "logits".into(), error(&found.logits, &expected.logits, 0.0));
        note(0, "embedding".into(), error(&found.embedding, &expected.embedding, 0.0));
        note(0, "loss".into(), (found.loss - expected.loss).abs() / expected.loss.max(1e-3));
        for (index, parameter) in graph.parameters.iter().enumerate() {
            let (a, b) = (&found.gradients[index], &expected.gradients[index]);
            // Gradients that are zero but for rounding, such as those of keys' biases, are measured by the others.
            note(1, parameter.path.clone(), error(a, b, 0.02 * mean * (b.len() as f64).sqrt()));
        }
    }
    let [(logits, _), (gradients, name)] = worst;
    println!("{case:?}: logits {logits:.1e}, gradients {gradients:.1e} ({name})");
    wrong
}

/// What is allowed for logits and gradients.
fn allowed(precision: Precision) -> [f64; 2] {
    match precision {
        Precision::Exact => [2e-5, 2e-4],
        Precision::Mixed => [1e-2, 4e-2],
    }
}

fn check(cases: impl IntoIterator<Item = Case>) {
    let device = Device::new(0).expect("a GPU");
    let wrong: Vec<String> = cases.into_iter().flat_map(|case| compare(&case, &device, allowed(case.precision))).collect();
    wrong.iter().for_each(|line| println!("WRONG {line}"));
    assert!(wrong.is_empty(), "{} comparisons are wrong", wrong.len());
}

fn cases(model: &'static str, lengths: &'static [usize]) -> impl Iterator<Item = Case> {
    let counts: &[usize] = &[3, 1, 0, 4];
    let base = Case { model, length: 5, counts, precision: Precision::Exact, trains: None, dropout: false };
    lengths.iter().flat_map(move |&length| {
        [Precision::Exact, Precision::Mixed].into_iter().flat_map(move |precision| {
            let base = Case { length, precision, ..base };
            [
                base,
                Case { trains: Some(Trains::Everything), dropout: true, ..base },
                Case { trains: Some(Trains::Shared), ..base },
                Case { trains: Some(Trains::Personal), dropout: true, counts: &[2, 5], ..base },
            ]
        })
    })
}

#[test]
#[ignore = "needs a GPU"]
fn transformers_are_the_cpus() {
    let deep = Case {
        model: "transformer-8",
        length: 16,
        counts: &[2],
        precision: Precision::Exact,
        trains: Some(Trains::Everything),
        dropout: true,
    };
    let deeper = Case { model: "transformer-12", precision: Precision::Mixed, ..deep };
    check(cases("transformer-4", &[5, 16, 80]).chain([deep, deeper, Case { precision: Precision::Exact, ..deeper }]));
}

#[test]
#[ignore = "needs a GPU"]
fn a_small_transformer_is_the_cpus() {
    check(cases("transformer-4", &[5]).skip(1).step_by(4));
}

#[test]
#[ignore = "needs a GPU"]
fn masks_of_dropout_are_the_cpus_bit_by_bit() {
    let device = Device::new(0).expect("a GPU");
    let (counts, most, each) = ([3, 0, 2], 3, 2 * 16 * 64);
    let dropout = Dropout { name: "layers", rate: 0.1 };
    let spans: Vec<i32> = counts.iter().enumerate().flat_map(|(lane, &count)| [(lane * most) as i32, count]).collect();
    let rows: Vec<i32> = (0..9).collect();
    let made = || -> fedeq_core::Result<Vec<u8>> {
        let (spans, rows) = (Buffer::of(&device, &spans)?, Buffer::of(&device, &rows)?);
        let keys = Buffer::of(&device, &dropout_keys((0..3).map(seed_of)))?;
        let (step, masks) = (Buffer::of(&device, &[0])?, Buffer::<u8>::zeros(&device, 9 * each)?);
        let cohort = Cohort { spans: spans.pointer().cast(), rows: rows.pointer() };
        let draw = Launch::new("draw_masks", [each.div_ceil(2048), most, 3], 256);
        let (stream, threshold) = (dropout.stream(), dropout.threshold());
        launch!(device, draw; step.pointer(), keys.pointer(), masks.pointer(), cohort, stream, threshold, each as i64, each as i32)?;
        let mut values = vec![0; 9 * each];
        masks.read(&device, 0, &mut values)?;
        Ok(values)
    };
    let masks = made().expect("drawn");
    for (lane, &count) in counts.iter().enumerate() {
        let expected = dropout.multipliers(seed_of(lane), count as usize * each);
        let drawn = &masks[lane * most * each..][..expected.len()];
        assert!(drawn.iter().zip(&expected).all(|(&mask, &multiplier)| (mask == 1) == (multiplier > 0.0)), "lane {lane}");
    }
}
