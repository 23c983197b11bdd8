//! Saving and loading, with sound files and with all others.
use std::collections::HashMap;
use std::fs;

use fedeq_models::store::{Metadata, from_bytes, load, names_today, save, to_bytes};
use fedeq_models::{Graph, ModelConfig, ModelError, Task, Values};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

fn digits() -> Task {
    Task::image(8, 8, 1, 10)
}

fn xs() -> Graph {
    "deq-resnet-xs".parse::<ModelConfig>().expect("a known name").graph(&digits()).expect("fits")
}

/// Numbers that are not the fresh ones, statistics included.
fn trained() -> [Values; 2] {
    let moved =
        |values: Values| values.into_iter().map(|(name, numbers)| (name, numbers.iter().map(|x| 0.9 * x + 0.1).collect()));
    [moved(xs().initial_values(5)).collect(), moved(xs().initial_statistics()).collect()]
}

fn bytes_of([values, statistics]: &[Values; 2]) -> Vec<u8> {
    to_bytes(&xs(), values, statistics, &Metadata::new()).expect("sound numbers")
}

/// The file with one tensor replaced, or left out.
fn tampered(bytes: &[u8], name: &str, replacement: Option<(Dtype, Vec<usize>, Vec<u8>)>) -> Vec<u8> {
    let file = SafeTensors::deserialize(bytes).expect("a sound file");
    let mut views: HashMap<String, TensorView> = file.tensors().into_iter().collect();
    views.remove(name);
    if let Some((dtype, shape, data)) = &replacement {
        views.insert(name.to_owned(), TensorView::new(*dtype, shape.clone(), data).expect("a sound tensor"));
    }
    safetensors::serialize(views, None).expect("a sound file")
}

fn refusal(bytes: &[u8]) -> String {
    let error = from_bytes(bytes, &xs()).expect_err("must be refused");
    assert!(matches!(error, ModelError::Unloadable { .. }));
    assert!(!error.hint().is_empty());
    error.to_string()
}

#[test]
fn a_network_comes_back_bit_for_bit() {
    let [values, statistics] = trained();
    let loaded = from_bytes(&bytes_of(&trained()), &xs()).expect("its own file");
    assert!(loaded.values == values && loaded.statistics == statistics);
}

#[test]
fn every_kind_of_network_comes_back_bit_for_bit() {
    for name in ModelConfig::NAMES.iter().filter(|name| !name.ends_with("20") && !name.ends_with("34")) {
        let config: ModelConfig = name.parse().expect("a known name");
        let tasks = [Task::vector(6, 3), digits(), Task::next_symbol(5, 9)];
        let graph = tasks.iter().find_map(|task| config.graph(task).ok()).expect("a network is for something");
        let (values, statistics) = (graph.initial_values(1), graph.initial_statistics());
        let bytes = to_bytes(&graph, &values, &statistics, &Metadata::new()).expect("sound numbers");
        let loaded = from_bytes(&bytes, &graph).expect("its own file");
        assert!(loaded.values == values && loaded.statistics == statistics, "{name}");
        assert_eq!(to_bytes(&graph, &loaded.values, &loaded.statistics, &loaded.metadata).expect("sound"), bytes, "{name}");
    }
}

/// The fresh network of seed 7, saved by the program when the head was still called `player`, and the dense layer before it `head`.
const OF_OLD: &[u8] = include_bytes!("files/deq-mlp-of-old.safetensors");

fn like_the_one_of_old() -> Graph {
    let json = r#"{ "name": "deq-mlp", "hidden": 4, "dense": 3, "norm": "batch" }"#;
    serde_json::from_str::<ModelConfig>(json).expect("well-formed").graph(&Task::vector(2, 2)).expect("fits")
}

#[test]
fn a_file_of_old_is_read_under_the_names_of_today() {
    let graph = like_the_one_of_old();
    let loaded = from_bytes(OF_OLD, &graph).expect("an old file");
    let file = SafeTensors::deserialize(OF_OLD).expect("sound");
    let stored = |name: &str| -> Vec<f32> {
        let words = file.tensor(name).expect("there").data().chunks_exact(4);
        words.map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    };
    for (today, of_old) in [("dense.weight", "head.weight"), ("head.weight", "player.weight"), ("cell.b.weight", "cell.b.weight")]
    {
        assert_eq!(loaded.values[today], stored(of_old), "{today}");
    }
    assert_eq!(loaded.values.len(), graph.parameters.len());
    assert_eq!(loaded.statistics, graph.initial_statistics());
    assert_eq!(loaded.metadata["model"], "deq-mlp");
    // A seed still means the same numbers for whatever kept its name.
    for name in ["c.weight", "cell.b.weight"] {
        assert_eq!(loaded.values[name], graph.initial_values(7)[name], "{name}");
    }
}

#[test]
fn a_part_of_a_file_of_old_is_known_by_what_is_expected() {
    let names = |found: &[&'static str], expected: &[&str]| {
        names_today(found.iter().copied(), |name| expected.contains(&name)).map(|names| names.into_values().collect::<Vec<_>>())
    };
    assert_eq!(
        names(&["c.weight", "head.weight"], &["c.weight", "dense.weight"]),
        Some(vec!["c.weight".into(), "dense.weight".into()])
    );
    assert_eq!(names(&["player.weight"], &["head.weight"]), Some(vec!["head.weight".to_owned()]));
    assert_eq!(names(&["dense.weight", "head.weight"], &["dense.weight", "head.weight"]), None, "the names of today");
    assert_eq!(names(&["c.weight", "player.weight"], &["dense.weight", "head.weight"]), None, "another network");
}

