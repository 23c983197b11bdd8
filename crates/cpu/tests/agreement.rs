//! Every network, run by kernels on planned memory, against the same network run by automatic differentiation in double precision.
use std::collections::BTreeMap;
use std::sync::Arc;

use fedeq_cpu::{Context, Executor, Input, ParameterLayout, RunningMoments, Start};
use fedeq_equilibrium::{Adjoint, Equilibrium};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::{Predictions, cross_entropy_with_gradient};
use fedeq_models::Mode;
use fedeq_models::graph::{Cell, Graph, Layer, ParameterId, ValueId};
use fedeq_models::{ModelConfig, Part, Task};
use fedeq_reference::{FloatPrecision, Pass, Reference, Values, widened};

/// Numbers between -1 and 1 that look like chance.
fn numbers(count: usize, seed: usize) -> Vec<f32> {
    let mut state = seed as u64 * 2_654_435_761 + 12_345;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((state >> 40) as f32 / (1u64 << 23) as f32) - 1.0
    };
    (0..count).map(|_| next()).collect()
}

/// Inputs of a batch, and a class for every row of logits.
struct Batch {
    size: [usize; 2],
    numbers: Vec<f32>,
    symbols: Vec<i32>,
    targets: Vec<i32>,
}

impl Batch {
    /// Samples of different strengths: noise alone would be nearly the same to a network that takes the mean over an image, and a normalisation over samples that
    /// hardly differ is nothing but rounding.
    fn of_numbers(samples: usize, each: usize, classes: usize) -> Self {
        let targets = (0..samples).map(|sample| (sample * 7 % classes) as i32).collect();
        let strength = |at: usize| 0.5 + (at / each) as f32;
        let numbers = numbers(samples * each, 3).into_iter().enumerate().map(|(at, number)| strength(at) * number).collect();
        Self { size: [samples, 1], numbers, symbols: Vec::new(), targets }
    }

    /// Text whose second sequence ends in padding.
    fn of_text(samples: usize, length: usize, vocabulary: i32) -> Self {
        let symbol = |(at, value): (usize, f32)| {
            let padded = at / length == 1 && at % length > length / 2;
            if padded { 0 } else { 1 + ((value + 1.0) * 1000.0) as i32 % (vocabulary - 1) }
        };
        let symbols: Vec<i32> = numbers(samples * length, 9).into_iter().enumerate().map(symbol).collect();
        let targets = symbols.iter().map(|symbol| (symbol * 5 + 1) % vocabulary).collect();
        Self { size: [samples, length], numbers: Vec::new(), symbols, targets }
    }

    fn input(&self) -> Input<'_> {
        if self.symbols.is_empty() { Input::Numbers(&self.numbers) } else { Input::Symbols(&self.symbols) }
    }

    fn for_reference(&self) -> fedeq_reference::InputValues {
        let numbers = self.numbers.iter().map(|&number| f64::from(number));
        let values = numbers.chain(self.symbols.iter().map(|&symbol| f64::from(symbol))).collect();
        fedeq_reference::InputValues { samples: self.size[0], values }
    }
}

/// What a pass gave.
struct Passed {
    loss: f64,
    logits: Vec<f64>,
    embedding: Option<Vec<f64>>,
    gradients: Values,
    statistics: Values,
}

fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| value.into()).collect()
}

fn by_reference(
    graph: &Graph,
    precision: FloatPrecision,
    values: &BTreeMap<String, Vec<f32>>,
    batch: &Batch,
    mode: Mode,
) -> Passed {
    let (values, statistics, input) = (widened(values), widened(&graph.initial_statistics()), batch.for_reference());
    let pass = if mode == Mode::Train { Pass::train(11) } else { Pass::evaluate() };
    let reference = Reference::new(graph, precision);
    let outputs = reference.forward(&values, &statistics, &input, &pass);
    let wanted = graph.equilibrium().is_some_and(|settings| settings.stop.relative > 0.0);
    let solved = !wanted || outputs.report.as_ref().is_none_or(|report| report.all_converged());
    assert!(solved, "a solve that does not end says nothing: {:?}", outputs.report);
    let (loss, gradients) = reference.gradient(&values, &statistics, &input, &pass, &batch.targets);
    Passed { loss, logits: outputs.logits, embedding: Some(outputs.embedding), gradients, statistics: outputs.statistics }
}

