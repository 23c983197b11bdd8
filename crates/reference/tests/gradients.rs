//! Gradients of the small networks against central differences, in double precision.
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Stop};
use fedeq_models::{
    Activation, DeqMlpOptions, DeqResNetOptions, DeqTransformerOptions, GroupNormScope, ModelConfig, NormKind, Personal, Pooling,
    ResNetOptions, Task, TransformerOptions,
};
use fedeq_reference::{FloatPrecision, Pass, Reference};

mod common;

const STEP: f64 = 1e-5;

/// One entry of every parameter, chosen by its path.
fn entry_of(path: &str, count: usize) -> usize {
    (common::uniform(path, 1)[0] * count as f64) as usize
}

/// Compares the derivative by one entry of every parameter.
fn check(config: ModelConfig, task: Task, gain: f64) {
    let graph = config.graph(&task).expect("a fitting task");
    let reference = Reference::new(&graph, FloatPrecision::Double);
    let (values, statistics) = (common::filled(&graph, gain), common::filled_statistics(&graph));
    let (input, targets, pass) = (common::batch(&task), common::targets(&task), Pass::train(1));

    let (_, gradient) = reference.gradient(&values, &statistics, &input, &pass, &targets);
    assert_eq!(gradient.len(), graph.parameters.len(), "every parameter has a gradient");

    let loss_at = |path: &str, entry: usize, by: f64| {
        let mut values = values.clone();
        values.get_mut(path).expect("a parameter")[entry] += by;
        common::cross_entropy(&reference.forward(&values, &statistics, &input, &pass).logits, &targets, &task, &input)
    };
    for (path, derivatives) in gradient {
        let entry = entry_of(&path, derivatives.len());
        let (found, difference) =
            (derivatives[entry], (loss_at(&path, entry, STEP) - loss_at(&path, entry, -STEP)) / (2.0 * STEP));
        let error = (found - difference).abs() / difference.abs().max(1e-2);
        assert!(error < 1e-5, "{config}: `{path}`: {found} is not {difference}");
    }
}

/// Solved and differentiated to the last digits.
fn exact() -> Equilibrium {
    Equilibrium {
        stop: Stop::relative(1e-13, 300),
        adjoint: Adjoint::Implicit { solver: LinearSolver::default(), stop: Stop::relative(1e-11, 300) },
        ..Equilibrium::default()
    }
}

#[test]
fn deq_resnet_xs_has_the_gradients_of_central_differences() {
    for cell_norm in [GroupNormScope::Textbook, GroupNormScope::RowWise] {
        let options = DeqResNetOptions { cell_norm, equilibrium: exact(), ..Default::default() };
        check(ModelConfig::DeqResNetXs(options), Task::image(8, 8, 1, 3), 0.3);
    }
    let options = DeqResNetOptions { pooling: Pooling::Mean, equilibrium: exact(), ..Default::default() };
    check(ModelConfig::DeqResNetXs(options), Task::image(8, 8, 1, 3), 0.3);
}

#[test]
fn deq_resnet_xs_with_group_norm_has_the_gradients_of_central_differences() {
    let options = DeqResNetOptions { norm: NormKind::Group, equilibrium: exact(), ..Default::default() };
    check(ModelConfig::DeqResNetXs(options), Task::image(6, 5, 2, 3), 0.3);
}

#[test]
fn deq_mlp_has_the_gradients_of_central_differences() {
    let options = DeqMlpOptions {
        hidden: Some(12),
        dense: 7,
        bias: true,
        norm: Some(NormKind::Batch),
        activation: Activation::Softplus,
        equilibrium: exact(),
    };
    check(ModelConfig::DeqMlp(options), Task::vector(5, 3), 0.8);
}

#[test]
fn resnet_xs_has_the_gradients_of_central_differences() {
    for norm in [NormKind::Batch, NormKind::Group] {
        let options = ResNetOptions { norm, activation: Activation::Softplus, family: None };
        check(ModelConfig::ResNetXs(options), Task::image(7, 6, 1, 3), 1.0);
    }
}

/// Gradients go through all steps, and through the start, which is what is injected.
#[test]
fn the_explicit_counterparts_of_deq_resnet_have_the_gradients_of_central_differences() {
    for json in [
        r#"{ "name": "tied-resnet-xs" }"#,
        r#"{ "name": "tied-resnet-xs", "steps": 1, "cell_norm": "row-wise" }"#,
        r#"{ "name": "tied-resnet-xs", "steps": 3, "pooling": "mean", "norm": "group" }"#,
        r#"{ "name": "untied-resnet-xs" }"#,
        r#"{ "name": "untied-resnet-xs", "blocks": 1, "pooling": "mean" }"#,
    ] {
        check(serde_json::from_str(json).expect("well-formed"), Task::image(6, 5, 2, 3), 0.3);
    }
}

