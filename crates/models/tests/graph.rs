//! Networks as data: what they say of themselves, and what is refused.
use std::collections::BTreeSet;

use fedeq_equilibrium::{Equilibrium, Stop};
use fedeq_models::graph::{Ends, Fusion, Graph, Layer, ValueId};
use fedeq_models::{Activation, ModelConfig, NormKind, Part, Task, is_normalisation};

fn tasks(name: &str) -> Vec<Task> {
    match name {
        "linear" | "mlp" | "deq-mlp" => vec![Task::vector(6, 3), Task::image(5, 4, 3, 7)],
        name if name.contains("transformer") => vec![Task::next_symbol(5, 9), Task::next_symbol(16, 90)],
        _ => vec![Task::image(8, 8, 1, 10), Task::image(7, 5, 1, 3), Task::image(32, 32, 3, 10), Task::image(32, 32, 3, 100)],
    }
}

fn graph(name: &str, task: &Task) -> Graph {
    name.parse::<ModelConfig>().expect("a known name").graph(task).expect("a fitting task")
}

#[test]
fn every_network_is_sound_and_names_every_parameter_once() {
    for name in ModelConfig::NAMES {
        for task in tasks(name) {
            let graph = graph(name, &task);
            graph.validate().expect("a sound network");
            let paths: BTreeSet<&str> = graph.parameters.iter().map(|parameter| parameter.path.as_str()).collect();
            assert_eq!(paths.len(), graph.parameters.len(), "{name}, {task}");
            assert!(graph.parameters.iter().all(|parameter| Part::of(&parameter.path) == parameter.part), "{name}, {task}");
        }
    }
}