/// Two passes, of which the second must not care what the first left in memory.
/// The values of all parameters in the order of the graph.
fn arrays(graph: &Graph, values: &BTreeMap<String, Vec<f32>>) -> Vec<Arc<Vec<f32>>> {
    graph.parameters.iter().map(|parameter| Arc::new(values[&parameter.path].clone())).collect()
}

fn by_plan(
    graph: &Graph,
    values: &BTreeMap<String, Vec<f32>>,
    batch: &Batch,
    mode: Mode,
    wanted: impl Fn(Part) -> bool,
) -> Passed {
    let parameters = arrays(graph, values);
    let [samples, length] = batch.size;
    let mut executor = Executor::new(graph, samples, length, mode, |parameter| wanted(parameter.part));
    let first = one_pass(graph, &mut executor, &parameters, batch, mode);
    let second = one_pass(graph, &mut executor, &parameters, batch, mode);
    assert_eq!((first.loss, &first.logits, &first.gradients), (second.loss, &second.logits, &second.gradients));
    second
}

fn one_pass(graph: &Graph, executor: &mut Executor, parameters: &[Arc<Vec<f32>>], batch: &Batch, mode: Mode) -> Passed {
    let mut statistics: Vec<RunningMoments> =
        graph.statistics.iter().map(|running| RunningMoments::fresh(running.channels)).collect();
    let dropout = (mode == Mode::Train).then_some(11);
    let mut context = Context { parameters, statistics: &mut statistics, dropout, start: Start::Model };
    executor.forward(batch.input(), &mut context);
    let (logits, embedding) = (wide(executor.logits()), executor.embedding(batch.input()).map(wide));
    let ignored: Option<Vec<bool>> =
        (!batch.symbols.is_empty()).then(|| batch.symbols.iter().map(|&symbol| symbol == 0).collect());
    let loss = executor.differentiate(|logits, gradient| {
        let (classes, targets) = (graph.task.classes, &batch.targets);
        let predictions = Predictions { logits, classes, targets, ignored: ignored.as_deref() };
        cross_entropy_with_gradient(InstructionSet::best(), predictions, 1.0 / predictions.count() as f32, gradient)
    });
    let mut gradients = vec![f32::NAN; executor.trained().len()];
    executor.backward(batch.input(), &mut context, &mut gradients);
    let layout: &ParameterLayout = executor.trained();
    let named = graph.parameters.iter().enumerate().filter(|(index, _)| layout.has(ParameterId(*index)));
    let named = named.map(|(index, parameter)| (parameter.path.clone(), wide(&gradients[layout.range(ParameterId(index))])));
    let running = graph.statistics.iter().zip(&statistics).flat_map(|(layer, running)| {
        let RunningMoments { moments, steps } = running;
        layer.names().into_iter().zip([wide(&moments.mean), wide(&moments.variance), vec![f64::from(*steps)]])
    });
    let loss = loss.map_or(f64::NAN, |loss| loss.sum / loss.count as f64);
    Passed { loss, logits, embedding, gradients: named.collect(), statistics: running.collect() }
}

/// `||a - b|| / ||a||`, with lengths below `least` counted as that.
fn apart(a: &[f64], b: &[f64], least: f64) -> f64 {
    let length = |values: &mut dyn Iterator<Item = f64>| values.map(|value| value * value).sum::<f64>().sqrt();
    assert_eq!(a.len(), b.len());
    length(&mut a.iter().zip(b).map(|(a, b)| a - b)) / length(&mut a.iter().copied()).max(least)
}

