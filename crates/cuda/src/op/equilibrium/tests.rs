//! The layer in whole networks, against the CPU.
#![allow(clippy::print_stdout, reason = "a line for every case, for whoever runs the tests on a card")]
use std::cell::Cell as Shared;
use std::time::Instant;

use fedeq_core::{Projection, Trains, Weights};
use fedeq_equilibrium::{Adjoint, Anderson, Equilibrium as Settings, LinearSolver, Ridge, Solver, Stop};
use fedeq_models::Mode;
use fedeq_models::graph::{Cell as GraphCell, Graph, Layer, NormScope};
use fedeq_models::{
    Activation, DeqResNetOptions, GroupNormScope, Initializer, ModelConfig, Pooling, Task, TiedResNetOptions, UntiedResNetOptions,
};

use super::{Progress, SolveHook, Solved, State};
use crate::check::{Allowed, Bench, Case, Checks};
use crate::device::{Buffer, Pointer};
use crate::layout::Layout;
use crate::op::{Cohort, PassContext};
use crate::plan::Precision;
use crate::projection::Projected;
use crate::support::ensure_supported;

/// A network whose cell is nearly a contraction, so that solves end at different steps and rounding does not grow in them: what is injected is larger than what comes of the state.
fn network(name: &str, task: &Task, settings: &Settings) -> Graph {
    scaled(name.parse::<ModelConfig>().expect("known").graph(task).expect("fits").with_equilibrium(settings))
}

fn scaled(mut graph: Graph) -> Graph {
    for parameter in &mut graph.parameters {
        let inputs = parameter.shape.iter().skip(1).product::<usize>() as f64;
        let deviation = match parameter.path.as_str() {
            "stem.conv.weight" => 1.0,
            "stem.norm.scale" if parameter.shape[0] >= 64 => 3.0,
            path if path.ends_with(".conv_a.weight") => 1.0 / inputs.sqrt(),
            path if path.ends_with(".conv_b.weight") => 0.1 / inputs.sqrt(),
            _ => continue,
        };
        parameter.init = Initializer::Normal { deviation };
    }
    graph
}

fn digits() -> Task {
    Task::image(8, 8, 1, 10)
}

fn jacobian_free() -> Settings {
    Settings::default()
}

fn with_solver(solver: Solver) -> Settings {
    Settings { solver, ..Settings::default() }
}

fn with_adjoint(adjoint: Adjoint) -> Settings {
    Settings { adjoint, ..Settings::default() }
}

fn implicit(solver: LinearSolver, tolerance: f64) -> Settings {
    with_adjoint(Adjoint::Implicit { solver, stop: Stop::relative(tolerance, 60) })
}

/// The adjoints, by name; systems are solved to that tolerance.
fn adjoints(tolerance: f64) -> Vec<(&'static str, Settings)> {
    let implicit = |solver| implicit(solver, tolerance);
    vec![
        ("phantom 5", with_adjoint(Adjoint::Phantom { steps: 5, damping: 0.0 })),
        ("phantom 3 damped", with_adjoint(Adjoint::Phantom { steps: 3, damping: 0.3 })),
        ("phantom 1 damped", with_adjoint(Adjoint::Phantom { steps: 1, damping: 0.5 })),
        ("gmres", implicit(LinearSolver::Gmres { memory: 20 })),
        ("gmres, restarts", implicit(LinearSolver::Gmres { memory: 3 })),
        ("implicit by anderson", implicit(LinearSolver::Anderson { memory: 5 })),
        ("neumann", implicit(LinearSolver::Neumann)),
    ]
}

/// Ways to find a fixed point, by name.
fn solvers() -> Vec<(&'static str, Settings)> {
    let anderson = |change: &dyn Fn(&mut Anderson)| {
        let mut anderson = Anderson::default();
        change(&mut anderson);
        with_solver(Solver::Anderson(anderson))
    };
    let stop = |settings: Settings, stop: Stop| Settings { stop, ..settings };
    vec![
        ("fixed point", with_solver(Solver::fixed_point())),
        ("damped", with_solver(Solver::FixedPoint { damping: 0.3 })),
        ("memory 1", with_solver(Solver::anderson(1))),
        ("memory 8", stop(with_solver(Solver::anderson(8)), Stop::relative(1e-4, 30))),
        ("absolute ridge", anderson(&|it| it.ridge = Ridge::Absolute(1e-3))),
        ("large ridge, mixing", anderson(&|it| (it.ridge, it.mixing) = (Ridge::Relative(1e-2), 0.7))),
        ("delay", anderson(&|it| it.delay = 3)),
        ("restart", stop(anderson(&|it| it.restart = Some(4)), Stop::relative(1e-4, 30))),
        ("absolute tolerance", stop(jacobian_free(), Stop::absolute(1e-2, 40))),
        ("long", stop(jacobian_free(), Stop::relative(1e-4, 300))),
        ("four steps", stop(jacobian_free(), Stop::relative(0.0, 4))),
        ("one step", stop(jacobian_free(), Stop::relative(0.0, 1))),
    ]
}

