//! Saving and loading, with sound files and with all others.
use std::collections::HashMap;
use std::fs;

use burn::tensor::Device;
use fedeq_models::store::{Metadata, from_bytes, load, save, to_bytes};
use fedeq_models::{Context, ModelConfig, ModelError, Network, Statistics, Task};
use proptest::prelude::*;
use safetensors::tensor::{Dtype, SafeTensors, TensorView};

mod common;

fn digits() -> Task {
    Task::image(8, 8, 1, 10)
}

fn xs(seed: u64) -> Network {
    common::build("deq-resnet-xs", &digits(), &Device::default(), seed)
}

/// A network that has seen one batch, so that its statistics are not the fresh ones.
fn trained() -> (Network, Statistics) {
    let network = xs(5);
    let mut context = Context::train(network.fresh_statistics(), 0);
    network.forward(&common::batch(&digits(), &Device::default()), &mut context).expect("a fitting input");
    (network, context.statistics)
}

fn bytes_of((network, statistics): &(Network, Statistics)) -> Vec<u8> {
    to_bytes(network, statistics, &Metadata::new()).expect("a sound network")
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
    let error = from_bytes(bytes, xs(0)).expect_err("must be refused");
    assert!(matches!(error, ModelError::Unloadable { .. }));
    assert!(!error.hint().is_empty());
    error.to_string()
}

#[test]
fn a_network_comes_back_bit_for_bit() {
    let saved = trained();
    let bytes = bytes_of(&saved);
    let loaded = from_bytes(&bytes, xs(6)).expect("its own file");
    assert_eq!(bytes_of(&(loaded.network, loaded.statistics)), bytes);
}

#[test]
fn every_kind_of_network_comes_back_bit_for_bit() {
    let device = Device::default();
    for name in ModelConfig::NAMES.iter().filter(|name| !name.ends_with("20") && !name.ends_with("34")) {
        let task = common::task_for(name);
        let network = common::build(name, &task, &device, 1);
        let bytes = to_bytes(&network, &network.fresh_statistics(), &Metadata::new()).expect("a sound network");
        let loaded = from_bytes(&bytes, common::build(name, &task, &device, 2)).expect("its own file");
        assert_eq!(to_bytes(&loaded.network, &loaded.statistics, &loaded.metadata).expect("sound"), bytes, "{name}");
    }
}

#[test]
fn a_loaded_network_still_wants_gradients() {
    let bytes = bytes_of(&trained());
    let like = common::build("deq-resnet-xs", &digits(), &Device::default().autodiff(), 0);
    let loaded = from_bytes(&bytes, like).expect("its own file");
    let mut context = Context::train(loaded.statistics, 0);
    let output = loaded.network.forward(&common::batch(&digits(), &Device::default()), &mut context).expect("fits");
    assert!(output.logits.is_tracked());
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
        "head.fc1.bias",
        "head.fc1.weight",
        "head.fc2.bias",
        "head.fc2.weight",
        "head.norm.mean",
        "head.norm.offset",
        "head.norm.scale",
        "head.norm.steps",
        "head.norm.variance",
        "player.bias",
        "player.weight",
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
    let (network, statistics) = trained();
    let metadata = Metadata::from([("round".into(), "3".into()), ("config".into(), "{\"name\":\"deq-resnet-xs\"}".into())]);
    save(&path, &xs(1), &statistics, &Metadata::new()).expect("a writable folder");
    save(&path, &network, &statistics, &metadata).expect("a writable folder");
    assert_eq!(load(&path, xs(0)).expect("its own file").metadata, metadata);
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 1, "nothing is left behind");
    assert_eq!(fs::read(&path).expect("readable"), to_bytes(&network, &statistics, &metadata).expect("sound"));
}

#[test]
fn files_that_are_not_there_or_unsound_are_named() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let missing = folder.path().join("missing.safetensors");
    let error = load(&missing, xs(0)).expect_err("there is no such file");
    assert!(error.to_string().contains("missing.safetensors") && error.hint().contains("missing.safetensors"), "{error}");
    let unsound = folder.path().join("unsound.safetensors");
    fs::write(&unsound, b"not a network").expect("writable");
    assert!(load(&unsound, xs(0)).expect_err("unsound").to_string().starts_with(&format!("`{}`", unsound.display())));
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
    let bytes = tampered(&bytes_of(&trained()), "player.bias", Some((Dtype::F32, vec![2, 5], vec![0; 40])));
    assert_eq!(refusal(&bytes), "this file belongs to another network: `player.bias` has shape `[2, 5]` instead of [10]");
}

#[test]
fn a_tensor_of_another_type_is_named() {
    let bytes = tampered(&bytes_of(&trained()), "player.bias", Some((Dtype::F16, vec![10], vec![0; 20])));
    assert_eq!(refusal(&bytes), "this file belongs to another network: `player.bias` is stored as `F16` instead of F32");
}

#[test]
fn a_value_that_is_not_finite_is_named() {
    let values: Vec<u8> = [f32::NAN; 10].iter().flat_map(|value| value.to_le_bytes()).collect();
    let bytes = tampered(&bytes_of(&trained()), "player.bias", Some((Dtype::F32, vec![10], values)));
    assert_eq!(refusal(&bytes), "this is not a sound network file: `player.bias` holds the value `NaN`");
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
        let _ = from_bytes(&bytes, xs(0));
    }
}
