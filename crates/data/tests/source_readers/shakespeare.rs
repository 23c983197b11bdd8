use crate::sound::assert_sound;
use crate::text::chunks_of;
use crate::{assert_refused, nowhere};
use fedeq_data::source::Source;
use fedeq_data::source::shakespeare::read_leaf;
use fedeq_data::source::text::Clients;
use fedeq_data::{Dataset, Result};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::fs;

/// LEAF's windows over a text: `size` characters each, moved on by one, and the character after each.
fn windows(text: &str, size: usize) -> Value {
    let characters: Vec<char> = text.chars().collect();
    let starts = 0..characters.len().saturating_sub(size);
    let x: Vec<String> = starts.clone().map(|at| characters[at..at + size].iter().collect()).collect();
    let y: Vec<String> = starts.map(|at| characters[at + size].to_string()).collect();
    json!({ "x": x, "y": y })
}

fn leaf(roles: &[(&str, Value)]) -> Value {
    let users: Vec<_> = roles.iter().map(|(role, _)| role).collect();
    let counts: Vec<_> = roles.iter().map(|(_, data)| data["x"].as_array().unwrap().len()).collect();
    let data: serde_json::Map<_, _> = roles.iter().map(|(role, data)| (role.to_string(), data.clone())).collect();
    json!({ "users": users, "num_samples": counts, "hierarchies": ["a play"], "user_data": data })
}

/// Two roles with a few words each.
pub(crate) fn two_roles() -> Value {
    leaf(&[("HAMLET", windows("To be, or not to be", 8)), ("OPHELIA", windows("My lord, I have remembrances", 8))])
}

fn read(file: &Value) -> Result<Dataset> {
    read_leaf(Clients::default(), file.to_string().as_bytes(), nowhere())?.into_dataset("shakespeare", &chunks_of(16))
}

fn from_lines(lines: &[(&str, &str)]) -> Dataset {
    let lines: String = lines.iter().map(|(client, text)| format!("{}\n", json!({ "client": client, "text": text }))).collect();
    let clients = Clients::default().read_lines(lines.as_bytes(), nowhere()).unwrap();
    clients.into_dataset("shakespeare", &chunks_of(16)).unwrap()
}

#[test]
fn leafs_windows_are_put_together_into_the_text_they_were_cut_from() {
    let dataset = read(&two_roles()).unwrap();
    assert_sound(&dataset);
    assert_eq!(dataset, from_lines(&[("HAMLET", "To be, or not to be"), ("OPHELIA", "My lord, I have remembrances")]));
}

#[test]
fn a_gap_between_windows_begins_a_new_snippet() {
    let data = json!({ "x": ["abcd", "bcde", "wxyz"], "y": ["e", "f", "!"] });
    assert_eq!(read(&leaf(&[("FOOL", data)])).unwrap(), from_lines(&[("FOOL", "abcdef"), ("FOOL", "wxyz!")]));
}

#[test]
fn both_layouts_are_found_and_roles_come_first() {
    let root = tempfile::tempdir().unwrap();
    let load = || Source::named("shakespeare").unwrap().load(root.path());
    let folder = root.path().join("shakespeare/data/all_data");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("all_data.json"), two_roles().to_string()).unwrap();
    assert_eq!(load().unwrap().owners.unwrap().names, ["HAMLET", "OPHELIA"]);
    assert_eq!(load().unwrap(), Source::named("shakespeare").unwrap().load(&folder.join("all_data.json")).unwrap());
    fs::write(root.path().join("shakespeare/roles.jsonl"), r#"{"client": "LEAR", "text": "Howl"}"#).unwrap();
    assert_eq!(load().unwrap().owners.unwrap().names, ["LEAR"]);
}

#[test]
fn windows_that_make_no_text_are_refused_with_role_and_sample() {
    let role = |x: Value, y: Value| read(&leaf(&[("FOOL", json!({ "x": x, "y": y }))]));
    assert_refused(role(json!([]), json!([])), &["client `FOOL`", "no text"]);
    assert_refused(role(json!(["ab", ""]), json!(["c", "d"])), &["client `FOOL`, sample 1", "window is empty"]);
    assert_refused(role(json!(["ab"]), json!(["cd"])), &["client `FOOL`, sample 0", "one character, not `cd`"]);
    assert_refused(role(json!(["ab", "bc"]), json!(["c"])), &["client `FOOL`", "2 windows", "1 characters"]);
    assert_refused(role(json!(["ab", "bc"]), json!(["x", "d"])), &["`y` of sample 0 is `x`", "continues with `c`"]);
}

#[test]
fn a_role_that_was_read_before_is_refused() {
    let clients = read_leaf(Clients::default(), two_roles().to_string().as_bytes(), nowhere()).unwrap();
    let again = read_leaf(clients, two_roles().to_string().as_bytes(), nowhere());
    assert_refused(again, &["client `HAMLET`", "was read before"]);
}

proptest! {
    #[test]
    fn any_text_survives_being_cut_into_windows(text in "[a-d\u{e9} ]{9,60}", size in 3usize..9) {
        prop_assert_eq!(read(&leaf(&[("FOOL", windows(&text, size))])).unwrap(), from_lines(&[("FOOL", &text)]));
    }
}
