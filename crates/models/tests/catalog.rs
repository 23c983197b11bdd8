//! Asking for networks by name, with sense and without.
use fedeq_models::{DeqMlpOptions, Family, ModelConfig, Part, Task};

fn parse(json: &str) -> Result<ModelConfig, serde_json::Error> {
    serde_json::from_str(json)
}

fn refusal(config: &str, task: Task) -> String {
    let error = parse(config).expect("well-formed").graph(&task).expect_err("must be refused");
    format!("{error}; {}", error.hint())
}

#[test]
fn every_name_is_a_network_that_can_be_written_and_read() {
    for name in ModelConfig::NAMES {
        let config: ModelConfig = name.parse().expect("a known name");
        assert_eq!(config.name(), name);
        let json = serde_json::to_string(&config).expect("plain data");
        assert_eq!(parse(&json).expect("what was written"), config);
        let tasks = [Task::vector(6, 3), Task::image(8, 8, 1, 10), Task::next_symbol(5, 9)];
        assert!(tasks.iter().any(|task| config.graph(task).is_ok()), "{name} is for something");
    }
}

#[test]
fn a_name_that_is_none_is_refused_with_those_that_are() {
    let error = "deq-resnet-l".parse::<ModelConfig>().expect_err("no such model");
    assert_eq!(error.to_string(), "there is no model `deq-resnet-l`");
    assert!(error.hint().contains("deq-resnet-m"), "{}", error.hint());
}

