//! Gradients of the small networks against central differences, in double precision.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Stop};
use fedeq_models::{
    Activation, Context, DeqMlpOptions, DeqResNetOptions, DeqTransformerOptions, Input, Mode, ModelConfig, Network, NormKind,
    Part, PathTracker, Reach, ResNetOptions, Statistics, Task, TransformerOptions,
};

mod common;

const STEP: f64 = 1e-5;

/// A fixed linear function of the logits.
fn loss(network: &Network, input: &Input, statistics: &Statistics) -> Tensor<1> {
    let mut context = Context { mode: Mode::Train, ..Context::evaluate(statistics.clone()) };
    let logits = network.forward(input, &mut context).expect("a fitting input").logits;
    let weights: Vec<f64> = common::uniform("loss", logits.shape().num_elements()).iter().map(|u| 2.0 * u - 1.0).collect();
    let weights = Tensor::from_data(TensorData::new(weights, logits.dims()), (&logits.device(), DType::F64));
    (logits * weights).sum()
}

/// One entry of every parameter, chosen by its path.
fn entry_of(path: &str, count: usize) -> usize {
    (common::uniform(path, 1)[0] * count as f64) as usize
}

/// The derivative of the loss by the chosen entry of every parameter.
fn derivatives(network: &Network, gradients: &Gradients) -> BTreeMap<String, f64> {
    struct Read<'a>(PathTracker, &'a Gradients, BTreeMap<String, f64>);
    impl ModuleVisitor for Read<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let path = self.0.path();
            if let Some(gradient) = param.val().grad(self.1) {
                let gradient = common::host(&gradient);
                self.2.insert(path.clone(), gradient[entry_of(&path, gradient.len())]);
            }
        }
    }
    let mut read = Read(PathTracker::default(), gradients, BTreeMap::new());
    network.visit(&mut read);
    read.2
}

/// The network with the chosen entry of one parameter changed.
fn nudged(network: Network, path: &str, by: f64) -> Network {
    struct Nudge<'a>(PathTracker, &'a str, f64);
    impl ModuleMapper for Nudge<'_> {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            if self.0.path() != self.1 {
                return param;
            }
            param.map(|tensor| {
                let mut values = common::host(&tensor);
                let entry = entry_of(self.1, values.len());
                values[entry] += self.2;
                Tensor::from_data(TensorData::new(values, tensor.dims()), (&tensor.device(), DType::F64))
            })
        }
    }
    network.map(&mut Nudge(PathTracker::default(), path, by))
}

fn check(config: ModelConfig, task: Task, gain: f64) {
    let device = Device::default().autodiff();
    let network = config.build(&task, &device, 0).expect("a fitting task");
    let network = common::doubled(common::filled(network, gain));
    let statistics = common::doubled_statistics(&common::filled_statistics(&network));
    let input = common::doubled_input(common::batch(&task, &Device::default()));

    let exact = derivatives(&network, &loss(&network, &input, &statistics).backward());
    assert_eq!(exact.len(), network.parameters().len(), "every parameter has a gradient");

    let plain = network.valid();
    let at = |path: &str, by| loss(&nudged(plain.clone(), path, by), &input, &statistics).into_scalar::<f64>();
    for (path, derivative) in exact {
        let difference = (at(&path, STEP) - at(&path, -STEP)) / (2.0 * STEP);
        let error = (derivative - difference).abs() / difference.abs().max(1e-2);
        assert!(error < 1e-5, "{config}: `{path}`: {derivative} is not {difference}");
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
    for cell_norm in [Reach::Textbook, Reach::RowWise] {
        let options = DeqResNetOptions { cell_norm, equilibrium: exact(), ..Default::default() };
        check(ModelConfig::DeqResNetXs(options), Task::image(8, 8, 1, 3), 0.3);
    }
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

#[test]
fn transformer_4_has_the_gradients_of_central_differences() {
    check(ModelConfig::Transformer4(TransformerOptions::default()), Task::next_symbol(4, 7), 1.0);
}

#[test]
fn deq_transformer_has_the_gradients_of_central_differences() {
    let options = DeqTransformerOptions { equilibrium: exact(), ..Default::default() };
    check(ModelConfig::DeqTransformer(options), Task::next_symbol(4, 7), 0.5);
}

#[test]
fn the_personal_part_alone_has_the_gradients_it_has_in_the_whole() {
    let device = Device::default().autodiff();
    for name in ModelConfig::NAMES {
        let task = common::task_for(name);
        let network = common::build(name, &task, &device, 3);
        let input = common::batch(&task, &Device::default());
        let context = Context { mode: Mode::Train, ..Context::evaluate(network.fresh_statistics()) };

        let whole = network.forward(&input, &mut context.clone()).expect("fits").logits.sum().backward();
        let representation = network.valid().represent(&input, &mut context.clone()).expect("fits");
        let logits = network.predict(&representation, &context).expect("fits").logits;
        if network.count(Part::Personal) == 0 {
            continue;
        }
        let whole = derivatives(&network, &whole);
        let alone = derivatives(&network, &logits.sum().backward());
        assert!(alone.keys().all(|path| Part::of(path) == Part::Personal), "{name}");
        for (path, expected) in whole.into_iter().filter(|(path, _)| Part::of(path) == Part::Personal) {
            assert!((alone[&path] - expected).abs() <= 1e-4 * expected.abs().max(1e-2), "{name}: `{path}`");
        }
    }
}
