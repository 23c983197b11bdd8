//! The parameter counts of the specification, every row of every table.
use fedeq_models::{ModelConfig, Part, Task};

fn counts(name: &str, task: &Task) -> [usize; 2] {
    let config: ModelConfig = name.parse().expect("a known name");
    let graph = config.graph(task).expect("a fitting task");
    [Part::Shared, Part::Personal].map(|part| graph.count(part))
}

fn group(name: &str, task: &Task, prefix: &str) -> usize {
    let config: ModelConfig = name.parse().expect("a known name");
    let graph = config.graph(task).expect("a fitting task");
    graph.parameters.iter().filter(|parameter| parameter.path.starts_with(prefix)).map(|parameter| parameter.count()).sum()
}

fn femnist() -> Task {
    Task::image(28, 28, 1, 62)
}

fn cifar(classes: usize) -> Task {
    Task::image(32, 32, 3, classes)
}

#[test]
fn deq_mlp_has_the_parameters_of_section_2_1() {
    assert_eq!(counts("deq-mlp", &femnist()), [729_216, 7_998]);
    assert_eq!(group("deq-mlp", &femnist(), "c."), 401_408);
    assert_eq!(group("deq-mlp", &femnist(), "cell."), 262_144);
    assert_eq!(group("deq-mlp", &femnist(), "dense."), 65_664);
    // For CIFAR the state is 1024 wide: 3,072 x 1,024 + 1,024 x 1,024 + 1,024 x 128 + 128.
    assert_eq!(counts("deq-mlp", &cifar(10)), [3_145_728 + 1_048_576 + 131_200, 1_290]);
}

#[test]
fn deq_resnets_have_the_parameters_of_section_2_2() {
    assert_eq!(counts("deq-resnet-s", &femnist()), [984_896, 7_998]);
    assert_eq!(counts("deq-resnet-m", &femnist()), [2_231_296, 7_998]);
    assert_eq!(counts("deq-resnet-s", &cifar(10)), [1_231_808, 1_290]);
    assert_eq!(counts("deq-resnet-m", &cifar(10)), [2_725_120, 1_290]);
    assert_eq!(counts("deq-resnet-s", &cifar(100)), [1_231_808, 12_900]);
    assert_eq!(counts("deq-resnet-m", &cifar(100)), [2_725_120, 12_900]);
}

#[test]
fn the_parts_of_deq_resnets_have_the_parameters_of_section_2_2() {
    let parts = ["stem.", "cell.", "dense.fc1.", "dense.fc2.", "dense.norm."];
    let of = |name, task: &Task| parts.map(|prefix| group(name, task, prefix));
    assert_eq!(of("deq-resnet-s", &femnist()), [704, 147_968, 803_072, 32_896, 256]);
    assert_eq!(of("deq-resnet-m", &femnist()), [1_408, 590_848, 1_605_888, 32_896, 256]);
    for classes in [10, 100] {
        assert_eq!(of("deq-resnet-s", &cifar(classes)), [1_856, 147_968, 1_048_832, 32_896, 256]);
        assert_eq!(of("deq-resnet-m", &cifar(classes)), [3_712, 590_848, 2_097_408, 32_896, 256]);
    }
}

#[test]
fn resnets_have_the_parameters_of_section_2_3() {
    let names = ["resnet-14", "resnet-20", "resnet-34"];
    let all = |task: &Task| names.map(|name| counts(name, task));
    assert_eq!(all(&femnist()), [1_694_176, 2_967_392, 5_126_880].map(|shared| [shared, 7_998]));
    assert_eq!(all(&cifar(10)), [2_832_320, 4_382_400, 7_777_984].map(|shared| [shared, 1_290]));
    assert_eq!(all(&cifar(100)), [3_939_008, 5_489_088, 10_876_608].map(|shared| [shared, 12_900]));
}

#[test]
fn transformers_have_the_parameters_of_section_2_4() {
    let names = ["deq-transformer", "transformer-4", "transformer-8", "transformer-12"];
    let all = |length| names.map(|name| counts(name, &Task::next_symbol(length, 90)));
    assert_eq!(all(16), [206_848, 156_736, 356_672, 556_608].map(|shared| [shared, 55_962]));
    assert_eq!(all(80), [210_944, 160_832, 360_768, 560_704].map(|shared| [shared, 55_962]));
}

#[test]
fn a_transformer_layer_has_49_984_parameters() {
    let task = Task::next_symbol(16, 90);
    assert_eq!(group("transformer-4", &task, "layers.0."), 49_984);
    assert_eq!(group("transformer-4", &task, "layers.0.attention."), 16_640);
    assert_eq!(group("transformer-4", &task, "layers.0.norm_"), 256);
    assert_eq!(group("deq-transformer", &task, "head.layer."), 49_984);
}

