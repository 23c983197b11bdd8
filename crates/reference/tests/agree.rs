//! The reference against the modules of today.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::activation::log_softmax;
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use fedeq_models::{Context, InputShape, Mode as NetworkMode, ModelConfig, Network, PathTracker, Start, Task};
use fedeq_reference::{Input, Mode, Pass, Precision, Reference, Values};

mod common;

fn network(name: &str, task: &Task, values: &Values) -> Network {
    let network = name.parse::<ModelConfig>().expect("known").build(task, &Device::default().autodiff(), 0).expect("fits");
    let shapes: BTreeMap<_, _> = network.parameters().into_iter().map(|parameter| (parameter.path, parameter.shape)).collect();
    let data = values
        .iter()
        .map(|(path, numbers)| (path.clone(), TensorData::new(numbers.clone(), shapes[path].clone()).convert::<f32>()));
    network.with_values(&data.collect())
}

fn input_of(task: &Task, input: &Input) -> fedeq_models::Input {
    let device = Device::default();
    let n = input.samples;
    let data = |shape: &[usize]| TensorData::new(input.values.clone(), shape.to_vec());
    match task.input {
        InputShape::Image { height, width, channels } => {
            fedeq_models::Input::Image(Tensor::from_data(data(&[n, height, width, channels]).convert::<f32>(), &device))
        }
        InputShape::Vector { width } => {
            fedeq_models::Input::Vector(Tensor::from_data(data(&[n, width]).convert::<f32>(), &device))
        }
        InputShape::Symbols { length, .. } => {
            fedeq_models::Input::Symbols(Tensor::<2, Int>::from_data(data(&[n, length]).convert::<i64>(), &device))
        }
    }
}

fn host<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

fn gradients(network: &Network, gradients: &Gradients) -> Values {
    struct Read<'a>(PathTracker, &'a Gradients, Values);
    impl ModuleVisitor for Read<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.2.insert(self.0.path(), host(&param.val().grad(self.1).expect("a gradient")));
        }
    }
    let mut read = Read(PathTracker::default(), gradients, Values::new());
    network.visit(&mut read);
    read.2
}

/// Which numbers must agree how well: the length of the difference over the length of what is expected.
fn close(found: &[f64], expected: &[f64], tolerance: f64, what: &str) {
    close_at_scale(found, expected, 1e-3, tolerance, what);
}

fn norm(x: impl Iterator<Item = f64>) -> f64 {
    x.map(|x| x * x).sum::<f64>().sqrt()
}

/// The same; what is shorter than `least` is compared as if it were as long.
fn close_at_scale(found: &[f64], expected: &[f64], least: f64, tolerance: f64, what: &str) {
    let difference = norm(found.iter().zip(expected).map(|(f, e)| f - e));
    let length = norm(expected.iter().copied()).max(least);
    assert_eq!(found.len(), expected.len(), "{what}");
    assert!(difference / length < tolerance, "{what}: {:.1e}", difference / length);
}

fn compare(name: &str, mode: Mode) {
    let task = common::task_for(name);
    let graph = common::graph(name, &task);
    let (values, statistics) = (common::filled(&graph, 0.5), common::filled_statistics(&graph));
    let (batch, targets) = (common::batch(&task), common::targets(&task));
    let network = network(name, &task, &values);
    let named = statistics
        .iter()
        .map(|(name, numbers)| (name.clone(), TensorData::new(numbers.clone(), [numbers.len()]).convert::<f32>()));
    let start = network.fresh_statistics().with_values(&named.collect());
    let state = graph.state_size().map(|size| common::uniform("start", 3 * size));
    let start_state = state.as_ref().map(|state| {
        Tensor::<2>::from_data(TensorData::new(state.clone(), [3, state.len() / 3]).convert::<f32>(), &Device::default())
    });
    let mut context = match mode {
        Mode::Train => Context::train(start, 5),
        Mode::Evaluate => Context::evaluate(start),
    };
    assert_eq!(context.mode == NetworkMode::Train, mode == Mode::Train);
    let mut pass = if mode == Mode::Train { Pass::train(5) } else { Pass::evaluate() };
    if let (Some(state), Some(tensor)) = (&state, &start_state) {
        context = context.starting(Start::At(tensor));
        pass = pass.starting_at(state);
    }
    let output = network.forward(&input_of(&task, &batch), &mut context).expect("fits");

    let reference = Reference::new(&graph, Precision::Single);
    let found = reference.forward(&values, &statistics, &batch, &pass);
    // The last stage of a deep ResNet has one pixel here, and its batch normalisations three numbers: they enlarge rounding a hundredfold.
    let tolerance = if graph.statistics.len() > 10 && mode == Mode::Train { 5e-4 } else { 1e-5 };
    close(&found.logits, &host(&output.logits), tolerance, &format!("{name}, {mode:?}: logits"));
    close(&found.embedding, &host(&output.embedding), tolerance, &format!("{name}, {mode:?}: embedding"));
    assert_eq!(found.state.is_some(), output.equilibrium.is_some(), "{name}");
    if let (Some(state), Some(equilibrium)) = (&found.state, &output.equilibrium) {
        // A fixed point is known up to its rounding divided by one minus the rate of contraction.
        close(state, &host(&equilibrium.state), 1e-4, &format!("{name}, {mode:?}: state"));
        let report = found.report.as_ref().expect("a report");
        assert_eq!(report.steps, equilibrium.report.steps, "{name}");
    }
    for (path, data) in context.statistics.values() {
        let expected: Vec<f64> = data.iter::<f64>().collect();
        close(&found.statistics[&path], &expected, 1e-5, &format!("{name}: {path}"));
    }
    if mode == Mode::Evaluate {
        return;
    }
    let rows = targets.len();
    let wanted = Tensor::<2, Int>::from_data(TensorData::new(targets.clone(), [rows, 1]), &Device::default());
    let chosen = log_softmax(output.logits, 1).gather(1, wanted).squeeze_dim::<1>(1);
    let is_text = matches!(task.input, InputShape::Symbols { .. });
    let counts: Vec<f32> = (0..rows).map(|row| if is_text && batch.values[row] == 0.0 { 0.0 } else { 1.0 }).collect();
    let total: f32 = counts.iter().sum();
    let loss = (chosen * Tensor::from_data(TensorData::new(counts, [rows]), &Device::default())).sum().neg().div_scalar(total);
    let (found_loss, found) = reference.gradient(&values, &statistics, &batch, &pass, &targets);
    close(&[found_loss], &host(&loss), tolerance, &format!("{name}: loss"));
    let expected = gradients(&network, &loss.backward());
    let largest = expected.values().map(|gradient| norm(gradient.iter().copied())).fold(0.0, f64::max);
    for (path, expected) in expected {
        // Behind a batch normalisation the gradient of a bias is a difference of large numbers.
        close_at_scale(&found[&path], &expected, largest / 10.0, 20.0 * tolerance, &format!("{name}: gradient of {path}"));
    }
}

#[test]
fn every_network_agrees_in_training_and_evaluation() {
    for name in ModelConfig::NAMES.iter().filter(|name| !name.ends_with("34") && !name.ends_with("-m")) {
        for mode in [Mode::Train, Mode::Evaluate] {
            compare(name, mode);
        }
    }
}
