//! Steps of today's path and of the plan, interleaved. Temporary.
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Instant;

use burn::tensor::Device;
use fedeq_core::{NetworkSite, Phase, Site, Training, Trains, Weights, params_of, named_statistics};
use fedeq_cpu::{Context, Executor, Input, Mode, Running, Start};
use fedeq_data::shard::{Batch, Inputs, Remainder, Shard, Targets};
use fedeq_data::{Dataset, Images, Labels, Samples, Scaling, Seed, Sequences};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_kernels::descend::Descent;
use fedeq_kernels::loss::{Predictions, cross_entropy_with_gradient};
use fedeq_kernels::{InstructionSet, memory::{Counting, Meter}};
use fedeq_models::{ModelConfig, Task};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn noise(count: usize, below: u32) -> Vec<u8> {
    let mut state = 7u32;
    (0..count).map(|_| { state = state.wrapping_mul(1664525).wrapping_add(1013904223); ((state >> 16) % below) as u8 }).collect()
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let repeats: usize = args.get(2).map_or(5, |n| n.parse().unwrap());
    for (name, task, samples, batch) in [
        ("deq-resnet-s", Task::image(28, 28, 1, 62), 100usize, 10usize),
        ("resnet-20", Task::image(28, 28, 1, 62), 100, 10),
        ("resnet-34", Task::image(28, 28, 1, 62), 50, 10),
        ("deq-resnet-m", Task::image(32, 32, 3, 10), 30, 10),
        ("deq-mlp", Task::image(28, 28, 1, 62), 200, 10),
        ("deq-transformer", Task::next_symbol(80, 90), 30, 10),
        ("transformer-8", Task::next_symbol(80, 90), 30, 10),
    ] {
        if args.get(1).is_some_and(|only| only != "all" && !name.contains(only.as_str())) { continue; }
        let dataset = match task.input {
            fedeq_models::InputShape::Image { height, width, channels } => Dataset {
                name: "noise".into(),
                samples: Samples::Images(Images { shape: [height, width, channels], pixels: noise(samples * height * width * channels, 256), white: 255, scaling: Scaling { mean: vec![0.5; channels], deviation: vec![0.5; channels] } }),
                labels: Labels::Classes { names: (0..task.classes).map(|c| c.to_string()).collect(), values: noise(samples, task.classes as u32).into_iter().map(Into::into).collect() },
                owners: None, test_start: None,
            },
            fedeq_models::InputShape::Symbols { length, vocabulary } => Dataset {
                name: "noise".into(),
                samples: Samples::Sequences(Sequences { length, vocabulary, symbols: noise(samples * length, vocabulary as u32 - 1).into_iter().map(|s| s + 1).collect() }),
                labels: Labels::NextSymbols(noise(samples * length, vocabulary as u32 - 1).into_iter().map(|s| s + 1).collect()),
                owners: None, test_start: None,
            },
            _ => unreachable!(),
        };
        let dataset = Arc::new(dataset);
        let shard = Shard::new(Arc::clone(&dataset), (0..samples as u32).collect()).unwrap();
        let config: ModelConfig = name.parse().unwrap();
        let device = Device::default().autodiff();
        let network = config.build(&task, &device, 7).unwrap();
        let weights = Weights { params: params_of(&network), statistics: named_statistics(&network.fresh_statistics()) };
        let training = Training { batch_size: NonZeroUsize::new(batch).unwrap(), remainder: Remainder::Drop, ..Training::default() };
        let site = NetworkSite::new(network, device.clone(), [shard.clone(), shard.clone(), shard.clone()], &training);
        let phase = Phase { name: "body", trains: Trains::Everything, epochs: 1, learning_rate: 0.01, pull: None };
        let graph = config.graph(&task).unwrap();
        let start: Vec<f32> = graph.parameters.iter().flat_map(|p| weights.params.get(&p.path).unwrap().values.to_vec()).collect();
        let mut executor = None;
        let (mut old_times, mut new_times) = (Vec::new(), Vec::new());
        let (mut old_bytes, mut new_bytes) = (0, 0);
        let (mut old_loss, mut new_loss) = (0.0, 0.0);
        for _ in 0..=repeats {
            let begun = Instant::now();
            let mut moved = weights.clone();
            let found = site.descend(&mut moved, &mut WarmMemory::new(WarmStart::Off), &phase, Seed::new(1)).unwrap();
            old_times.push(begun.elapsed().as_secs_f64());
            old_bytes = found.memory.most();
            old_loss = found.loss;
            let begun = Instant::now();
            let mut meter = Meter::start();
            let mut parameters = start.clone();
            let mut statistics: Vec<Running> = graph.statistics.iter().map(|r| Running::fresh(r.channels)).collect();
            let length = graph.longest();
            let executor = executor.get_or_insert_with(|| Executor::new(&graph, batch, length, Mode::Train, |_| true));
            let mut gradients = vec![0.0; executor.trained().len()];
            let (mut loss, mut steps) = (0.0, 0);
            let seed = Seed::new(1);
            for (index, each) in shard.batches(training.batch_size, training.remainder, seed.derive("epoch", [0])).enumerate() {
                loss += step(executor, &each, &mut parameters, &mut statistics, &mut gradients, task.classes, seed.derive("dropout", [0, index as u64]).to_u64());
                steps += 1;
            }
            new_loss = loss / f64::from(steps);
            new_times.push(begun.elapsed().as_secs_f64());
            new_bytes = new_bytes.max(meter.lap().unwrap());
        }
        let median = |times: &[f64]| { let mut t = times[1..].to_vec(); t.sort_by(f64::total_cmp); t[t.len() / 2] };
        let best = |times: &[f64]| times[1..].iter().copied().fold(f64::INFINITY, f64::min);
        let steps = (samples / batch) as f64;
        println!("{name}: old {:.2} ms, new {:.2} ms a step (median), ratio {:.2}; best ratio {:.2}; memory old {:.1} MB, new {:.1} MB (slots {:.1}); loss {old_loss:.6} {new_loss:.6}",
            1e3 * median(&old_times) / steps, 1e3 * median(&new_times) / steps, median(&old_times) / median(&new_times), best(&old_times) / best(&new_times),
            old_bytes as f64 / 1e6, new_bytes as f64 / 1e6, executor.unwrap().bytes() as f64 / 1e6);
    }
}

fn step(executor: &mut Executor, batch: &Batch, parameters: &mut [f32], statistics: &mut [Running], gradients: &mut [f32], classes: usize, dropout: u64) -> f64 {
    let input = match &batch.inputs { Inputs::Dense { values, .. } => Input::Numbers(values), Inputs::Symbols { values, .. } => Input::Symbols(values) };
    let targets = match &batch.targets { Targets::Classes(v) => v, Targets::Symbols { values, .. } => values, _ => unreachable!() };
    let set = InstructionSet::best();
    let mut context = Context { parameters, statistics, dropout: Some(dropout), start: Start::Model };
    executor.forward(input, &mut context);
    let loss = executor.differentiate(|logits, gradient| {
        let predictions = Predictions { logits, classes, targets, ignored: None };
        cross_entropy_with_gradient(set, predictions, 1.0 / predictions.count() as f32, gradient)
    }).unwrap();
    executor.backward(input, &mut context, gradients);
    Descent { rate: 0.01, strength: 0.0, gradient: gradients, offset: None }.run(set, parameters);
    loss.sum / loss.count as f64
}