/// The paper calls the cell a Universal Transformer block: one layer, or tied ones. Then it shares 2.75 times less than Transformer-4; the four layers of the authors' code, more.
#[test]
fn one_layer_or_tied_ones_share_56_896_parameters() {
    let of = |choices: &str| {
        let config: ModelConfig =
            serde_json::from_str(&format!(r#"{{ "name": "deq-transformer"{choices} }}"#)).expect("well-formed");
        let graph = config.graph(&Task::next_symbol(16, 90)).expect("a fitting task");
        [Part::Shared, Part::Personal].map(|part| graph.count(part))
    };
    assert_eq!(of(""), [206_848, 55_962]);
    assert_eq!(of(r#", "layers": 1"#), [56_896, 55_962]);
    assert_eq!(of(r#", "layers": 4, "tied": true"#), [56_896, 55_962]);
    assert_eq!(of(r#", "layers": 2"#), [56_896 + 49_984, 55_962]);
    assert_eq!(of(r#", "injection": 8.0, "state_scale": 16.0"#), [206_848, 55_962], "factors are no parameters");
    assert_eq!(
        of(r#", "injection_norm": true"#),
        [206_848 + 2 * 128, 55_962],
        "a scale and an offset for each of two injections"
    );
}

/// The last layer and its normalisation go from one part to the other; 64 x 90 weights and 90 biases stay.
#[test]
fn where_the_output_alone_is_personal_it_has_5_850_parameters() {
    let (task, moved) = (Task::next_symbol(16, 90), 49_984 + 128);
    for name in ["deq-transformer", "transformer-4", "transformer-8", "transformer-12"] {
        let json = format!(r#"{{ "name": "{name}", "personal": "output" }}"#);
        let graph = serde_json::from_str::<ModelConfig>(&json).expect("well-formed").graph(&task).expect("fits");
        let [shared, personal] = counts(name, &task);
        assert_eq!([Part::Shared, Part::Personal].map(|part| graph.count(part)), [shared + moved, personal - moved], "{name}");
        assert_eq!(graph.count(Part::Personal), 5_850);
        let paths: Vec<&str> = graph.parameters_of(Part::Personal).map(|parameter| parameter.path.as_str()).collect();
        assert_eq!(paths, ["head.output.weight", "head.output.bias"], "{name}");
    }
}

#[test]
fn the_extra_small_networks_fit_a_microcontroller_and_differ_by_more_than_two() {
    let digits = Task::image(8, 8, 1, 10);
    let [deq, deq_personal] = counts("deq-resnet-xs", &digits);
    let [explicit, explicit_personal] = counts("resnet-xs", &digits);
    assert_eq!([deq, deq_personal], [15_824, 330]);
    assert_eq!([explicit, explicit_personal], [42_192, 330]);
    assert!(4 * (deq + deq_personal) < 100_000);
    assert!(explicit >= 2 * deq);
}

#[test]
fn explicit_networks_have_the_parameters_of_the_equilibrium_they_are_compared_with() {
    for (size, channels) in [("xs", 16), ("s", 64), ("m", 128)] {
        for task in [Task::image(8, 8, 1, 10), femnist(), cifar(10), cifar(100)] {
            let [deq, tied, untied] = ["deq", "tied", "untied"].map(|kind| counts(&format!("{kind}-resnet-{size}"), &task));
            assert_eq!(tied, deq, "{size}, {task}");
            // The second block has a scale and an offset for each of two normalisations of its own.
            assert_eq!(untied, [deq[0] + 4 * channels, deq[1]], "{size}, {task}");
        }
    }
    let [deq, untied] = ["deq-resnet-m", "untied-resnet-m"].map(|name| counts(name, &cifar(10))[0]);
    assert_eq!([deq, untied], [2_725_120, 2_725_632], "0.02 % more");
    let of_blocks = |blocks: usize| {
        let config: ModelConfig =
            serde_json::from_str(&format!(r#"{{ "name": "untied-resnet-m", "blocks": {blocks} }}"#)).expect("well-formed");
        config.graph(&cifar(10)).expect("fits").count(Part::Shared)
    };
    assert_eq!([1, 4, 16].map(of_blocks), [deq, deq + 3 * 512, deq + 15 * 512]);
}

/// Without flattening the first dense layer has a row a channel instead of one a number of the pooled state: 33,024 parameters instead of 2,097,408, 77 % of what DEQ-M shares.
#[test]
fn the_mean_over_the_plane_leaves_little_of_the_first_dense_layer() {
    for (name, more) in [("deq-resnet-m", 0), ("tied-resnet-m", 0), ("untied-resnet-m", 512)] {
        let count = |pooling: &str| {
            let config: ModelConfig =
                serde_json::from_str(&format!(r#"{{ "name": "{name}", "pooling": "{pooling}" }}"#)).expect("well-formed");
            config.graph(&cifar(10)).expect("fits").count(Part::Shared)
        };
        assert_eq!(count("flatten") - count("mean"), 2_097_408 - 33_024, "{name}");
        assert_eq!(count("mean"), 3_712 + 590_848 + 33_024 + 32_896 + 256 + more, "{name}");
    }
}

#[test]
fn batch_normalisation_statistics_are_counted() {
    let config: ModelConfig = "deq-resnet-s".parse().expect("a known name");
    let graph = config.graph(&femnist()).expect("a fitting task");
    let layers: Vec<&str> = graph.statistics.iter().map(|running| running.path.as_str()).collect();
    assert_eq!(layers, ["stem.norm", "dense.norm"]);
    assert_eq!(graph.initial_statistics().values().map(Vec::len).sum::<usize>(), 2 * (64 + 128) + 2);
}
