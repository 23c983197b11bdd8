//! Networks of texts, against the CPU. In training they drop with the CPU's masks.
#![allow(clippy::print_stdout, reason = "a line for every case, for whoever runs the tests on a card")]
use fedeq_core::Trains;
use fedeq_equilibrium::{Adjoint, Equilibrium as Settings, LinearSolver, Solver, Stop};
use fedeq_models::Mode;
use fedeq_models::graph::{Cell, Dropout, Graph, Layer};
use fedeq_models::{DeqTransformerOptions, ModelConfig, Personal, Task, TransformerOptions};

use crate::check::{Allowed, Bench, Case, Checks};
use crate::device::{Buffer, Device, Launch, launch};
use crate::op::{Cohort, dropout_keys};
use crate::plan::Precision;

/// What is allowed in either precision.
fn allowed(graph: &Graph, precision: Precision) -> Allowed {
    match (precision, graph.is_equilibrium()) {
        (Precision::Exact, false) => Allowed { values: 5e-6, gradients: 5e-5 },
        (Precision::Exact, true) => Allowed { values: 2e-4, gradients: 1e-3 },
        (Precision::Mixed, false) => Allowed { values: 5e-3, gradients: 2e-2 },
        (Precision::Mixed, true) => Allowed { values: 2e-2, gradients: 5e-2 },
    }
}

fn network(name: &str, length: usize) -> Graph {
    name.parse::<ModelConfig>().expect("known").graph(&Task::next_symbol(length, 90)).expect("fits")
}

/// The same without dropout.
fn plain(mut graph: Graph) -> Graph {
    for layer in &mut graph.layers {
        if let Layer::Transformer { layers, .. } | Layer::Equilibrium { cell: Cell::Transformer { layers, .. }, .. } = layer {
            layers.dropout.rate = 0.0;
        }
    }
    graph
}

fn compare(checks: &mut Checks, name: &str, graph: &Graph, sizes: &[usize], precision: Precision, trains: Option<Trains>) {
    let mode = if trains.is_some() { Mode::Train } else { Mode::Evaluate };
    checks.run(Case { name, graph, sizes, mode, precision, trains }, allowed(graph, precision));
}

const BOTH: [Precision; 2] = [Precision::Exact, Precision::Mixed];