#[test]
fn transformer_4_has_the_gradients_of_central_differences() {
    check(ModelConfig::Transformer4(TransformerOptions::default()), Task::next_symbol(4, 7), 1.0);
}

#[test]
fn deq_transformer_has_the_gradients_of_central_differences() {
    let options = DeqTransformerOptions { equilibrium: exact(), ..Default::default() };
    check(ModelConfig::DeqTransformer(options), Task::next_symbol(4, 7), 0.5);
}

/// Scaled and normalised injections, scaled states, other numbers of layers, tied ones, and other parts that are personal.
#[test]
fn every_choice_of_networks_for_text_has_the_gradients_of_central_differences() {
    let usual = || DeqTransformerOptions { equilibrium: exact(), ..Default::default() };
    for options in [
        DeqTransformerOptions { injection: 8.0, state_scale: 4.0, ..usual() },
        DeqTransformerOptions { injection: 2.0, injection_norm: true, layers: 1, personal: Personal::Output, ..usual() },
        DeqTransformerOptions { layers: 2, tied: true, ..usual() },
    ] {
        check(ModelConfig::DeqTransformer(options), Task::next_symbol(4, 7), 0.5);
    }
    let options = TransformerOptions { personal: Personal::Output, ..Default::default() };
    check(ModelConfig::Transformer4(options), Task::next_symbol(4, 7), 1.0);
}

#[test]
fn other_networks_have_the_gradients_of_central_differences() {
    for name in ["linear", "mlp"] {
        let config: ModelConfig = name.parse().expect("a known name");
        check(config, Task::vector(5, 3), 1.0);
    }
    // Shortcuts without parameters.
    let json = r#"{ "name": "resnet-14", "family": "cifar10", "activation": "softplus" }"#;
    check(serde_json::from_str(json).expect("well-formed"), Task::image(5, 5, 1, 3), 1.0);
}

/// One derivative in a direction that moves every parameter, for every network there is.
#[test]
fn every_network_by_name_has_the_derivative_of_central_differences_in_a_direction() {
    for name in ModelConfig::NAMES {
        let task = common::task_for(name);
        let graph = common::graph(name, &task).with_equilibrium(&exact());
        let reference = Reference::new(&graph, FloatPrecision::Double);
        let (values, statistics) = (common::filled(&graph, 0.3), common::filled_statistics(&graph));
        let (input, targets) = (common::batch(&task), common::targets(&task));
        // A cell contracts on normalised inputs; a deep ResNet, whose last plane is one pixel here, is too crooked when normalised over three samples.
        let pass = if graph.is_equilibrium() { Pass::train(1) } else { Pass { dropout: Some(1), ..Pass::evaluate() } };
        let direction =
            |path: &str, count| common::uniform(&format!("{path} direction"), count).into_iter().map(|u| 2.0 * u - 1.0);

        let (_, gradient) = reference.gradient(&values, &statistics, &input, &pass, &targets);
        let along = |(path, derivatives): (&String, &Vec<f64>)| -> f64 {
            derivatives.iter().zip(direction(path, derivatives.len())).map(|(derivative, d)| derivative * d).sum()
        };
        let found: f64 = gradient.iter().map(along).sum();
        let loss_at = |by: f64| {
            let moved = values.iter().map(|(path, numbers)| {
                let steps = direction(path, numbers.len());
                (path.clone(), numbers.iter().zip(steps).map(|(number, d)| number + by * d).collect())
            });
            common::cross_entropy(
                &reference.forward(&moved.collect(), &statistics, &input, &pass).logits,
                &targets,
                &task,
                &input,
            )
        };
        let step = 1e-7;
        let difference = (loss_at(step) - loss_at(-step)) / (2.0 * step);
        let error = (found - difference).abs() / difference.abs().max(1e-2);
        assert!(error < 1e-4, "{name}: {found} is not {difference}");
    }
}

#[test]
fn the_loss_is_the_mean_over_what_is_not_padding() {
    for name in ["mlp", "transformer-4"] {
        let task = common::task_for(name);
        let graph = common::graph(name, &task);
        let reference = Reference::new(&graph, FloatPrecision::Double);
        let (values, statistics) = (common::filled(&graph, 1.0), common::filled_statistics(&graph));
        let (input, targets, pass) = (common::batch(&task), common::targets(&task), Pass::evaluate());
        let (loss, _) = reference.gradient(&values, &statistics, &input, &pass, &targets);
        let logits = reference.forward(&values, &statistics, &input, &pass).logits;
        assert!((loss - common::cross_entropy(&logits, &targets, &task, &input)).abs() < 1e-12, "{name}");
    }
}
