use crate::sound::assert_sound;
use crate::{assert_refused, nowhere};
use fedeq_data::source::text::{Clients, Text};
use fedeq_data::source::{Source, vocabulary};
use fedeq_data::{Dataset, Labels, Result, Samples};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeMap;
use std::fs;
use std::num::NonZeroU16;

pub(crate) fn chunks_of(length: u16) -> Text {
    Text { length: NonZeroU16::new(length).unwrap() }
}

fn read(lines: &str, length: u16) -> Result<Dataset> {
    Clients::default().read_lines(lines.as_bytes(), nowhere())?.into_dataset("text", &chunks_of(length))
}

pub(crate) fn symbols(dataset: &Dataset) -> (&[u8], &[u8]) {
    match (&dataset.samples, &dataset.labels) {
        (Samples::Sequences(sequences), Labels::NextSymbols(next)) => (&sequences.symbols, next),
        _ => panic!("text is sequences"),
    }
}

/// What a client's stream is by definition: begin, characters, end, for every snippet.
fn stream(snippets: &[String]) -> Vec<u8> {
    let symbols = |snippet: &String| [vec![1], snippet.chars().map(vocabulary::symbol).collect(), vec![2]].concat();
    snippets.iter().flat_map(symbols).collect()
}

#[test]
fn a_text_is_cut_into_chunks_and_the_last_is_padded() {
    let dataset = read(r#"{"client": "ann", "text": "dhl"}"#, 3).unwrap();
    assert_sound(&dataset);
    assert_eq!(symbols(&dataset), (&[1, 3, 4, 5, 0, 0][..], &[3, 4, 5, 2, 0, 0][..]));
}

#[test]
fn several_lines_of_a_client_are_joined_and_clients_keep_their_order() {
    let lines = "{\"client\": \"b\", \"text\": \"d\"}\n\n{\"client\": \"a\", \"text\": \"h\"}\r\n{\"text\": \"\u{e9}\", \"client\": \"b\"}";
    let dataset = read(lines, 5).unwrap();
    assert_eq!(symbols(&dataset), (&[1, 3, 2, 1, 89, 1, 4, 0, 0, 0][..], &[3, 2, 1, 89, 2, 4, 2, 0, 0, 0][..]));
    let owners = dataset.owners.unwrap();
    assert_eq!((owners.names, owners.of), (vec!["b".into(), "a".into()], vec![0, 1]));
}

#[test]
fn sixteen_symbols_a_chunk_unless_told_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("mine.jsonl");
    fs::write(&file, json!({ "client": "ann", "text": "x".repeat(31) }).to_string()).unwrap();
    let dataset = Source::named("text").unwrap().load(folder.path()).unwrap();
    assert_eq!(dataset.len(), 2);
    assert_eq!(dataset, Source::named("text").unwrap().load(&file).unwrap());
}

#[test]
fn bad_lines_are_refused_with_their_number() {
    let good = r#"{"client": "a", "text": "t"}"#;
    let second = |line: &str| read(&format!("{good}\n{line}\n"), 4);
    assert_refused(second(r#"{"client": "b", "text": ""}"#), &["made/up.file", "on line 2", "client `b` is empty"]);
    assert_refused(second(r#"{"client": "b"}"#), &["on line 2", "missing field `text`", "column 15"]);
    assert_refused(second(r#"{"client": "b", "text": 7}"#), &["on line 2", "invalid type"]);
    assert_refused(second(r#"{"client": "b", "text": "t"#), &["on line 2", "column 26"]);
    assert_refused(second("no JSON"), &["on line 2"]);
    assert_refused(read("", 4), &["no text was read"]);
    let bytes = [good.as_bytes(), b"\n{\"client\": \"\xc3\"}"].concat();
    assert_refused(Clients::default().read_lines(&bytes[..], nowhere()), &["on line 2", "not UTF-8 from column 13 on"]);
}

proptest! {
    #[test]
    fn inputs_and_targets_are_the_stream_without_its_last_and_first(
        lines in prop::collection::vec(("[ab]", "[a-zA-Z\n !?\u{e9}]{1,40}"), 1..8),
        length in 1u16..20,
    ) {
        let mut clients: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut file = String::new();
        for (client, text) in lines {
            file += &format!("{}\n", json!({ "client": client, "text": text }));
            clients.entry(client).or_default().push(text);
        }
        let dataset = read(&file, length).unwrap();
        assert_sound(&dataset);
        let (inputs, targets) = symbols(&dataset);
        let owners = dataset.owners.as_ref().unwrap();
        for (client, snippets) in clients {
            let mine = |symbols: &[u8]| -> Vec<u8> {
                let chunks = symbols.chunks(length.into()).zip(&owners.of);
                let chunks = chunks.filter(|(_, owner)| owners.names[**owner as usize] == client);
                chunks.flat_map(|(chunk, _)| chunk.to_vec()).filter(|&symbol| symbol != 0).collect()
            };
            let stream = stream(&snippets);
            prop_assert_eq!(mine(inputs), &stream[..stream.len() - 1]);
            prop_assert_eq!(mine(targets), &stream[1..]);
        }
    }
}