/// Some parameters start at zero or one; nothing may hide there.
fn moved(graph: &Graph, by: f32) -> BTreeMap<String, Vec<f32>> {
    let mut values = graph.initial_values(7);
    for (index, values) in values.values_mut().enumerate() {
        let noise = numbers(values.len(), 100 + index);
        values.iter_mut().zip(noise).for_each(|(value, noise)| *value += by * noise);
    }
    values
}

/// Everything that a pass gives is as close to double precision as the tolerance says, or as ten times what automatic differentiation in single precision
/// is away from it: through many layers, or the steps of a solver, rounding grows whoever rounds.
fn agrees(config: &ModelConfig, task: &Task, batch: &Batch, noise: f32, tolerance: f64) {
    graph_agrees(config.name(), &config.graph(task).unwrap(), batch, noise, tolerance);
}

fn graph_agrees(config: &str, graph: &Graph, batch: &Batch, noise: f32, tolerance: f64) {
    let values = moved(graph, noise);
    for mode in [Mode::Train, Mode::Evaluate] {
        let [expected, rounded] = [FloatPrecision::Double, FloatPrecision::Single]
            .map(|precision| by_reference(graph, precision, &values, batch, mode));
        let largest =
            expected.gradients.values().map(|gradient| apart(gradient, &vec![0.0; gradient.len()], 1.0)).fold(0.0, f64::max);
        let largest = largest.max(1e-3);
        for part in [None, Some(Part::Shared), Some(Part::Personal)] {
            let wanted = |each: Part| part.is_none_or(|part| each == part);
            // Where only the head is trained, nothing is differentiated through the fixed point, and no phantom steps are taken.
            let steps_differ = part == Some(Part::Personal) && unsolved_phantom(graph);
            if steps_differ || !graph.parameters.iter().any(|parameter| wanted(parameter.part)) {
                continue;
            }
            let found = by_plan(graph, &values, batch, mode, wanted);
            let close = |what: &str, [exact, rounded, found]: [&[f64]; 3], least: f64| {
                let (found, rounded) = (apart(exact, found, least), apart(exact, rounded, least));
                assert!(found < tolerance + 10.0 * rounded, "{config} {mode:?} {part:?} {what}: {found}, burn {rounded}");
            };
            // Phantom steps move what a solve of few steps has found, and a pass of the reference without gradients leaves them out.
            if !unsolved_phantom(graph) {
                close("logits", [&expected.logits, &rounded.logits, &found.logits], 1e-3);
            }
            close("loss", [&[expected.loss], &[rounded.loss], &[found.loss]], 1e-3);
            for (path, gradient) in &found.gradients {
                close(path, [&expected.gradients[path], &rounded.gradients[path], gradient], 1e-2 * largest);
            }
            for (name, statistic) in found.statistics.iter().filter(|_| !unsolved_phantom(graph)) {
                close(name, [&expected.statistics[name], &rounded.statistics[name], statistic], 1e-6);
            }
        }
        let used = by_use(graph, &values, batch);
        if mode == Mode::Evaluate {
            let embedding = |passed: &Passed| passed.embedding.clone().unwrap();
            for (what, exact, rounded, found) in [
                ("logits", expected.logits.clone(), rounded.logits.clone(), used.logits.clone()),
                ("embedding", embedding(&expected), embedding(&rounded), embedding(&used)),
            ] {
                let (found, rounded) = (apart(&exact, &found, 1e-3), apart(&exact, &rounded, 1e-3));
                assert!(found < tolerance + 10.0 * rounded, "{config} without gradients, {what}: {found}, burn {rounded}");
            }
        }
    }
}

fn unsolved_phantom(graph: &Graph) -> bool {
    let unsolved = |settings: &Equilibrium| settings.stop.relative == 0.0 && matches!(settings.adjoint, Adjoint::Phantom { .. });
    graph.equilibrium().is_some_and(unsolved)
}

