use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::Source;
use fedeq_data::source::femnist::{self, Femnist, Writers};
use fedeq_data::{Dataset, Labels, Result, Samples};
use serde_json::{Value, json};
use std::fs;

/// Two writers: `ann` with two pictures, `bob` with one.
pub(crate) fn two_writers() -> Value {
    json!({
        "users": ["ann", "bob"],
        "num_samples": [2, 1],
        "user_data": { "ann": { "x": [vec![1.0; 784], vec![0.5; 784]], "y": [3, 61] }, "bob": { "x": [vec![0; 784]], "y": [36] } }
    })
}

fn read(file: &Value) -> Result<Dataset> {
    read_text(&file.to_string())
}

fn read_text(text: &str) -> Result<Dataset> {
    Writers::default().read(text.as_bytes(), nowhere())?.into_dataset()
}

/// What spoils a file, and parts of what is said about it.
type Case = (fn(&mut Value), &'static [&'static str]);

/// The file after `change`, which should make it a bad one.
fn spoilt(change: impl FnOnce(&mut Value)) -> Value {
    let mut file = two_writers();
    change(&mut file);
    file
}

#[test]
fn ink_is_up_and_owners_are_writers() {
    let dataset = read(&two_writers()).unwrap();
    assert_sound(&dataset);
    let (Samples::Images(images), Labels::Classes { names, values }) = (&dataset.samples, &dataset.labels) else {
        panic!("FEMNIST has pictures and classes")
    };
    assert_eq!((images.shape, images.pixels[0], images.pixels[784], images.pixels[1568]), ([28, 28, 1], 0, 128, 255));
    assert_eq!(values, &[3, 61, 36]);
    assert_eq!((names[3].as_str(), names[10].as_str(), names[36].as_str(), names[61].as_str()), ("3", "A", "a", "z"));
    let owners = dataset.owners.unwrap();
    assert_eq!((owners.names, owners.of), (vec!["ann".into(), "bob".into()], vec![0, 0, 1]));
}

#[test]
fn every_byte_comes_back_from_leafs_six_digits() {
    let row: Vec<f64> = (0..784).map(|at| (f64::from(at % 256) / 255.0 * 1e6).round() / 1e6).collect();
    let file = json!({ "users": ["ann"], "num_samples": [1], "user_data": { "ann": { "x": [row], "y": [0] } } });
    let Samples::Images(images) = read(&file).unwrap().samples else { panic!("FEMNIST has pictures") };
    assert!(images.pixels.iter().zip(0..).all(|(&pixel, at)| pixel == 255 - (at % 256) as u8));
}

#[test]
fn keys_may_come_in_any_order_and_others_are_skipped() {
    let file = two_writers();
    let (users, counts, ann) = (&file["users"], &file["num_samples"], &file["user_data"]["ann"]);
    let ann = format!(r#"{{"style": null, "y": {}, "x": {}}}"#, ann["y"], ann["x"]);
    let turned = format!(
        r#"{{"user_data": {{"ann": {ann}, "bob": {}}}, "hierarchies": [[{{}}]], "num_samples": {counts}, "users": {users}}}"#,
        file["user_data"]["bob"]
    );
    assert_eq!(read_text(&turned).unwrap(), read(&file).unwrap());
}

#[test]
fn files_are_read_in_order_of_their_names() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("femnist/data/all_data");
    fs::create_dir_all(&folder).unwrap();
    let one = |writer: &str| json!({ "users": [writer], "num_samples": [1], "user_data": { writer: { "x": [vec![1; 784]], "y": [0] } } });
    fs::write(folder.join("all_data_1.json"), one("zoe").to_string()).unwrap();
    fs::write(folder.join("all_data_0.json"), one("yan").to_string()).unwrap();
    let dataset = Source::Femnist(Femnist {}).load(root.path()).unwrap();
    assert_eq!(dataset.owners.unwrap().names, ["yan", "zoe"]);
    fs::write(folder.join("all_data_2.json"), one("yan").to_string()).unwrap();
    assert_refused(femnist::load(&folder), &["all_data_2.json", "for client `yan`", "was read before"]);
}

#[test]
fn a_bad_picture_or_class_is_refused_with_writer_and_sample() {
    let cases: &[Case] = &[
        (|file| file["user_data"]["ann"]["x"][1][700] = 1.5.into(), &["client `ann`, sample 1", "pixel `1.5`"]),
        (|file| file["user_data"]["bob"]["x"][0][0] = (-0.1).into(), &["client `bob`, sample 0", "pixel `-0.1`"]),
        (|file| file["user_data"]["bob"]["x"][0][9] = "ink".into(), &["client `bob`, sample 0", "ink"]),
        (|file| file["user_data"]["ann"]["x"][1] = json!([0.5]), &["client `ann`, sample 1", "784 pixels"]),
        (|file| file["user_data"]["ann"]["x"][0] = json!(vec![1; 785]), &["client `ann`, sample 0", "more than 784"]),
        (|file| file["user_data"]["ann"]["y"][1] = 62.into(), &["client `ann`, sample 1", "label `62` is not below 62"]),
    ];
    for (change, parts) in cases {
        assert_refused(read(&spoilt(change)), parts);
    }
}

#[test]
fn lists_that_disagree_are_refused() {
    let cases: &[Case] = &[
        (|file| file["user_data"]["ann"]["y"] = json!([1]), &["client `ann`", "2 pictures", "1 classes"]),
        (|file| file["user_data"]["ann"] = json!({ "x": [], "y": [] }), &["client `ann`", "no pictures"]),
        (|file| file["users"] = json!(["ann"]), &["`users` has 1 entries but `num_samples` has 2"]),
        (|file| file["users"] = json!(["ann", "cat"]), &["user `cat` is missing from `user_data`"]),
        (|file| file["users"] = json!(["ann", "ann"]), &["user `ann`", "listed twice"]),
        (|file| file["num_samples"] = json!([2, 7]), &["user `bob` has 1 samples", "says 7"]),
        (
            |file| {
                file["users"] = json!(["ann"]);
                file["num_samples"] = json!([2])
            },
            &["user `bob`", "missing from `users`"],
        ),
        (
            |file| {
                file.as_object_mut().unwrap().remove("user_data");
            },
            &["no key `user_data`"],
        ),
        (|file| *file = json!({ "users": [], "num_samples": [], "user_data": {} }), &["`users` is empty"]),
    ];
    for (change, parts) in cases {
        assert_refused(read(&spoilt(change)), parts);
    }
}

#[test]
fn broken_json_is_refused_with_its_position() {
    let text = two_writers().to_string();
    assert_refused(read_text(&text[..text.len() / 2]), &["made/up.file", "column", "of line 1"]);
    assert_refused(read_text("{\n\"users\": [,]}"), &["on line 2", "column 11"]);
    assert_refused(read_text(&format!("{text} tail")), &["trailing characters"]);
    assert_refused(read_text("[1, 2]"), &["an object with the keys"]);
    assert_refused(read_text(r#"{"users": [], "users": []}"#), &["the key `users` appears twice"]);
    assert_refused(Writers::default().read(&b"{\"us\xffers\": []}"[..], nowhere()), &["on line 1"]);
}
