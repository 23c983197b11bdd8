//! Networks of images and vectors, without equilibria.
use fedeq_core::Trains;
use fedeq_models::Mode;
use fedeq_models::graph::{Ends, Fusion, Graph, Layer, NormScope};
use fedeq_models::{Activation, Architecture, MlpOptions, ModelConfig, NormKind, Part, ResNetDepth, ResNetOptions, Task};

use super::{Allowed, Case, Checks};
use crate::plan::Precision;

/// Sums in another order, and factors in 16 bits, which have 11 digits.
///
/// Where relu's argument is nearly zero, one side may turn a unit on that the other turns off: one of the 4,000 units that a sample has in the smallest of these layers
/// is a fiftieth of a gradient's norm, and 16 bits turn several.
fn allowed(precision: Precision, phi: Activation) -> Allowed {
    let (values, gradients) = match (precision, phi) {
        (Precision::Exact, Activation::Softplus) => (2e-5, 3e-4),
        (Precision::Exact, Activation::Relu) => (2e-5, 2e-2),
        (Precision::Mixed, Activation::Softplus) => (2e-3, 1e-2),
        (Precision::Mixed, Activation::Relu) => (2e-3, 1e-1),
    };
    Allowed { values, gradients }
}

/// A network in training and in evaluation, in both precisions.
fn both(checks: &mut Checks, name: &str, graph: &Graph, phi: Activation, sizes: &[usize]) {
    for precision in [Precision::Exact, Precision::Mixed] {
        for (mode, trains) in [(Mode::Train, Some(Trains::Everything)), (Mode::Evaluate, None)] {
            checks.run(Case { name, graph, sizes, mode, precision, trains }, allowed(precision, phi));
        }
    }
}

fn residual(depth: ResNetDepth, task: Task, norm: NormKind, activation: Activation) -> Graph {
    ResNetOptions { norm, activation, family: None }.graph(&task, depth).expect("a network")
}

const CIFAR: Task = Task { input: fedeq_models::InputShape::Image { height: 32, width: 32, channels: 3 }, classes: 10 };
const FEMNIST: Task = Task { input: fedeq_models::InputShape::Image { height: 28, width: 28, channels: 1 }, classes: 62 };
const DIGITS: Task = Task { input: fedeq_models::InputShape::Image { height: 8, width: 8, channels: 1 }, classes: 10 };

#[test]
#[ignore = "needs a GPU"]
fn dense_networks_agree_with_the_cpu() {
    let mut checks = Checks::new();
    for (name, task) in [("mlp of images", DIGITS), ("mlp of vectors", Task::vector(61, 7)), ("mlp of CIFAR", CIFAR)] {
        let options = MlpOptions { hidden: vec![130, 33], activation: Activation::Softplus, last_layer: Part::Personal };
        both(&mut checks, name, &options.graph(&task, ()).expect("a network"), Activation::Softplus, &[5, 1, 8, 0]);
    }
    let linear = "linear".parse::<ModelConfig>().and_then(|config| config.graph(&DIGITS)).expect("a network");
    both(&mut checks, "linear", &linear, Activation::Softplus, &[3]);
    checks.finish();
}

/// From none to more than a batch of most experiments, in no order.
#[test]
#[ignore = "needs a GPU"]
fn a_hundred_clients_of_different_sizes_agree_with_the_cpu_however_they_are_packed() {
    let sizes: Vec<usize> = (0..100).map(|lane| lane * 7 % 18).collect();
    assert!((0..18).all(|size| sizes.contains(&size)));
    let options = MlpOptions { hidden: vec![33], activation: Activation::Softplus, last_layer: Part::Personal };
    let graph = options.graph(&DIGITS, ()).expect("a network");
    let mut checks = Checks::new();
    both(&mut checks, "mlp of a hundred", &graph, Activation::Softplus, &sizes);
    for precision in [Precision::Exact, Precision::Mixed] {
        let (name, trains) = ("mlp of a hundred", Some(Trains::Everything));
        checks.packed_in_other_ways(Case { name, graph: &graph, sizes: &sizes, mode: Mode::Train, precision, trains });
    }
    checks.finish();
}

