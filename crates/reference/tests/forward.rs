//! How networks behave around a pass: modes, masks, starts, padding and the future.
use fedeq_equilibrium::{Equilibrium, Solver, Stop};
use fedeq_models::graph::Graph;
use fedeq_models::{DeqResNetOptions, DeqTransformerOptions, ModelConfig, NormKind, ResNetOptions, Task};
use fedeq_reference::{FloatPrecision, InputValues, Outputs, Pass, Reference, Values};

mod common;

/// A network, and numbers for it.
struct Case {
    task: Task,
    graph: Graph,
    values: Values,
    statistics: Values,
}

impl Case {
    fn new(config: &ModelConfig, task: Task, gain: f64) -> Self {
        let graph = config.graph(&task).expect("a fitting task");
        let (values, statistics) = (common::filled(&graph, gain), common::filled_statistics(&graph));
        Self { task, graph, values, statistics }
    }

    fn named(name: &str) -> Self {
        Self::new(&name.parse().expect("a known name"), common::task_for(name), 0.5)
    }

    fn run(&self, input: &InputValues, pass: &Pass) -> Outputs {
        Reference::new(&self.graph, FloatPrecision::Double).forward(&self.values, &self.statistics, input, pass)
    }

    fn batch(&self) -> InputValues {
        common::batch(&self.task)
    }
}

/// A solve to the last digits.
fn exact() -> Equilibrium {
    Equilibrium { stop: Stop::relative(1e-12, 300), ..Equilibrium::default() }
}

fn training() -> Pass {
    Pass::train(1).without_dropout()
}

#[test]
fn networks_run_in_both_modes_on_three_samples() {
    for name in ModelConfig::NAMES {
        let case = Case::named(name);
        for pass in [training(), Pass::evaluate()] {
            let output = case.run(&case.batch(), &pass);
            let rows = common::targets(&case.task).len();
            assert_eq!(output.logits.len(), rows * case.task.classes, "{name}");
            assert_eq!(output.embedding.len() % rows, 0, "{name}");
            assert_eq!(output.state.is_some(), case.graph.is_equilibrium(), "{name}");
            assert_eq!(output.state.map(|state| state.len()), case.graph.state_size().map(|size| 3 * size), "{name}");
            assert!(output.logits.iter().all(|value| value.is_finite()), "{name}");
        }
    }
}

#[test]
fn training_moves_the_statistics_and_evaluation_does_not() {
    for name in ["deq-resnet-xs", "resnet-xs"] {
        let mut case = Case::named(name);
        let output = case.run(&case.batch(), &training());
        assert!(
            output.statistics.iter().filter(|(path, _)| path.ends_with(".steps")).all(|(_, steps)| *steps == [4.0]),
            "{name}"
        );
        assert_eq!(output.statistics.len(), case.statistics.len(), "{name}: every layer was known from the start");
        assert!(output.statistics.iter().all(|(path, numbers)| case.statistics[path] != *numbers), "{name}");
        case.statistics = output.statistics;
        assert_eq!(case.run(&case.batch(), &Pass::evaluate()).statistics, case.statistics, "{name}");
    }
}

#[test]
fn without_batch_normalisation_there_are_no_statistics_and_samples_do_not_see_each_other() {
    let norm = NormKind::Group;
    let configs = [
        ModelConfig::DeqResNetXs(DeqResNetOptions { norm, equilibrium: exact(), ..Default::default() }),
        ModelConfig::ResNetXs(ResNetOptions { norm, ..Default::default() }),
        ModelConfig::ResNet14(ResNetOptions { norm, ..Default::default() }),
    ];
    for config in configs {
        let case = Case::new(&config, Task::image(8, 8, 1, 10), 0.5);
        assert!(case.statistics.is_empty(), "{config}");
        let all = case.batch();
        let second = InputValues { samples: 1, values: all.values[64..128].to_vec() };
        let [together, alone] = [all, second].map(|input| case.run(&input, &training()).logits);
        assert!(common::relative_error(&alone, &together[10..20]) < 1e-9, "{config}");
    }
}