#[test]
#[ignore = "needs a GPU"]
fn transformers_agree_with_the_cpu() {
    let mut checks = Checks::new();
    for precision in BOTH {
        for length in [5, 16, 80] {
            let graph = network("transformer-4", length);
            let name = format!("transformer-4, {length} symbols");
            for trains in [None, Some(Trains::Everything), Some(Trains::Shared), Some(Trains::Personal)] {
                compare(&mut checks, &name, &graph, &[3, 1, 0, 4], precision, trains);
            }
        }
        let everything = Some(Trains::Everything);
        compare(&mut checks, "no dropout", &plain(network("transformer-4", 16)), &[2, 5], precision, everything);
        compare(&mut checks, "longest", &network("transformer-4", 128), &[2], precision, everything);
        compare(&mut checks, "one symbol", &network("transformer-4", 1), &[3, 2], precision, everything);
        compare(&mut checks, "transformer-8", &network("transformer-8", 16), &[2, 3], precision, everything);
        compare(&mut checks, "transformer-12", &network("transformer-12", 7), &[2], precision, everything);
    }
    checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn deq_transformers_agree_with_the_cpu() {
    let mut checks = Checks::new();
    let few = Stop::relative(0.0, 4);
    let with = |adjoint: Adjoint| Settings { adjoint, stop: few, ..Settings::default() };
    for precision in BOTH {
        for length in [5, 16, 80] {
            let graph = network("deq-transformer", length).with_equilibrium(&with(Adjoint::JacobianFree));
            let name = format!("deq-transformer, {length} symbols");
            for trains in [None, Some(Trains::Everything), Some(Trains::Shared), Some(Trains::Personal)] {
                compare(&mut checks, &name, &graph, &[3, 1, 0, 4], precision, trains);
            }
        }
        let implicit = |solver| with(Adjoint::Implicit { solver, stop: Stop::relative(0.0, 5) });
        for (name, settings) in [
            ("each its own steps", Settings { stop: Stop::relative(0.2, 60), ..Settings::default() }),
            ("damped", Settings { solver: Solver::FixedPoint { damping: 0.3 }, stop: few, ..Settings::default() }),
            ("phantom", with(Adjoint::Phantom { steps: 3, damping: 0.0 })),
            ("damped phantom", with(Adjoint::Phantom { steps: 3, damping: 0.3 })),
            ("gmres", implicit(LinearSolver::Gmres { memory: 5 })),
            ("neumann", implicit(LinearSolver::Neumann)),
        ] {
            let graph = network("deq-transformer", 16).with_equilibrium(&settings);
            compare(&mut checks, name, &graph, &[3, 0, 2], precision, Some(Trains::Everything));
        }
    }
    checks.finish();
}

/// Injections and states that are scaled or normalised, other numbers of layers, tied ones, and other parts that are personal.
#[test]
#[ignore = "needs a GPU"]
fn every_choice_of_networks_of_texts_agrees_with_the_cpu() {
    let mut checks = Checks::new();
    let few = Stop::relative(0.0, 4);
    let adjoints = [Adjoint::JacobianFree, Adjoint::Phantom { steps: 3, damping: 0.3 }];
    let (personal, usual) = (Personal::Output, DeqTransformerOptions::default);
    for (name, config) in [
        ("scaled injection", ModelConfig::DeqTransformer(DeqTransformerOptions { injection: 8.0, ..usual() })),
        (
            "normalised injection, scaled state",
            ModelConfig::DeqTransformer(DeqTransformerOptions { injection_norm: true, state_scale: 16.0, ..usual() }),
        ),
        ("one layer, personal output", ModelConfig::DeqTransformer(DeqTransformerOptions { layers: 1, personal, ..usual() })),
        (
            "tied layers",
            ModelConfig::DeqTransformer(DeqTransformerOptions {
                layers: 3,
                tied: true,
                injection: 8.0,
                state_scale: 4.0,
                personal,
                ..usual()
            }),
        ),
        ("transformer-4, personal output", ModelConfig::Transformer4(TransformerOptions { personal, ..Default::default() })),
    ] {
        let graph = config.graph(&Task::next_symbol(16, 90)).expect("fits");
        let every = [None, Some(Trains::Everything), Some(Trains::Shared), Some(Trains::Personal)];
        for (precision, adjoint) in BOTH.into_iter().flat_map(|precision| adjoints.clone().map(|adjoint| (precision, adjoint))) {
            let graph = graph.clone().with_equilibrium(&Settings { adjoint, stop: few, ..Settings::default() });
            every.iter().for_each(|trains| compare(&mut checks, name, &graph, &[3, 1, 0, 4], precision, *trains));
        }
    }
    checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn small_networks_of_texts_under_a_memory_checker() {
    let mut checks = Checks::new();
    let settings = Settings { stop: Stop::relative(0.0, 2), ..Settings::default() };
    for precision in BOTH {
        for graph in [network("transformer-4", 5), network("deq-transformer", 5).with_equilibrium(&settings)] {
            compare(&mut checks, "small", &graph, &[2, 0, 3], precision, Some(Trains::Everything));
        }
    }
    checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn milliseconds_of_a_training_step_of_texts() {
    let settings = Settings { stop: Stop::relative(0.0, 8), ..Settings::default() };
    for (name, length) in [("deq-transformer", 16), ("deq-transformer", 80), ("transformer-8", 80)] {
        let graph = network(name, length).with_equilibrium(&settings);
        for trains in [Trains::Shared, Trains::Personal] {
            let sizes = [16; 20];
            let precision = Precision::Mixed;
            let bench =
                Bench::new(Case { name, graph: &graph, sizes: &sizes, mode: Mode::Train, precision, trains: Some(trains) });
            bench.step();
            let mut recorded = bench.device.capture(|| {
                bench.step();
                Ok(())
            });
            let recorded = recorded.as_mut().expect("recorded");
            let mut timed = |repeats: u32| {
                let begun = std::time::Instant::now();
                // SAFETY: the launches of `bench.step`, on what they have left in their own buffers.
                (0..repeats).for_each(|_| unsafe { recorded.run() }.expect("run"));
                bench.device.synchronize().expect("done");
                begun.elapsed().as_secs_f64() * 1e3 / f64::from(repeats)
            };
            timed(3);
            let (milliseconds, megabytes) = (timed(20), bench.executor.bytes() as f64 / 1e6);
            println!("{name}, 20 x 16 texts of {length}, 8 steps, {trains:?}: {milliseconds:.2} ms recorded, {megabytes:.0} MB");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn masks_of_dropout_are_the_cpus_bit_by_bit() {
    let device = Device::new(0).expect("a GPU");
    let (counts, most, each) = ([3, 0, 2], 3, 2 * 16 * 64);
    let dropout = Dropout { name: "layers", rate: 0.1 };
    let seed = |lane: usize| 0x1234_5678_9abc_def0 ^ lane as u64;
    let spans: Vec<i32> = counts.iter().enumerate().flat_map(|(lane, &count)| [(lane * most) as i32, count]).collect();
    let rows: Vec<i32> = (0..9).collect();
    let drawn = || -> fedeq_core::Result<Vec<u8>> {
        let (spans, rows) = (Buffer::of(&device, &spans)?, Buffer::of(&device, &rows)?);
        let keys = Buffer::of(&device, &dropout_keys((0..3).map(seed)))?;
        let (step, masks) = (Buffer::of(&device, &[0])?, Buffer::<u8>::zeros(&device, 9 * each)?);
        let cohort = Cohort { spans: spans.pointer().cast(), rows: rows.pointer() };
        let draw = Launch::new("draw_masks", [each.div_ceil(2048), most, 3], 256);
        let (stream, threshold) = (dropout.stream(), dropout.threshold());
        launch!(device, draw; step.pointer(), keys.pointer(), masks.pointer(), cohort, stream, threshold, each as i64, each as i32)?;
        let mut values = vec![0; 9 * each];
        masks.read(&device, 0, &mut values)?;
        Ok(values)
    };
    let masks = drawn().expect("drawn");
    for (lane, &count) in counts.iter().enumerate() {
        let expected = dropout.multipliers(seed(lane), count as usize * each);
        let seen = &masks[lane * most * each..][..expected.len()];
        assert!(seen.iter().zip(&expected).all(|(&mask, &multiplier)| (mask == 1) == (multiplier > 0.0)), "lane {lane}");
    }
}
