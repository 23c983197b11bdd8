//! Objects equal those of Flower 1.41 to the byte; `golden/make.py` made the golden objects.
use std::collections::BTreeMap;

use base64::prelude::{BASE64_STANDARD, Engine};
use fedeq_core::{Array, Params};
use fedeq_flower::message::Message;
use fedeq_flower::object::{Bundle, Object, ObjectKind, ids_of};
use fedeq_flower::record::{Content, Record};
use fedeq_flower::wire::{Doubles, Integers, MessageMetadata, NamedValues, Scalar};
use proptest::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    message: String,
    content: String,
    ids: Vec<String>,
    objects: BTreeMap<String, String>,
}

fn golden() -> Golden {
    serde_json::from_str(include_str!("golden/golden.json")).expect("JSON")
}

fn arrays() -> Params {
    let array = |shape: &[usize], values: Vec<f32>| Array::new(shape.to_vec(), values);
    let large = (0..1_600_000).map(|index| (index % 7) as f32).collect();
    let named = [
        ("body.weight", array(&[2, 3], (0..6).map(|index| index as f32 / 4.0).collect())),
        ("body.bias", array(&[1], vec![-1.5])),
        ("empty", array(&[0, 3], vec![])),
        ("large", array(&[1_600_000], large)),
        ("scalar", array(&[], vec![2.5])),
        ("twin", array(&[1], vec![-1.5])),
    ];
    named.into_iter().map(|(name, array)| (name.to_owned(), array)).collect()
}

fn message() -> Message {
    let metrics = NamedValues::default()
        .with("loss", Scalar::Double(0.25))
        .with("samples", Scalar::Integer(17))
        .with("curve", Scalar::Doubles(Doubles { vals: vec![0.5, -1.0] }))
        .with("counts", Scalar::Integers(Integers { vals: vec![1, -2] }));
    let config = NamedValues::default()
        .with("round", Scalar::Integer(3))
        .with("rho", Scalar::Double(0.01))
        .with("task", Scalar::Text("train".into()))
        .with("on", Scalar::Bool(true))
        .with("raw", Scalar::Bytes(vec![0, 1]));
    let content = Content::default()
        .with("arrays", Record::Arrays(arrays()))
        .with("metrics", Record::Metrics(metrics))
        .with("config", Record::Config(config));
    let head = MessageMetadata {
        run_id: 7,
        src_node_id: 1,
        dst_node_id: 12,
        group_id: "3".into(),
        ttl: 60.0,
        message_type: "train".into(),
        created_at: 1_700_000_000.5,
        ..MessageMetadata::default()
    };
    Message { head, content: Ok(content) }
}

#[test]
fn a_message_has_the_objects_that_flower_gives_it() {
    let golden = golden();
    let mut bundle = Bundle::default();
    assert_eq!(message().deflate(&mut bundle), golden.message);
    let mut ids = ids_of(&bundle.tree(&golden.message).expect("a tree"), 100).expect("few");
    ids.sort();
    assert_eq!(ids, golden.ids);
    for (id, bytes) in &golden.objects {
        assert_eq!(bundle.bytes(id), Some(&BASE64_STANDARD.decode(bytes).expect("base64")[..]), "{id}");
    }
}

#[test]
fn deflating_and_inflating_gives_the_same_message() {
    let mut bundle = Bundle::default();
    let id = message().deflate(&mut bundle);
    let again = Message::inflate(&id, &bundle).expect("complete");
    let (ours, theirs) = (message().content.expect("content"), again.content.expect("content"));
    assert_eq!(theirs.arrays("arrays").expect("arrays"), ours.arrays("arrays").expect("arrays"));
    assert_eq!(theirs.config("config").expect("config"), ours.config("config").expect("config"));
    assert_eq!(again.head.message_id, id);
}

#[test]
fn a_message_beyond_the_memory_limit_is_refused() {
    let mut bundle = Bundle::default();
    let id = message().deflate(&mut bundle);
    let refused = |most| Message::inflate_within(&id, &bundle, most).expect_err("6.4 MB").to_string();
    for most in [0, 1000, 1 << 20, 6_400_000] {
        assert!(refused(most).contains("--message-limit"), "{most}: {}", refused(most));
    }
    assert!(Message::inflate_within(&id, &bundle, 7 << 20).is_ok(), "only memory that is really taken is counted");
}

#[test]
fn a_reply_goes_back_to_the_sender_and_expires_with_the_request() {
    let request = Message { head: MessageMetadata { message_id: "q".into(), ..message().head }, ..message() };
    let reply = request.reply(Ok(Content::default()));
    assert_eq!((reply.head.src_node_id, reply.head.dst_node_id), (12, 1));
    let end = |head: &MessageMetadata| head.created_at + head.ttl;
    assert_eq!((reply.head.reply_to_message_id.as_str(), end(&reply.head)), ("q", end(&request.head)));
    assert_eq!(reply, request.reply(Ok(Content::default())), "it does not depend on the time");
}

#[test]
fn a_missing_object_is_named() {
    let mut bundle = Bundle::default();
    let content = golden().content;
    let id = bundle.add(&Object { kind: ObjectKind::Message, children: vec![content.clone()], body: vec![10, 0] });
    let error = Message::inflate(&id, &bundle).expect_err("its content is missing").to_string();
    assert!(error.contains(&content), "{error}");
}

#[test]
fn an_object_with_another_hash_is_refused() {
    let golden = golden();
    let mut bundle = Bundle::default();
    bundle.receive(golden.message.clone(), b"Message  0\0".to_vec());
    assert!(Message::inflate(&golden.message, &bundle).expect_err("another hash").to_string().contains("another hash"));
}

#[test]
fn a_tree_of_too_many_objects_is_refused() {
    let tree = fedeq_flower::wire::ObjectTree { object_id: "0".repeat(64), children: vec![Default::default(); 10] };
    assert!(ids_of(&tree, 5).is_err());
}

proptest! {
    /// Arbitrary bytes under their true hash are read or refused.
    #[test]
    fn no_bytes_crash_the_reader(body in proptest::collection::vec(any::<u8>(), 0..300), kind in 0..8_usize) {
        let kinds = ["Message", "RecordDict", "ArrayRecord", "MetricRecord", "ConfigRecord", "Array", "ArrayChunk", "Other"];
        let mut bytes = format!("{}  {}\0", kinds[kind], body.len()).into_bytes();
        bytes.extend(body);
        let id = fedeq_flower::object::id_of(&bytes);
        let mut bundle = Bundle::default();
        bundle.receive(id.clone(), bytes);
        let _ = Message::inflate(&id, &bundle);
        let _ = Content::inflate(&id, &bundle);
        let _ = bundle.tree(&id);
    }

    /// A good message with one byte changed anywhere in its small objects is read or refused.
    #[test]
    fn a_damaged_message_is_refused(which in 0..14_usize, at in any::<prop::sample::Index>(), with in 1..=255_u8) {
        let golden = golden();
        let mut bundle = Bundle::default();
        let id = message().deflate(&mut bundle);
        let (victim, bytes) = golden.objects.iter().nth(which).expect("there are 14");
        let mut bytes = BASE64_STANDARD.decode(bytes).expect("base64");
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        bundle.receive(victim.clone(), bytes);
        prop_assert!(Message::inflate(&id, &bundle).is_err());
    }
}
