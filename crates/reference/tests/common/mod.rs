//! Numbers that depend on nothing but a name, the same as in `golden/generate.py`.
#![allow(dead_code)] // Every test file uses some of it.
use fedeq_models::graph::{Graph, RunningStatistics};
use fedeq_models::{InputShape, ModelConfig, Task};
use fedeq_reference::{InputValues, Values};

/// Numbers in [0, 1) with 24 bits: splitmix64 started at the FNV-1a hash of the name.
pub(crate) fn uniform(name: &str, count: usize) -> Vec<f64> {
    let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (1..=count as u64).map(|index| split_mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect()
}

fn split_mix(x: u64) -> f64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f64 / f64::from(1 << 24)
}

/// Numbers in `[-amplitude, amplitude)` around `centre`, as single precision has them.
fn around(centre: f64, name: &str, count: usize, amplitude: f64) -> Vec<f64> {
    let number = |u: f64| f64::from((centre + f64::from(((2.0 * u - 1.0) * amplitude) as f32)) as f32);
    uniform(name, count).into_iter().map(number).collect()
}

/// Parameters that depend on their path; `gain` scales the weights.
pub(crate) fn filled(graph: &Graph, gain: f64) -> Values {
    let parameters = graph.parameters.iter().map(|parameter| {
        let (path, count) = (&parameter.path, parameter.count());
        let numbers = match path.rsplit('.').next() {
            Some("scale") => around(1.0, path, count, 0.2),
            Some("offset" | "bias") => around(0.0, path, count, 0.2),
            _ => around(0.0, path, count, gain / (fan_in(&parameter.shape) as f64).sqrt()),
        };
        (path.clone(), numbers)
    });
    parameters.collect()
}

fn fan_in(shape: &[usize]) -> usize {
    match shape {
        [_, inputs, height, width] => inputs * height * width,
        [inputs, ..] => *inputs,
        [] => 1,
    }
}

/// Running statistics after three steps, with values that depend on their path.
pub(crate) fn filled_statistics(graph: &Graph) -> Values {
    let named = |running: &RunningStatistics| {
        let [mean, variance, steps] = running.names();
        let numbers = [around(0.0, &mean, running.channels, 0.2), around(1.0, &variance, running.channels, 0.5), vec![3.0]];
        [mean, variance, steps].into_iter().zip(numbers)
    };
    graph.statistics.iter().flat_map(named).collect()
}

/// Three samples of a task; of sequences, the second ends in padding.
pub(crate) fn batch(task: &Task) -> InputValues {
    let numbers = |count| uniform("input", count).into_iter().map(|u| f64::from(u as f32)).collect();
    let values = match task.input {
        InputShape::Image { height, width, channels } => numbers(3 * height * width * channels),
        InputShape::Vector { width } => numbers(3 * width),
        InputShape::Symbols { length, vocabulary } => {
            let symbol = |u: f64| (1 + (u * (vocabulary - 1) as f64) as i64) as f64;
            let mut symbols: Vec<f64> = uniform("input", 3 * length).into_iter().map(symbol).collect();
            symbols[2 * length - 2..].fill(0.0);
            symbols
        }
    };
    InputValues { samples: 3, values }
}

/// A target for every row of logits of such a batch.
pub(crate) fn targets(task: &Task) -> Vec<i32> {
    let rows = if let InputShape::Symbols { length, .. } = task.input { 3 * length } else { 3 };
    uniform("target", rows).into_iter().map(|u| (u * task.classes as f64) as i32).collect()
}

/// A network by name with its default options.
pub(crate) fn graph(name: &str, task: &Task) -> Graph {
    name.parse::<ModelConfig>().expect("a known name").graph(task).expect("a fitting task")
}

/// A small task that suits a network.
pub(crate) fn task_for(name: &str) -> Task {
    let config: ModelConfig = name.parse().expect("a known name");
    let tasks = [Task::vector(6, 3), Task::image(8, 8, 1, 10), Task::next_symbol(5, 9)];
    tasks.into_iter().find(|task| config.graph(task).is_ok()).expect("a network is for something")
}

/// The largest difference, relative to the entry or to the root mean square of all entries, whichever is larger.
pub(crate) fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt();
    found.iter().zip(expected).map(|(f, e)| (f - e).abs() / e.abs().max(scale).max(1e-30)).fold(0.0, f64::max)
}

/// The mean cross-entropy of logits over the rows that are not padding, by plain loops.
pub(crate) fn cross_entropy(logits: &[f64], targets: &[i32], task: &Task, input: &InputValues) -> f64 {
    let is_text = matches!(task.input, InputShape::Symbols { .. });
    let rows = logits.chunks_exact(task.classes).zip(targets).enumerate();
    let counted: Vec<f64> = rows
        .filter(|(row, _)| !is_text || input.values[*row] != 0.0)
        .map(|(_, (row, &target))| row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[target as usize])
        .collect();
    counted.iter().sum::<f64>() / counted.len() as f64
}