/// What other programs read, see docs/pytorch.md.
#[test]
fn a_network_as_json_has_the_form_that_is_documented() {
    let config: ModelConfig =
        serde_json::from_str(r#"{ "name": "deq-mlp", "hidden": 4, "dense": 2, "norm": "batch" }"#).expect("sound");
    let graph = config.graph(&Task::vector(6, 3)).expect("a fitting task");
    let affine = serde_json::json!({ "scale": 2, "offset": 3 });
    let expected = serde_json::json!({
        "task": { "input": { "kind": "vector", "width": 6 }, "classes": 3 },
        "values": [{ "vector": 6 }, { "vector": 4 }, { "vector": 4 }, { "vector": 4 }, { "vector": 2 }, { "vector": 3 }],
        "statistics": [{ "path": "norm", "channels": 4 }],
        "layers": [
            { "kind": "dense", "x": 0, "weight": 0, "bias": null, "activation": null, "y": 1 },
            {
                "kind": "equilibrium", "injection": 1, "cell": { "kind": "dense", "weight": 1, "activation": "relu" },
                "settings": serde_json::to_value(Equilibrium::default()).expect("plain data"), "y": 2
            },
            { "kind": "norm", "x": 2, "affine": affine, "over": { "batch": { "statistics": 0 } }, "fusion": "none", "y": 3 },
            { "kind": "dense", "x": 3, "weight": 4, "bias": 5, "activation": "relu", "y": 4 },
            { "kind": "dense", "x": 4, "weight": 6, "bias": 7, "activation": null, "y": 5 },
        ],
        "logits": 5,
        "embedding": 4,
    });
    let mut found = serde_json::to_value(&graph).expect("plain data");
    let parameters = found.as_object_mut().and_then(|fields| fields.remove("parameters")).expect("parameters");
    assert_eq!(found, expected);
    assert_eq!(parameters[7], serde_json::json!({ "path": "head.bias", "shape": [3], "part": "personal", "init": "zeros" }));
}

#[test]
fn every_network_can_be_written_as_json() {
    for name in ModelConfig::NAMES {
        let written = serde_json::to_value(graph(name, &tasks(name)[0])).expect("plain data");
        assert!(
            written["layers"].as_array().is_some_and(|layers| layers.iter().all(|layer| layer["kind"].is_string())),
            "{name}"
        );
    }
}

#[test]
fn normalisations_are_told_by_their_paths() {
    for name in ModelConfig::NAMES {
        for parameter in graph(name, &tasks(name)[0]).parameters {
            // Scales and offsets are made for normalisations alone.
            let (_, last) = parameter.path.rsplit_once('.').expect("a layer and its parameter");
            assert_eq!(parameter.normalises, ["scale", "offset"].contains(&last), "{name}: {}", parameter.path);
            assert_eq!(is_normalisation(&parameter.path), parameter.normalises, "{name}: {}", parameter.path);
        }
    }
}

#[test]
fn a_name_that_tells_a_lie_about_normalisations_is_refused() {
    let build = |affine: &str, dense: &str| {
        Graph::build(&Task::vector(6, 3), |net| {
            let x = net.input();
            let h = net.dense(dense, x, 8, None);
            let h = net.norm(affine, h, NormKind::Batch, Fusion::None);
            Ends { logits: net.personal_dense(h), embedding: h }
        })
    };
    assert!(build("norm", "dense").is_ok());
    for (affine, dense, wrong) in [("scaling", "dense", "`scaling.scale`"), ("norm", "normal", "`normal.weight`")] {
        let error = build(affine, dense).expect_err("its names would mislead FedBN").to_string();
        assert!(error.contains(wrong), "{error}");
    }
}

#[test]
fn personal_parameters_are_those_under_head() {
    let personal = |name: &str| -> Vec<String> {
        graph(name, &tasks(name)[0]).parameters_of(Part::Personal).map(|parameter| parameter.path.clone()).collect()
    };
    for name in ["mlp", "deq-mlp", "deq-resnet-xs", "resnet-xs", "resnet-14", "tied-resnet-xs", "untied-resnet-xs"] {
        assert_eq!(personal(name), ["head.weight", "head.bias"], "{name}");
    }
    assert_eq!(personal("linear"), [""; 0]);
    for name in ["transformer-4", "deq-transformer"] {
        let paths = personal(name);
        assert_eq!(paths.len(), 2 + 8 + 2 + 4 + 2 + 2, "{name}");
        assert_eq!(paths[paths.len() - 2..], ["head.output.weight", "head.output.bias"], "{name}");
    }
}

#[test]
fn a_seed_means_the_same_numbers_on_any_number_of_threads() {
    for name in ["deq-resnet-xs", "resnet-xs", "deq-mlp", "deq-transformer"] {
        let graph = graph(name, &tasks(name)[0]);
        let expected = graph.initial_values(7);
        std::thread::scope(|scope| {
            let others: Vec<_> = (0..4).map(|_| scope.spawn(|| graph.initial_values(7))).collect();
            others.into_iter().for_each(|other| assert!(other.join().expect("drawn") == expected, "{name}"));
        });
        assert!(graph.initial_values(8) != expected, "{name}");
    }
}

#[test]
fn the_kinds_of_network_are_told_by_properties() {
    for name in ModelConfig::NAMES {
        let config: ModelConfig = name.parse().expect("a known name");
        let graph = graph(name, &tasks(name)[0]);
        assert_eq!(config.is_equilibrium(), graph.is_equilibrium(), "{name}");
        assert_eq!(config.equilibrium(), graph.equilibrium(), "{name}");
        assert_eq!(graph.is_equilibrium(), graph.state_size().is_some(), "{name}");
    }
    let matrix = |name: &str| graph(name, &tasks(name)[0]).projected_matrix().map(|matrix| matrix.path.clone());
    assert_eq!(matrix("deq-mlp").as_deref(), Some("cell.b.weight"));
    assert_eq!(matrix("deq-resnet-xs"), None);
    assert_eq!(matrix("mlp"), None);
}

#[test]
fn a_weight_tied_network_starts_with_the_numbers_of_the_equilibrium_it_is_compared_with() {
    let task = Task::image(8, 8, 1, 10);
    let [deq, tied] = ["deq-resnet-xs", "tied-resnet-xs"].map(|name| graph(name, &task));
    assert_eq!(deq.initial_values(7), tied.initial_values(7));
    assert_eq!(deq.initial_statistics(), tied.initial_statistics());
    assert!(matches!(tied.layers.iter().find(|layer| layer.parameters().len() == 8), Some(Layer::Repeat { times: 8, .. })));
}

#[test]
fn the_equilibrium_can_be_replaced() {
    let settings = Equilibrium { stop: Stop::relative(1e-3, 7), ..Equilibrium::default() };
    let task = Task::image(8, 8, 1, 10);
    assert_eq!(graph("deq-resnet-xs", &task).with_equilibrium(&settings).equilibrium(), Some(&settings));
    assert_eq!(graph("resnet-xs", &task).with_equilibrium(&settings), graph("resnet-xs", &task));
}

/// Why a network that is written down is refused.
fn refusal(task: Task, network: impl FnOnce(&mut fedeq_models::graph::Builder<'_>) -> Ends) -> String {
    Graph::build(&task, network).expect_err("must be refused").to_string()
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let image = Task::image(8, 8, 1, 10);
    let ends = |logits| Ends { logits, embedding: logits };
    let reading = refusal(Task::vector(4, 2), |net| {
        let x = net.input();
        let y = net.conv("conv", x, 4, 3, 1);
        ends(net.dense("output", y, 2, None))
    });
    assert_eq!(reading, "this is not a sound network: a layer for pictures reads `Vector(4)`");
    let groups = refusal(image, |net| {
        let x = net.input();
        let x = net.conv("conv", x, 12, 3, 1);
        let x = net.norm("norm", x, NormKind::Group, Fusion::After(Activation::Relu));
        ends(net.personal_dense(x))
    });
    assert_eq!(groups, "this is not a sound network: group normalisation cannot make 8 groups out of `12` channels");
    let classes = refusal(image, |net| {
        let x = net.input();
        ends(net.dense("output", x, 9, None))
    });
    assert_eq!(classes, "this is not a sound network: its logits are `Vector(9)` for 10 classes");
    let huge = refusal(image, |net| {
        let x = net.input();
        let h = net.dense("wide", x, 1 << 30, None);
        ends(net.personal_dense(h))
    });
    assert!(huge.starts_with("the network would have"), "{huge}");
}

#[test]
fn a_changed_graph_is_refused_where_it_no_longer_fits() {
    let sound = graph("resnet-xs", &Task::image(8, 8, 1, 10));
    let change = |change: &dyn Fn(&mut Graph)| {
        let mut graph = sound.clone();
        change(&mut graph);
        graph.validate().expect_err("must be refused").to_string()
    };
    change(&|graph| graph.parameters[0].shape[1] = 2);
    change(&|graph| graph.layers.swap(0, 1));
    change(&|graph| graph.values.truncate(3));
    change(&|graph| graph.statistics.clear());
    change(&|graph| graph.logits = ValueId(usize::MAX));
    change(&|graph| {
        let first = graph.layers[0].clone();
        graph.layers.push(first);
    });
    change(&|graph| {
        if let Layer::Conv { stride, .. } = &mut graph.layers[0] {
            *stride = 0;
        }
    });
}