/// A pass of a plan without gradients.
fn by_use(graph: &Graph, values: &BTreeMap<String, Vec<f32>>, batch: &Batch) -> Passed {
    let parameters = arrays(graph, values);
    let mut executor = Executor::new(graph, batch.size[0], batch.size[1], Mode::Evaluate, |_| false);
    one_pass(graph, &mut executor, &parameters, batch, Mode::Evaluate)
}

fn named(name: &str) -> ModelConfig {
    name.parse().unwrap()
}

#[test]
fn dense_networks_agree() {
    agrees(&named("linear"), &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.02, 1e-4);
    agrees(&named("mlp"), &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.02, 1e-4);
    agrees(&named("mlp"), &Task::vector(20, 3), &Batch::of_numbers(3, 20, 3), 0.02, 1e-4);
}

#[test]
fn residual_networks_agree() {
    agrees(&named("resnet-xs"), &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.02, 1e-4);
    agrees(&named("resnet-20"), &Task::image(28, 28, 1, 62), &Batch::of_numbers(3, 784, 62), 0.01, 1e-4);
    agrees(&named("resnet-14"), &Task::image(32, 32, 3, 10), &Batch::of_numbers(2, 3072, 10), 0.01, 1e-4);
    let groups: ModelConfig =
        serde_json::from_str(r#"{ "name": "resnet-14", "norm": "group", "activation": "softplus" }"#).unwrap();
    agrees(&groups, &Task::image(13, 9, 3, 10), &Batch::of_numbers(2, 13 * 9 * 3, 10), 0.01, 1e-3);
}

#[test]
fn transformers_agree() {
    agrees(&named("transformer-4"), &Task::next_symbol(20, 30), &Batch::of_text(3, 20, 30), 0.02, 1e-4);
    agrees(&named("transformer-4"), &Task::next_symbol(20, 30), &Batch::of_text(3, 11, 30), 0.02, 1e-4);
}

/// The network with fixed points as precise as 32 bits allow.
fn with_adjoint(name: &str, adjoint: &str) -> ModelConfig {
    let equilibrium = format!(r#"{{ "stop": {{ "relative": 3e-6, "max_steps": 300 }}, "adjoint": {adjoint} }}"#);
    serde_json::from_str(&format!(r#"{{ "name": "{name}", "equilibrium": {equilibrium} }}"#)).unwrap()
}

const ADJOINTS: [&str; 3] = [
    r#""jacobian-free""#,
    r#"{ "phantom": { "steps": 3, "damping": 0.3 } }"#,
    r#"{ "implicit": { "stop": { "relative": 3e-6, "max_steps": 300 } } }"#,
];

/// A few steps of the solver, the same ones on both sides: whether a residual cell contracts depends on the input.
#[test]
fn residual_equilibria_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        let equilibrium = format!(r#"{{ "stop": {{ "relative": 0.0, "max_steps": 4 }}, "adjoint": {adjoint} }}"#);
        let equilibrium = equilibrium.replace(r#""relative": 3e-6, "max_steps": 300"#, r#""relative": 0.0, "max_steps": 4"#);
        let config = format!(r#"{{ "name": "deq-resnet-xs", "equilibrium": {equilibrium} }}"#);
        let config: ModelConfig = serde_json::from_str(&config).unwrap();
        agrees(&config, &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.003, 1e-3);
    }
}

/// The cell applied a fixed number of times, and blocks in its place.
#[test]
fn the_explicit_counterparts_of_deq_resnet_agree() {
    for json in [
        r#"{ "name": "tied-resnet-xs" }"#,
        r#"{ "name": "tied-resnet-xs", "steps": 1, "cell_norm": "row-wise", "activation": "relu" }"#,
        r#"{ "name": "tied-resnet-xs", "steps": 3, "pooling": "mean" }"#,
        r#"{ "name": "untied-resnet-xs" }"#,
        r#"{ "name": "untied-resnet-xs", "blocks": 1, "pooling": "mean" }"#,
        r#"{ "name": "deq-resnet-xs", "pooling": "mean", "equilibrium": { "stop": { "relative": 0.0, "max_steps": 4 } } }"#,
    ] {
        let config: ModelConfig = serde_json::from_str(json).unwrap();
        agrees(&config, &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.003, 1e-3);
    }
}

/// Steps of any cell, of which that of sequences starts at zero.
#[test]
fn any_cell_can_be_repeated() {
    for (name, task, batch) in [
        ("deq-mlp", Task::image(8, 8, 1, 10), Batch::of_numbers(5, 64, 10)),
        ("deq-transformer", Task::next_symbol(12, 20), Batch::of_text(3, 12, 20)),
    ] {
        let mut graph = named(name).graph(&task).unwrap();
        for layer in &mut graph.layers {
            if let Layer::Equilibrium { injection, cell, y, .. } = layer {
                *layer = Layer::Repeat { injection: *injection, cell: cell.clone(), times: 3, y: *y };
            }
        }
        graph.validate().unwrap();
        graph_agrees(&format!("{name}, repeated"), &graph, &batch, 0.003, 1e-3);
    }
}

#[test]
fn dense_equilibria_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        agrees(&with_adjoint("deq-mlp", adjoint), &Task::image(8, 8, 1, 10), &Batch::of_numbers(5, 64, 10), 0.0, 1e-3);
    }
}

#[test]
fn equilibria_of_sequences_agree_by_every_adjoint() {
    for adjoint in ADJOINTS {
        let config = with_adjoint("deq-transformer", adjoint);
        agrees(&config, &Task::next_symbol(20, 30), &Batch::of_text(3, 20, 30), 0.003, 1e-3);
    }
}

/// Every choice of the networks for text: `equilibrium` stands in for how the fixed point is found.
const CHOICES_OF_TEXT: [&str; 5] = [
    r#"{ "name": "deq-transformer", "injection": 8.0, "equilibrium": E }"#,
    r#"{ "name": "deq-transformer", "injection_norm": true, "injection": 0.5, "layers": 2, "equilibrium": E }"#,
    r#"{ "name": "deq-transformer", "layers": 1, "state_scale": 16.0, "personal": "output", "equilibrium": E }"#,
    r#"{ "name": "deq-transformer", "layers": 3, "tied": true, "injection": 8.0, "equilibrium": E }"#,
    r#"{ "name": "transformer-4", "personal": "output" }"#,
];

/// A few steps of the solver, the same ones on both sides, differentiated in every way.
#[test]
fn every_choice_of_networks_for_text_agrees() {
    for (json, adjoint) in CHOICES_OF_TEXT.into_iter().zip(ADJOINTS.into_iter().cycle()) {
        let few = r#""relative": 0.0, "max_steps": 4"#;
        let equilibrium = format!(r#"{{ "stop": {{ {few} }}, "adjoint": {adjoint} }}"#);
        let equilibrium = equilibrium.replace(r#""relative": 3e-6, "max_steps": 300"#, few);
        let config: ModelConfig = serde_json::from_str(&json.replace('E', &equilibrium)).unwrap();
        agrees(&config, &Task::next_symbol(12, 20), &Batch::of_text(3, 12, 20), 0.003, 1e-3);
    }
}

/// The network with the layers of its cell and their normalisation, once, in place of its equilibrium.
fn unrolled(mut graph: Graph) -> Graph {
    let at = graph.layers.iter().position(|layer| matches!(layer, Layer::Equilibrium { .. })).unwrap();
    let Layer::Equilibrium { injection, cell: Cell::Transformer { layers, norm }, y, .. } = graph.layers.remove(at) else {
        panic!("a network for text");
    };
    let h = ValueId(graph.values.len());
    graph.values.push(graph.values[y.0]);
    let stack = Layer::Transformer { h: None, injection, layers, y: h };
    graph.layers.splice(at..at, [stack, Layer::LayerNorm { x: h, affine: norm, y }]);
    graph
}

/// Tied layers add up their gradients also outside of an equilibrium, and in an implicit gradient.
#[test]
fn tied_layers_agree() {
    let json = r#"{ "name": "deq-transformer", "layers": 3, "tied": true }"#;
    let tied = serde_json::from_str::<ModelConfig>(json).unwrap().graph(&Task::next_symbol(12, 20)).unwrap();
    let batch = Batch::of_text(3, 12, 20);
    let implicit: Equilibrium = serde_json::from_str(
        r#"{ "stop": { "relative": 0.0, "max_steps": 4 }, "adjoint": { "implicit": { "stop": { "relative": 0.0, "max_steps": 4 } } } }"#,
    )
    .unwrap();
    graph_agrees("tied, implicit", &tied.clone().with_equilibrium(&implicit), &batch, 0.003, 1e-3);
    let explicit = unrolled(tied);
    explicit.validate().unwrap();
    graph_agrees("tied, explicit", &explicit, &batch, 0.003, 1e-3);
}

/// Training by automatic differentiation: the loss before each of some steps.
fn losses_by_reference(graph: &Graph, precision: FloatPrecision, batch: &Batch, rate: f64, steps: usize) -> Vec<f64> {
    let (mut values, statistics) = (widened(&moved(graph, 0.0)), widened(&graph.initial_statistics()));
    let (reference, input) = (Reference::new(graph, precision), batch.for_reference());
    let mut step = |_| {
        let (loss, gradient) = reference.gradient(&values, &statistics, &input, &Pass::train(11), &batch.targets);
        for (path, gradient) in gradient {
            let values = values.get_mut(&path).unwrap();
            values.iter_mut().zip(gradient).for_each(|(value, gradient)| *value -= rate * gradient);
        }
        loss
    };
    (0..steps).map(&mut step).collect()
}

/// Losses of gradient steps on the same batch are as close to those in double precision as single precision allows: rounding errors grow
/// from step to step, those of automatic differentiation in single precision too.
fn steps_agree(config: &ModelConfig, task: &Task, batch: &Batch, rate: f32) {
    let graph = config.graph(task).unwrap();
    let [exact, rounded] = [FloatPrecision::Double, FloatPrecision::Single]
        .map(|precision| losses_by_reference(&graph, precision, batch, rate.into(), 4));
    let values = moved(&graph, 0.0);
    let mut parameters = arrays(&graph, &values);
    let mut executor = Executor::new(&graph, batch.size[0], batch.size[1], Mode::Train, |_| true);
    for (step, (exact, rounded)) in exact.into_iter().zip(rounded).enumerate() {
        let found = one_pass(&graph, &mut executor, &parameters, batch, Mode::Train);
        let allowed = 1e-3 * exact + 10.0 * (rounded - exact).abs();
        assert!((found.loss - exact).abs() < allowed, "{config} step {step}: {} instead of {exact} ({rounded})", found.loss);
        for (parameter, values) in graph.parameters.iter().zip(&mut parameters) {
            let gradients = &found.gradients[&parameter.path];
            Arc::make_mut(values).iter_mut().zip(gradients).for_each(|(value, gradient)| *value -= rate * *gradient as f32);
        }
    }
}

#[test]
fn training_follows_the_reference_for_several_steps() {
    let digits = Batch::of_numbers(10, 64, 10);
    let task = Task::image(8, 8, 1, 10);
    for name in ["resnet-xs", "deq-resnet-xs", "deq-mlp", "tied-resnet-xs", "untied-resnet-xs"] {
        steps_agree(&named(name), &task, &digits, 0.01);
    }
    // By groups: in a deep network on few samples, statistics of the batch let rounding grow from step to step until nothing is compared but that.
    let groups: ModelConfig = serde_json::from_str(r#"{ "name": "resnet-14", "norm": "group" }"#).unwrap();
    steps_agree(&groups, &task, &digits, 0.01);
    steps_agree(&named("deq-transformer"), &Task::next_symbol(12, 20), &Batch::of_text(3, 12, 20), 0.05);
}