#[test]
fn numbers_of_another_network_are_not_saved() {
    let refused = |change: &dyn Fn(&mut Values)| {
        let [mut values, statistics] = trained();
        change(&mut values);
        to_bytes(&xs(), &values, &statistics, &Metadata::new()).expect_err("must be refused").to_string()
    };
    assert_eq!(
        refused(&|values| drop(values.remove("stem.conv.weight"))),
        "these numbers belong to another network: `stem.conv.weight` is missing"
    );
    assert_eq!(
        refused(&|values| drop(values.insert("stem.conv.bias".into(), vec![0.0]))),
        "these numbers belong to another network: it has no `stem.conv.bias`"
    );
    assert!(
        refused(&|values| values.get_mut("stem.conv.weight").expect("there").truncate(3))
            .starts_with("the network cannot be written")
    );
}

#[test]
fn names_in_a_file_are_readable() {
    let bytes = bytes_of(&trained());
    let mut names: Vec<String> = SafeTensors::deserialize(&bytes).expect("sound").tensors().into_iter().map(|(n, _)| n).collect();
    names.sort();
    let expected = [
        "cell.conv_a.weight",
        "cell.conv_b.weight",
        "cell.norm_1.offset",
        "cell.norm_1.scale",
        "cell.norm_2.offset",
        "cell.norm_2.scale",
        "cell.norm_3.offset",
        "cell.norm_3.scale",
        "dense.fc1.bias",
        "dense.fc1.weight",
        "dense.fc2.bias",
        "dense.fc2.weight",
        "dense.norm.mean",
        "dense.norm.offset",
        "dense.norm.scale",
        "dense.norm.steps",
        "dense.norm.variance",
        "head.bias",
        "head.weight",
        "stem.conv.weight",
        "stem.norm.mean",
        "stem.norm.offset",
        "stem.norm.scale",
        "stem.norm.steps",
        "stem.norm.variance",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_file_is_replaced_whole_and_keeps_its_metadata() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("network.safetensors");
    let [values, statistics] = trained();
    let metadata = Metadata::from([("round".into(), "3".into()), ("config".into(), "{\"name\":\"deq-resnet-xs\"}".into())]);
    save(&path, &xs(), &xs().initial_values(1), &statistics, &Metadata::new()).expect("a writable folder");
    save(&path, &xs(), &values, &statistics, &metadata).expect("a writable folder");
    assert_eq!(load(&path, &xs()).expect("its own file").metadata, metadata);
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1, "nothing is left behind");
    assert_eq!(fs::read(&path).expect("readable"), to_bytes(&xs(), &values, &statistics, &metadata).expect("sound"));
}

#[test]
fn files_that_are_not_there_or_unsound_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("missing.safetensors");
    let error = load(&missing, &xs()).expect_err("there is no such file");
    assert!(error.to_string().contains("missing.safetensors") && error.hint().contains("missing.safetensors"), "{error}");
    let unsound = folder.path().join("unsound.safetensors");
    fs::write(&unsound, b"not a network").expect("writable");
    assert!(load(&unsound, &xs()).expect_err("unsound").to_string().starts_with(&format!("`{}`", unsound.display())));
}

#[test]
fn a_missing_tensor_is_named() {
    let bytes = tampered(&bytes_of(&trained()), "cell.conv_a.weight", None);
    assert_eq!(refusal(&bytes), "this file belongs to another network: it has no `cell.conv_a.weight`");
}

#[test]
fn an_extra_tensor_is_named() {
    let bytes = tampered(&bytes_of(&trained()), "cell.conv_c.weight", Some((Dtype::F32, vec![1], vec![0; 4])));
    assert_eq!(
        refusal(&bytes),
        "this file belongs to another network: it holds `cell.conv_c.weight`, which this network has not"
    );
}

#[test]
fn a_tensor_of_another_shape_is_named() {
    let bytes = tampered(&bytes_of(&trained()), "head.bias", Some((Dtype::F32, vec![2, 5], vec![0; 40])));
    assert_eq!(refusal(&bytes), "this file belongs to another network: `head.bias` has shape `[2, 5]` instead of [10]");
}

#[test]
fn a_tensor_of_another_type_is_named() {
    let bytes = tampered(&bytes_of(&trained()), "head.bias", Some((Dtype::F16, vec![10], vec![0; 20])));
    assert_eq!(refusal(&bytes), "this file belongs to another network: `head.bias` is stored as `F16` instead of F32");
}

#[test]
fn a_value_that_is_not_finite_is_named() {
    let values: Vec<u8> = [f32::NAN; 10].iter().flat_map(|value| value.to_le_bytes()).collect();
    let bytes = tampered(&bytes_of(&trained()), "head.bias", Some((Dtype::F32, vec![10], values)));
    assert_eq!(refusal(&bytes), "this is not a sound network file: `head.bias` holds the value `NaN`");
}

#[test]
fn every_truncation_is_refused() {
    let bytes = bytes_of(&trained());
    for length in (0..bytes.len()).step_by(997) {
        refusal(&bytes[..length]);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
        refusal(&bytes);
    }

    #[test]
    fn a_random_header_is_refused(json in "\\{.{0,200}\\}") {
        let mut bytes = (json.len() as u64).to_le_bytes().to_vec();
        bytes.extend(json.as_bytes());
        refusal(&bytes);
    }

    #[test]
    fn a_changed_byte_gives_a_network_or_an_error_but_no_panic(place in 0_usize..4096, value in any::<u8>()) {
        let mut bytes = bytes_of(&trained());
        bytes[place] = value;
        let _ = from_bytes(&bytes, &xs());
    }
}
