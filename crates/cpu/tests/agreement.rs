//! Every network, run by kernels on planned memory, against the same network run by burn with automatic differentiation.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Int, Tensor, TensorData};
use fedeq_cpu::{Context, Executor, Input, Layout, Mode, Running, Start};
use fedeq_models::graph::{Graph, ParameterId};
use fedeq_models::{ModelConfig, Network, Part, PathTracker, Task};

/// Numbers between -1 and 1 that look like chance.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2_654_435_761 + 12_345;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

enum Batch {
    Images(Vec<f32>, [usize; 4]),
    Vectors(Vec<f32>, [usize; 2]),
    Text(Vec<i32>, [usize; 2]),
}

impl Batch {
    fn input(&self) -> Input<'_> {
        match self {
            Self::Images(values, _) | Self::Vectors(values, _) => Input::Numbers(values),
            Self::Text(values, _) => Input::Symbols(values),
        }
    }

    fn tensor(&self, device: &Device) -> fedeq_models::Input {
        match self {
            Self::Images(values, shape) => {
                fedeq_models::Input::Image(Tensor::from_data(TensorData::new(values.clone(), *shape), device))
            }
            Self::Vectors(values, shape) => {
                fedeq_models::Input::Vector(Tensor::from_data(TensorData::new(values.clone(), *shape), device))
            }
            Self::Text(values, shape) => {
                fedeq_models::Input::Symbols(Tensor::<2, Int>::from_data(TensorData::new(values.clone(), *shape), device))
            }
        }
    }

    fn size(&self) -> [usize; 2] {
        match self {
            Self::Images(_, [batch, ..]) | Self::Vectors(_, [batch, _]) => [*batch, 1],
            Self::Text(_, shape) => *shape,
        }
    }
}

struct Gather<'a>(PathTracker, &'a Gradients, BTreeMap<String, Vec<f32>>);

impl ModuleVisitor for Gather<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.0.enter(name, container);
    }
    fn exit_module(&mut self, _: &str, container: &str) {
        self.0.exit(container);
    }
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.1) {
            self.2.insert(self.0.path(), gradient.into_data().try_into_vec::<f32>().unwrap());
        }
    }
}

/// The same network with gradients for one part only.
fn training_only(network: Network, part: Option<Part>) -> Network {
    struct Choose(PathTracker, Option<Part>);
    impl ModuleMapper for Choose {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let wanted = self.1.is_none_or(|part| Part::of(&self.0.path()) == part);
            param.set_require_grad(wanted)
        }
    }
    network.map(&mut Choose(PathTracker::default(), part))
}

/// Logits, gradients and statistics after a training pass whose loss is `<weights, logits>`.
struct Passed {
    logits: Vec<f32>,
    gradients: BTreeMap<String, Vec<f32>>,
    statistics: BTreeMap<String, Vec<f32>>,
}

fn by_burn(network: &Network, batch: &Batch, device: &Device, mode: Mode) -> Passed {
    let statistics = network.fresh_statistics();
    let mut context = match mode {
        Mode::Train => fedeq_models::Context::train(statistics, 11),
        Mode::Evaluate => fedeq_models::Context::evaluate(statistics),
    };
    let output = network.forward(&batch.tensor(device), &mut context).unwrap();
    let logits = output.logits.clone().into_data().try_into_vec::<f32>().unwrap();
    let weights = Tensor::<2>::from_data(TensorData::new(numbers(logits.len(), 5), output.logits.dims()), device);
    let gradients = (output.logits * weights).sum().backward();
    let mut gather = Gather(PathTracker::default(), &gradients, BTreeMap::new());
    network.visit(&mut gather);
    let statistics = context.statistics.values().into_iter().map(|(name, data)| (name, data.try_into_vec::<f32>().unwrap()));
    Passed { logits, gradients: gather.2, statistics: statistics.collect() }
}