/// A cell with normalisation by rows and another activation.
fn other_cell(mut graph: Graph) -> Graph {
    for layer in &mut graph.layers {
        if let Layer::Equilibrium { cell: GraphCell::Residual { over, activation, .. }, .. } = layer {
            (*over, *activation) = (NormScope::RowGroups(8), Activation::Relu);
        }
    }
    graph
}

const EXACT: Allowed = Allowed { values: 2e-4, gradients: 1e-3 };
const MIXED: Allowed = Allowed { values: 2e-2, gradients: 5e-2 };

struct Suite {
    checks: Checks,
}

impl Suite {
    fn train(&mut self, name: &str, graph: &Graph, sizes: &[usize], precision: Precision) {
        let (mode, trains) = (Mode::Train, Some(Trains::Everything));
        self.run(Case { name, graph, sizes, mode, precision, trains });
    }

    /// Gradients with given statistics: those of few samples magnify every difference.
    fn differentiate(&mut self, name: &str, graph: &Graph, sizes: &[usize], precision: Precision) {
        let (mode, trains) = (Mode::Evaluate, Some(Trains::Everything));
        self.run(Case { name, graph, sizes, mode, precision, trains });
    }

    fn evaluate(&mut self, name: &str, graph: &Graph, sizes: &[usize], precision: Precision) {
        self.run(Case { name, graph, sizes, mode: Mode::Evaluate, precision, trains: None });
    }

    fn run(&mut self, case: Case<'_>) {
        self.checks.run(case, if case.precision == Precision::Exact { EXACT } else { MIXED });
    }
}

#[test]
#[ignore = "needs a GPU"]
fn networks_that_solve_for_fixed_points_agree_with_the_cpu() {
    let mut suite = Suite { checks: Checks::new() };
    let colour = Task::image(32, 32, 3, 10);
    let characters = Task::image(28, 28, 1, 62);
    for precision in [Precision::Exact, Precision::Mixed] {
        for (name, task, sizes) in [
            ("deq-mlp", &digits(), &[3, 0, 5, 1][..]),
            ("deq-mlp", &colour, &[4, 33]),
            ("deq-resnet-xs", &digits(), &[12, 0, 17, 9]),
            ("deq-resnet-s", &characters, &[12, 9]),
            ("deq-resnet-m", &colour, &[9, 0, 7]),
        ] {
            let graph = network(name, task, &jacobian_free());
            // The small one's planes have few pixels: one that is no longer the largest of its window, by rounding to 16 bits, is seen in gradients.
            if precision == Precision::Exact || name != "deq-resnet-xs" {
                suite.train(name, &graph, sizes, precision);
                suite.differentiate(name, &graph, sizes, precision);
            }
            suite.evaluate(name, &graph, sizes, precision);
        }
        let rows = other_cell(network("deq-resnet-xs", &digits(), &jacobian_free()));
        suite.differentiate("rows, relu", &rows, &[6, 0, 9], precision);
        let graph = network("deq-resnet-xs", &digits(), &jacobian_free());
        for trains in [Trains::Shared, Trains::Personal] {
            let (name, trains, sizes) = ("deq-resnet-xs, a part of it", Some(trains), &[6, 5]);
            suite.run(Case { name, graph: &graph, sizes, mode: Mode::Evaluate, precision, trains });
        }
        for (name, task) in [("deq-mlp", &digits()), ("deq-resnet-s", &characters)] {
            for (adjoint, settings) in adjoints(1e-4) {
                let graph = network(name, task, &settings);
                suite.differentiate(&format!("{name}, {adjoint}"), &graph, &[6, 0, 5], precision);
            }
        }
        for (solver, settings) in solvers() {
            let graph = network("deq-resnet-xs", &digits(), &settings);
            suite.differentiate(&format!("deq-resnet-xs, {solver}"), &graph, &[6, 0, 8], precision);
        }
    }
    suite.checks.finish();
}