#[test]
fn unknown_keys_are_refused() {
    let error = parse(r#"{ "name": "deq-resnet-s", "activaton": "relu" }"#).expect_err("a typing error");
    assert!(error.to_string().contains("activaton"), "{error}");
    assert!(parse(r#"{ "name": "resnet-20", "equilibrium": {} }"#).is_err(), "an explicit network has no equilibrium");
}

/// What was written before there was a choice means the same, and is written as it was.
#[test]
fn usual_choices_of_networks_for_text_are_left_out_of_files() {
    for name in ["deq-transformer", "transformer-4"] {
        let config = parse(&format!(r#"{{ "name": "{name}", "dropout": 0.25 }}"#)).expect("well-formed");
        let written = serde_json::to_value(&config).expect("writable");
        let keys: Vec<&String> = written.as_object().expect("an object").keys().collect();
        let expected = if name == "transformer-4" { vec!["dropout", "name"] } else { vec!["dropout", "equilibrium", "name"] };
        assert_eq!(keys, expected);
    }
    let json = r#"{ "name": "deq-transformer", "injection": 8.0, "injection_norm": true, "layers": 2, "tied": true, "state_scale": 16.0, "personal": "output" }"#;
    let config = parse(json).expect("well-formed");
    let written = serde_json::to_string(&config).expect("writable");
    assert_eq!(parse(&written).expect("well-formed"), config);
    assert!(
        ["injection\":8.0", "injection_norm\":true", "layers\":2", "tied\":true", "state_scale\":16.0", "personal\":\"output"]
            .iter()
            .all(|choice| written.contains(choice)),
        "{written}"
    );
}

#[test]
fn networks_refuse_data_of_another_kind() {
    let (image, text, vector) = (Task::image(8, 8, 1, 10), Task::next_symbol(16, 90), Task::vector(20, 2));
    assert_eq!(
        refusal(r#"{ "name": "deq-resnet-s" }"#, text),
        "`deq-resnet-s` takes images, not sequences of up to 16 out of 90 symbols; \
         choose one of `deq-transformer`, `transformer-4`, `transformer-8`, `transformer-12` for this data"
    );
    assert_eq!(
        refusal(r#"{ "name": "transformer-8" }"#, image),
        "`transformer-8` takes sequences of symbols, not 8x8x1 images; choose one of `linear`, `mlp`, `deq-mlp`, \
         `deq-resnet-xs`, `deq-resnet-s`, `deq-resnet-m`, `tied-resnet-xs`, `tied-resnet-s`, `tied-resnet-m`, `untied-resnet-xs`, \
         `untied-resnet-s`, `untied-resnet-m`, `resnet-xs`, `resnet-14`, `resnet-20`, `resnet-34` for this data"
    );
    assert_eq!(
        refusal(r#"{ "name": "resnet-20" }"#, vector),
        "`resnet-20` takes images, not vectors of 20; choose one of `linear`, `mlp`, `deq-mlp` for this data"
    );
    refusal(r#"{ "name": "deq-mlp" }"#, text);
    refusal(r#"{ "name": "linear" }"#, text);
}

#[test]
fn numbers_beyond_reason_are_refused() {
    let images = Task::image(8, 8, 1, 10);
    assert_eq!(
        refusal(r#"{ "name": "deq-mlp", "hidden": 0 }"#, images),
        "hidden width `0` is out of range; choose a hidden width between 1 and 16,384"
    );
    assert_eq!(
        refusal(r#"{ "name": "transformer-4", "dropout": 1.0 }"#, Task::next_symbol(4, 9)),
        "dropout `1` is out of range; choose a dropout of at least 0 and below 1"
    );
    assert_eq!(
        refusal(r#"{ "name": "deq-mlp", "hidden": 12, "norm": "group" }"#, images),
        "group normalisation cannot make 8 groups of several out of a hidden width of `12`; choose a multiple of 8 from 16 on"
    );
    refusal(r#"{ "name": "mlp", "hidden": [10, 99999999999] }"#, images);
    assert_eq!(
        refusal(r#"{ "name": "tied-resnet-xs", "steps": 0 }"#, images),
        "number of steps `0` is out of range; choose a number of steps between 1 and 64"
    );
    refusal(r#"{ "name": "tied-resnet-xs", "steps": 65 }"#, images);
    assert_eq!(
        refusal(r#"{ "name": "untied-resnet-s", "blocks": 3 }"#, images),
        "`3` blocks cannot share the channels of one cell; choose one of 1, 2, 4, 8 for `blocks`"
    );
    refusal(r#"{ "name": "untied-resnet-xs", "blocks": 0 }"#, images);
    refusal(r#"{ "name": "deq-resnet-xs", "equilibrium": { "stop": { "max_steps": 0 } } }"#, images);
    let text = Task::next_symbol(4, 9);
    assert_eq!(
        refusal(r#"{ "name": "deq-transformer", "injection": 0.0 }"#, text),
        "injection `0` is out of range; choose a number above 0 for `injection`, from 1e-6 to 1e6; 1 changes nothing"
    );
    refusal(r#"{ "name": "deq-transformer", "injection": -8.0 }"#, text);
    assert!(refusal(r#"{ "name": "deq-transformer", "state_scale": 1e300 }"#, text).starts_with("state_scale `1"));
    assert_eq!(
        refusal(r#"{ "name": "deq-transformer", "layers": 0 }"#, text),
        "number of layers `0` is out of range; choose a number of layers between 1 and 16"
    );
    assert_eq!(
        refusal(r#"{ "name": "deq-transformer", "layers": 1, "tied": true }"#, text),
        "`tied` says nothing of `1` layer; set `tied` to false, or `layers` to more than 1"
    );
    for task in [
        Task::image(0, 8, 1, 10),
        Task::image(8, 8, usize::MAX, 10),
        Task::image(8, 8, 1, 1),
        Task::image(8, 8, 1, usize::MAX),
        Task::image(1024, 1024, 16, 10),
    ] {
        refusal(r#"{ "name": "mlp" }"#, task);
    }
    refusal(r#"{ "name": "deq-transformer" }"#, Task::next_symbol(0, 9));
}

#[test]
fn the_task_chooses_the_family_unless_the_configuration_does() {
    let config: ModelConfig = "resnet-14".parse().expect("a known name");
    assert_eq!(Family::of(&Task::image(28, 28, 1, 62)), Some(Family::Femnist));
    assert_eq!(Family::of(&Task::image(32, 32, 3, 10)), Some(Family::Cifar10));
    assert_eq!(Family::of(&Task::image(32, 32, 3, 100)), Some(Family::Cifar100));
    assert_eq!(config.note(&Task::image(32, 32, 3, 100)), None);
    assert_eq!(
        config.note(&Task::image(64, 64, 3, 100)).as_deref(),
        Some("resnet-14 was not made for 64x64x3 images, 100 classes: using its CIFAR-10 family")
    );
    let chosen = parse(r#"{ "name": "resnet-14", "family": "cifar100" }"#).expect("well-formed");
    let graph = chosen.graph(&Task::image(32, 32, 3, 10)).expect("fits");
    assert_eq!(graph.count(Part::Shared), 3_939_008);
}

/// Experiments are told apart by what is written of them.
#[test]
fn the_usual_pooling_is_not_written() {
    let written = |json: &str| serde_json::to_string(&parse(json).expect("well-formed")).expect("plain data");
    assert!(!written(r#"{ "name": "deq-resnet-m", "pooling": "flatten" }"#).contains("pooling"));
    assert!(written(r#"{ "name": "deq-resnet-m", "pooling": "mean" }"#).contains(r#""pooling":"mean""#));
}

#[test]
fn deq_mlp_comes_with_or_without_its_bias() {
    let count = |bias| {
        let config = ModelConfig::DeqMlp(DeqMlpOptions { bias, ..Default::default() });
        config.graph(&Task::image(28, 28, 1, 62)).expect("fits").count(Part::Shared)
    };
    assert_eq!(count(true) - count(false), 512);
}

#[test]
fn a_linear_network_is_shared_or_personal() {
    let count = |json: &str| {
        let graph = parse(json).expect("well-formed").graph(&Task::vector(20, 3)).expect("fits");
        [Part::Shared, Part::Personal].map(|part| graph.count(part))
    };
    assert_eq!(count(r#"{ "name": "linear" }"#), [63, 0]);
    assert_eq!(count(r#"{ "name": "linear", "layer": "personal" }"#), [0, 63]);
    assert_eq!(count(r#"{ "name": "mlp", "hidden": [5] }"#), [105, 18]);
}