#[test]
fn a_solve_started_at_the_fixed_point_is_over_at_once() {
    for name in ["deq-resnet-xs", "deq-mlp", "deq-transformer"] {
        let case = Case::named(name);
        let first = case.run(&case.batch(), &training());
        assert!(first.report.as_ref().expect("a solve").all_converged(), "{name}: {:?}", first.report);
        let again = case.run(&case.batch(), &training().starting_at(&first.state.expect("a solve")));
        assert_eq!(again.report.expect("a solve").steps, [1; 3], "{name}");
    }
}

#[test]
fn a_contracting_cell_has_a_spectral_radius_below_one_and_an_explicit_network_has_none() {
    for name in ["deq-resnet-xs", "deq-mlp", "deq-transformer", "resnet-xs"] {
        let case = Case::named(name);
        let state = case.run(&case.batch(), &training()).state.unwrap_or_default();
        let reference = Reference::new(&case.graph, FloatPrecision::Double);
        let found = reference.spectral_radius(&case.values, &case.statistics, &case.batch(), &training(), &state, 1);
        assert_eq!(found.is_some(), case.graph.is_equilibrium(), "{name}");
        assert!(found.unwrap_or_default().iter().all(|radius| (0.0..1.0).contains(radius)), "{name}");
    }
}

#[test]
fn dropout_is_determined_by_its_seed_and_leaves_a_fixed_point_to_find() {
    let mut options = DeqTransformerOptions { dropout: 0.3, ..Default::default() };
    options.equilibrium.solver = Solver::fixed_point();
    options.equilibrium.stop = Stop::relative(1e-5, 100);
    let case = Case::new(&ModelConfig::DeqTransformer(options), Task::next_symbol(5, 9), 0.5);
    let input = sequences(&[[1, 2, 3, 4, 5], [8, 7, 6, 5, 4]]);
    let with = |dropout| {
        let output = case.run(&input, &Pass { dropout, ..Pass::evaluate() });
        assert!(output.report.expect("a solve").all_converged(), "the masks stay the same in a solve");
        output.logits
    };
    assert_eq!(with(Some(1)), with(Some(1)));
    assert_ne!(with(Some(1)), with(Some(2)));
    assert_ne!(with(Some(1)), with(None));
}

/// Sequences of the given symbols.
fn sequences<const T: usize>(symbols: &[[i32; T]]) -> InputValues {
    InputValues { samples: symbols.len(), values: symbols.iter().flatten().map(|&symbol| symbol.into()).collect() }
}

#[test]
fn text_networks_see_neither_the_future_nor_padding() {
    for name in ["transformer-4", "deq-transformer"] {
        let mut case = Case::named(name);
        case.graph = case.graph.with_equilibrium(&exact());
        let logits = |input| case.run(&input, &Pass::evaluate()).logits;
        let whole = logits(sequences(&[[1, 2, 3, 4, 5]]));
        let until_third = ..3 * case.task.classes;
        let same = |other: Vec<f64>| common::relative_error(&other[until_third], &whole[until_third]) < 1e-9;
        assert!(same(logits(sequences(&[[1, 2, 3, 7, 8]]))), "{name}: the future");
        assert!(same(logits(sequences(&[[1, 2, 3, 0, 0]]))), "{name}: padding");
        assert!(same(logits(sequences(&[[1, 2, 3]]))), "{name}: a shorter sequence");
        assert!(!same(logits(sequences(&[[6, 2, 3, 4, 5]]))), "{name}: the past");
    }
}

#[test]
fn single_precision_is_close_to_double() {
    for name in ModelConfig::NAMES {
        let mut case = Case::new(&name.parse().expect("a known name"), common::task_for(name), 0.3);
        case.graph = case.graph.with_equilibrium(&Equilibrium { stop: Stop::relative(1e-6, 100), ..Equilibrium::default() });
        let pass = Pass::train(3);
        let run = |precision| {
            Reference::new(&case.graph, precision).forward(&case.values, &case.statistics, &case.batch(), &pass).logits
        };
        let error = common::relative_error(&run(FloatPrecision::Single), &run(FloatPrecision::Double));
        // Thirty-four layers of batch normalisation over three samples leave about 1e-4.
        assert!(error < 5e-4, "{name}: {error:.1e}");
    }
}