/// The cell applied a fixed number of times, blocks in its place, and the mean over the plane before the dense layers.
#[test]
#[ignore = "needs a GPU"]
fn the_explicit_counterparts_of_deq_resnet_agree_with_the_cpu() {
    let mut suite = Suite { checks: Checks::new() };
    let (colour, characters) = (Task::image(32, 32, 3, 10), Task::image(28, 28, 1, 62));
    let tied = |steps: usize, cell_norm: GroupNormScope, pooling: Pooling| TiedResNetOptions {
        steps,
        cell_norm,
        pooling,
        ..TiedResNetOptions::default()
    };
    let untied = |blocks: usize, pooling: Pooling| UntiedResNetOptions { blocks, pooling, ..UntiedResNetOptions::default() };
    let equilibrium = Settings { stop: Stop::relative(0.0, 4), ..jacobian_free() };
    let deq = DeqResNetOptions { pooling: Pooling::Mean, equilibrium, ..DeqResNetOptions::default() };
    let (textbook, rows, flatten, mean) = (GroupNormScope::Textbook, GroupNormScope::RowWise, Pooling::Flatten, Pooling::Mean);
    for precision in [Precision::Exact, Precision::Mixed] {
        for (name, config, task, sizes) in [
            ("one step", ModelConfig::TiedResNetXs(tied(1, textbook, flatten)), &digits(), &[6, 0, 9][..]),
            ("three steps, rows", ModelConfig::TiedResNetXs(tied(3, rows, flatten)), &digits(), &[6, 0, 9]),
            ("eight steps", ModelConfig::TiedResNetS(tied(8, textbook, flatten)), &characters, &[12, 9]),
            ("eight steps, mean", ModelConfig::TiedResNetM(tied(8, textbook, mean)), &colour, &[9, 0, 7]),
            ("two blocks", ModelConfig::UntiedResNetS(untied(2, flatten)), &characters, &[12, 9]),
            ("four blocks, mean", ModelConfig::UntiedResNetM(untied(4, mean)), &colour, &[9, 0, 7]),
            ("equilibrium, mean", ModelConfig::DeqResNetM(deq.clone()), &colour, &[4, 0, 5]),
        ] {
            let graph = scaled(config.graph(task).expect("fits"));
            suite.differentiate(name, &graph, sizes, precision);
            suite.evaluate(name, &graph, sizes, precision);
        }
        let tied = scaled(ModelConfig::TiedResNetXs(tied(3, textbook, flatten)).graph(&digits()).expect("fits"));
        for trains in [Trains::Shared, Trains::Personal] {
            let (name, trains, sizes) = ("tied-resnet-xs, a part of it", Some(trains), &[6, 5]);
            suite.run(Case { name, graph: &tied, sizes, mode: Mode::Evaluate, precision, trains });
        }
    }
    suite.checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn a_small_cell_under_a_memory_checker() {
    let mut suite = Suite { checks: Checks::new() };
    for precision in [Precision::Exact, Precision::Mixed] {
        // So well that a step more or less makes no difference, which products in 16 bits do not allow for.
        let tolerance = if precision == Precision::Exact { 1e-6 } else { 1e-4 };
        for (adjoint, settings) in
            adjoints(tolerance).into_iter().filter(|(name, _)| ["phantom 3 damped", "gmres, restarts"].contains(name))
        {
            for (name, task) in [("deq-mlp", &digits()), ("deq-resnet-s", &Task::image(20, 20, 1, 10))] {
                suite.differentiate(&format!("{name}, {adjoint}"), &network(name, task, &settings), &[3, 0, 4], precision);
            }
        }
    }
    suite.checks.finish();
}

/// Starts where the solve before ended.
struct Again {
    states: Buffer<f32>,
    known: Shared<bool>,
}

impl SolveHook for Again {
    fn before(&self, run: &PassContext<'_>, z: State, each: usize) -> fedeq_core::Result<()> {
        if !self.known.get() {
            return Ok(());
        }
        run.device.copy(self.states.pointer(), z.numbers, self.states.len())?;
        if z.halves.is_null() { Ok(()) } else { run.to_halves(z.numbers, z.halves, 1.0, each) }
    }

    fn after(&self, run: &PassContext<'_>, solved: Solved) -> fedeq_core::Result<()> {
        self.known.set(true);
        run.device.copy(run.at(solved.z), self.states.pointer(), run.size.samples() * solved.each)
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_solve_from_its_own_fixed_point_takes_one_step() {
    for precision in [Precision::Exact, Precision::Mixed] {
        let settings = Settings { stop: Stop::relative(1e-2, 40), ..Settings::default() };
        let graph = network("deq-resnet-xs", &digits(), &settings);
        let case = Case { name: "again", graph: &graph, sizes: &[3, 0, 5], mode: Mode::Evaluate, precision, trains: None };
        let bench = Bench::new(case);
        let samples = bench.executor.purpose.size.samples();
        let again = Again {
            states: Buffer::zeros(&bench.device, samples * graph.state_size().expect("states")).expect("memory"),
            known: Shared::new(false),
        };
        let steps = |solves: Vec<Progress>| -> Vec<i32> { solves.iter().map(|solve| solve.steps).collect() };
        let first = steps(bench.forward_with(&again));
        let second = steps(bench.forward_with(&again));
        println!("{precision:?}: {first:?}, then {second:?}");
        for (slot, (first, second)) in first.iter().zip(&second).enumerate() {
            // Lanes have room for five samples.
            let here = !(3..10).contains(&slot);
            assert_eq!(((2..40).contains(first), *second == 1), (here, here), "slot {slot}");
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn matrices_are_projected_as_on_the_cpu() {
    let graph = network("deq-mlp", &digits(), &jacobian_free());
    let layout = Layout::new(&graph, Precision::Exact);
    let device = crate::device::Device::new(0).expect("a GPU");
    for projection in [Projection::Ball(0.05), Projection::Ball(0.95), Projection::Sphere(1.0)] {
        let clients: Vec<Weights> = (0..3).map(|seed| Weights::initial(&graph, seed)).collect();
        let mut values = vec![0.0; 3 * layout.stride()];
        for (client, lane) in clients.iter().zip(values.chunks_exact_mut(layout.stride())) {
            layout.write(&graph, &client.params, lane).expect("fits");
        }
        let lanes = Buffer::of(&device, &values).expect("memory");
        let spans = Buffer::of(&device, &[0, 1, 1, 1, 2, 1]).expect("memory");
        let cohort = Cohort { spans: spans.pointer().cast(), rows: Pointer::NULL };
        Projected::new(projection, &graph, &layout)
            .expect("a matrix")
            .run(&device, lanes.pointer(), cohort, 3)
            .expect("launched");
        lanes.read(&device, 0, &mut values).expect("read");
        for (client, lane) in clients.iter().zip(values.chunks_exact(layout.stride())) {
            let expected = fedeq_cpu::project_params(projection, &graph, &client.params);
            let seen = layout.read(&graph, lane, |_| true);
            for (name, array) in expected.iter() {
                let found = seen.get(name).expect("the same parameters");
                let worst = array.values.iter().zip(&*found.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                assert!(worst < 1e-6, "{projection:?} {name}: {worst}");
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU"]
fn milliseconds_of_a_training_step() {
    let settings = Settings { stop: Stop::relative(0.0, 8), ..Settings::default() };
    let graph = network("deq-resnet-m", &Task::image(32, 32, 3, 10), &settings);
    for precision in [Precision::Mixed, Precision::Exact] {
        let sizes = [20; 10];
        let case =
            Case { name: "step", graph: &graph, sizes: &sizes, mode: Mode::Train, precision, trains: Some(Trains::Everything) };
        let bench = Bench::new(case);
        let repeats = if precision == Precision::Mixed { 20 } else { 2 };
        let timed = |work: &mut dyn FnMut()| {
            work();
            bench.device.synchronize().expect("done");
            let begun = Instant::now();
            (0..repeats).for_each(|_| work());
            bench.device.synchronize().expect("done");
            begun.elapsed().as_secs_f64() * 1e3 / f64::from(repeats)
        };
        let eager = timed(&mut || bench.step());
        let mut recorded = bench.device.capture(|| {
            bench.step();
            Ok(())
        });
        let recorded = recorded.as_mut().expect("recorded");
        // SAFETY: the launches of `bench.step`, on what they have left in their own buffers.
        let graph_time = timed(&mut || unsafe { recorded.run() }.expect("run"));
        let megabytes = bench.executor.bytes() as f64 / 1e6;
        println!(
            "DEQ-ResNet-M, 10 x 20, 8 steps, {precision:?}: {eager:.2} ms eager, {graph_time:.2} ms recorded, {megabytes:.0} MB"
        );
    }
}

#[test]
fn what_there_are_no_kernels_for_is_refused_by_name() {
    let refused = |settings: Settings, name: &str| {
        let graph = network("deq-resnet-xs", &digits(), &settings);
        let error = ensure_supported(&graph, Precision::Mixed).expect_err(name).to_string();
        assert!(error.contains(name), "{error}");
    };
    refused(with_solver(Solver::broyden(5)), "`model.equilibrium.solver.broyden`");
    refused(Settings { solver: Solver::anderson(9), ..jacobian_free() }, "`model.equilibrium.solver.anderson.memory`");
    refused(implicit(LinearSolver::Gmres { memory: 25 }, 1e-3), "`model.equilibrium.adjoint.implicit.solver.gmres.memory`");
    refused(implicit(LinearSolver::Anderson { memory: 9 }, 1e-3), "`model.equilibrium.adjoint.implicit.solver.anderson.memory`");
    refused(implicit(LinearSolver::Broyden { memory: 5 }, 1e-3), "`model.equilibrium.adjoint.implicit.solver.broyden`");
    for (_, settings) in adjoints(1e-4).into_iter().chain(solvers()) {
        for (name, task) in [("deq-mlp", digits()), ("deq-resnet-m", Task::image(32, 32, 3, 10))] {
            ensure_supported(&network(name, &task, &settings), Precision::Mixed).expect("supported");
        }
    }
}