fn by_plan(graph: &Graph, network: &Network, batch: &Batch, mode: Mode, part: Option<Part>) -> Passed {
    let values = network.values();
    let parameters: Vec<f32> =
        graph.parameters.iter().flat_map(|parameter| values[&parameter.path].clone().try_into_vec::<f32>().unwrap()).collect();
    let [size, length] = batch.size();
    let mut executor = Executor::new(graph, size, length, mode, |parameter| part.is_none_or(|part| parameter.part == part));
    let mut statistics: Vec<Running> = graph.statistics.iter().map(|running| Running::fresh(running.channels)).collect();
    let dropout = (mode == Mode::Train).then_some(11);
    let mut context = Context { parameters: &parameters, statistics: &mut statistics, dropout, start: Start::Model };
    // Twice: what a first pass leaves in memory must not matter.
    executor.forward(batch.input(), &mut context);
    let gradient = executor.logits_gradient().unwrap();
    let weights = numbers(gradient.len(), 5);
    gradient.copy_from_slice(&weights);
    let mut gradients = vec![f32::NAN; executor.trained().len()];
    executor.backward(batch.input(), &mut context, &mut gradients);
    let mut statistics: Vec<Running> = graph.statistics.iter().map(|running| Running::fresh(running.channels)).collect();
    let mut context = Context { parameters: &parameters, statistics: &mut statistics, dropout, start: Start::Model };
    executor.forward(batch.input(), &mut context);
    let logits = executor.logits().to_vec();
    executor.logits_gradient().unwrap().copy_from_slice(&weights);
    let first = std::mem::replace(&mut gradients, vec![f32::NAN; executor.trained().len()]);
    executor.backward(batch.input(), &mut context, &mut gradients);
    assert_eq!(first, gradients, "the same pass twice");
    let layout: &Layout = executor.trained();
    let named = graph.parameters.iter().enumerate().filter(|(index, _)| layout.has(ParameterId(*index)));
    let named = named.map(|(index, parameter)| (parameter.path.clone(), gradients[layout.range(ParameterId(index))].to_vec()));
    let running = graph.statistics.iter().zip(&statistics).flat_map(|(layer, running)| {
        let names = ["mean", "variance", "steps"].map(|name| format!("{}.{name}", layer.path));
        names.into_iter().zip([running.moments.mean.clone(), running.moments.variance.clone(), vec![running.steps]])
    });
    Passed { logits, gradients: named.collect(), statistics: running.collect() }
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

fn length(a: &[f32]) -> f64 {
    a.iter().map(|a| f64::from(*a).powi(2)).sum::<f64>().sqrt()
}

fn agrees(name: &str, task: &Task, batch: &Batch) {
    let config: ModelConfig = name.parse().unwrap();
    config_agrees(&config, task, batch, 1e-4);
}

fn config_agrees(config: &ModelConfig, task: &Task, batch: &Batch, tolerance: f64) {
    let device = Device::default().autodiff();
    let (network, graph) = (config.build(task, &device, 7).unwrap(), config.graph(task).unwrap());
    // Some parameters start at zero; nothing may hide there.
    let moved = network.values().into_iter().enumerate().map(|(index, (path, data))| {
        let shape = data.shape().to_vec();
        let values = data.try_into_vec::<f32>().unwrap();
        let noise = numbers(values.len(), 100 + index);
        let values = values.iter().zip(noise).map(|(value, noise)| value + 0.02 * noise).collect::<Vec<_>>();
        (path, TensorData::new(values, shape))
    });
    let moved: BTreeMap<_, _> = moved.collect();
    let network = network.with_values(&moved);
    for mode in [Mode::Train, Mode::Evaluate] {
        for part in [None, Some(Part::Shared), Some(Part::Personal)] {
            if part.is_some_and(|part| graph.parameters.iter().all(|parameter| parameter.part != part)) {
                continue;
            }
            let expected = by_burn(&training_only(network.clone(), part), batch, &device, mode);
            let found = by_plan(&graph, &network, batch, mode, part);
            let what = format!("{config} {mode:?} {part:?}");
            let apart = distance(&expected.logits, &found.logits) / length(&expected.logits);
            assert!(apart < tolerance, "{what}: logits {apart}");
            let scale = expected.gradients.values().map(|gradient| length(gradient)).fold(0.0, f64::max);
            for (path, found) in &found.gradients {
                let expected = &expected.gradients[path];
                let apart = distance(expected, found) / length(expected).max(1e-3 * scale);
                assert!(apart < tolerance, "{what}: gradient of {path} {apart}");
            }
            for (name, expected) in &expected.statistics {
                let apart = distance(expected, &found.statistics[name]) / length(expected).max(1e-6);
                assert!(apart < tolerance, "{what}: {name} {apart}");
            }
        }
    }
}

fn images(batch: usize, [height, width, channels]: [usize; 3]) -> Batch {
    Batch::Images(numbers(batch * height * width * channels, 3), [batch, height, width, channels])
}

fn text(batch: usize, length: usize, vocabulary: i32) -> Batch {
    let symbols = numbers(batch * length, 9).into_iter().enumerate().map(|(at, value)| {
        // Some sequences end in padding.
        if at / length == 1 && at % length > length / 2 { 0 } else { 1 + ((value + 1.0) * 1000.0) as i32 % (vocabulary - 1) }
    });
    Batch::Text(symbols.collect(), [batch, length])
}

#[test]
fn dense_networks_agree() {
    agrees("linear", &Task::image(8, 8, 1, 10), &images(5, [8, 8, 1]));
    agrees("mlp", &Task::image(8, 8, 1, 10), &images(5, [8, 8, 1]));
    agrees("mlp", &Task::vector(20, 3), &Batch::Vectors(numbers(60, 3), [3, 20]));
}

#[test]
fn residual_networks_agree() {
    agrees("resnet-xs", &Task::image(8, 8, 1, 10), &images(5, [8, 8, 1]));
    agrees("resnet-20", &Task::image(28, 28, 1, 62), &images(3, [28, 28, 1]));
    agrees("resnet-14", &Task::image(32, 32, 3, 10), &images(2, [32, 32, 3]));
    let groups: ModelConfig =
        serde_json::from_str(r#"{ "name": "resnet-14", "norm": "group", "activation": "softplus" }"#).unwrap();
    config_agrees(&groups, &Task::image(13, 9, 3, 10), &images(2, [13, 9, 3]), 1e-4);
}

#[test]
fn transformers_agree() {
    agrees("transformer-4", &Task::next_symbol(20, 30), &text(3, 20, 30));
    agrees("transformer-4", &Task::next_symbol(20, 30), &text(3, 11, 30));
}

fn with_adjoint(name: &str, adjoint: &str) -> ModelConfig {
    let stop = r#"{ "relative": 1e-6, "max_steps": 200 }"#;
    let equilibrium = format!(r#"{{ "stop": {stop}, "adjoint": {adjoint} }}"#);
    serde_json::from_str(&format!(r#"{{ "name": "{name}", "equilibrium": {equilibrium} }}"#)).unwrap()
}

const ADJOINTS: [&str; 3] = [
    r#""jacobian-free""#,
    r#"{ "phantom": { "steps": 3, "damping": 0.3 } }"#,
    r#"{ "implicit": { "stop": { "relative": 1e-6, "max_steps": 200 } } }"#,
];

#[test]
fn residual_equilibria_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        let config = with_adjoint("deq-resnet-xs", adjoint);
        config_agrees(&config, &Task::image(8, 8, 1, 10), &images(5, [8, 8, 1]), 1e-3);
    }
    agrees("deq-resnet-s", &Task::image(28, 28, 1, 62), &images(2, [28, 28, 1]));
}

#[test]
fn dense_equilibria_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        config_agrees(&with_adjoint("deq-mlp", adjoint), &Task::image(8, 8, 1, 10), &images(5, [8, 8, 1]), 1e-3);
    }
}

#[test]
fn equilibria_of_sequences_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        config_agrees(&with_adjoint("deq-transformer", adjoint), &Task::next_symbol(20, 30), &text(3, 20, 30), 1e-3);
    }
}