/// The same with convolutions and normalisations.
#[test]
#[ignore = "needs a GPU"]
fn clients_of_different_sizes_end_in_the_same_bits_however_they_are_packed() {
    let sizes: Vec<usize> = (0..9).map(|lane| lane * 7 % 18).collect();
    let mut checks = Checks::new();
    for norm in [NormKind::Batch, NormKind::Group] {
        let graph = residual(ResNetDepth::Xs, DIGITS, norm, Activation::Relu);
        for precision in [Precision::Exact, Precision::Mixed] {
            let (name, trains) = ("resnet-xs of nine", Some(Trains::Everything));
            checks.packed_in_other_ways(Case { name, graph: &graph, sizes: &sizes, mode: Mode::Train, precision, trains });
        }
    }
    checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn small_residual_networks_agree_with_the_cpu() {
    let mut checks = Checks::new();
    for norm in [NormKind::Batch, NormKind::Group] {
        for activation in [Activation::Relu, Activation::Softplus] {
            let graph = residual(ResNetDepth::Xs, DIGITS, norm, activation);
            let name = format!("resnet-xs {norm:?} {activation:?}");
            both(&mut checks, &name, &graph, activation, &[5, 1, 8, 0]);
            both(&mut checks, &name, &graph, activation, &[7]);
        }
    }
    let graph = residual(ResNetDepth::Xs, DIGITS, NormKind::Batch, Activation::Softplus);
    for precision in [Precision::Exact, Precision::Mixed] {
        let allowed = allowed(precision, Activation::Softplus);
        for trains in [Trains::Shared, Trains::Personal] {
            let name = "resnet-xs, a part of it";
            checks.run(Case { name, graph: &graph, sizes: &[4, 6], mode: Mode::Train, precision, trains: Some(trains) }, allowed);
        }
        // Gradients of evaluation: nothing flows through statistics that are given.
        let (name, trains) = ("resnet-xs, given statistics", Some(Trains::Everything));
        checks.run(Case { name, graph: &graph, sizes: &[4, 0, 6], mode: Mode::Evaluate, precision, trains }, allowed);
    }
    checks.finish();
}

#[test]
#[ignore = "needs a GPU"]
fn layers_in_unusual_places_agree_with_the_cpu() {
    let graphs = [NormKind::Batch, NormKind::Group].map(unusual);
    let mut by_row = graphs[1].clone();
    for layer in &mut by_row.layers {
        if let Layer::Norm { over, .. } = layer {
            *over = NormScope::RowGroups(8);
        }
    }
    let mut checks = Checks::new();
    for (name, graph) in [("unusual, batch", &graphs[0]), ("unusual, groups", &graphs[1]), ("unusual, groups by row", &by_row)] {
        both(&mut checks, name, graph, Activation::Relu, &[5, 1, 8, 0]);
    }
    checks.finish();
}

/// Pooling, an activation in front of a norm that no convolution can take over, values that several layers read.
fn unusual(norm: NormKind) -> Graph {
    let graph = Graph::build(&Task::image(17, 15, 3, 5), |net| {
        let x = net.input();
        let x = net.conv("first", x, 16, 3, 1);
        let y = net.norm("in_front_norm", x, norm, Fusion::Before(Activation::Relu));
        let z = net.norm("behind_norm", x, norm, Fusion::After(Activation::Softplus));
        let s = net.norm("both_norm", y, norm, Fusion::AddThen(z, Activation::Softplus));
        let p = net.max_pool(s);
        let q = net.widen(z, 48);
        let w = net.conv("wider", p, 48, 1, 1);
        let h = net.norm("pooled_norm", w, norm, Fusion::AddThen(q, Activation::Relu));
        let p = net.max_pool(h);
        let h = net.norm("again_norm", p, norm, Fusion::After(Activation::Relu));
        let c = net.conv("second", h, 32, 1, 2);
        let c = net.norm("last_norm", c, norm, Fusion::Before(Activation::Softplus));
        let v = net.mean_pool(c);
        let d = net.dense("dense", v, 64, Some(Activation::Relu));
        let d = net.norm("vector_norm", d, norm, Fusion::None);
        Ends { logits: net.personal_dense(d), embedding: d }
    });
    graph.expect("a network")
}

#[test]
#[ignore = "needs a GPU"]
fn deep_residual_networks_agree_with_the_cpu() {
    use Activation::{Relu, Softplus};
    use NormKind::{Batch, Group};
    use ResNetDepth::{D14, D20, D34};
    let mut checks = Checks::new();
    for (depth, task, norm, activation, sizes) in [
        (D14, CIFAR, Batch, Relu, &[6, 3, 0][..]),
        (D14, CIFAR, Group, Relu, &[4, 2]),
        (D14, FEMNIST, Batch, Relu, &[5, 1, 8, 0]),
        (D14, FEMNIST, Group, Softplus, &[4, 2]),
        (D20, CIFAR, Batch, Softplus, &[4, 5]),
        (D20, FEMNIST, Batch, Softplus, &[5, 4]),
        (D34, CIFAR, Batch, Relu, &[5, 3]),
        (D34, FEMNIST, Batch, Relu, &[6, 4]),
        (D34, CIFAR, Group, Softplus, &[3]),
        (D14, DIGITS, Batch, Softplus, &[9, 4]),
    ] {
        let name = format!("resnet {depth:?} {} {norm:?} {activation:?}", task.input);
        both(&mut checks, &name, &residual(depth, task, norm, activation), activation, sizes);
    }
    checks.finish();
}
