//! A node against a malicious server that wants to read its data, exhaust its memory, or crash it.
mod node_support;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fedeq::node::NodeWorker;
use fedeq_core::{Array, ClientTask, Request};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::message::Message;
use fedeq_flower::node::{Accepted, Notice, Objection, Refusal, WorkResult, Worker};
use fedeq_flower::npy;
use fedeq_flower::object::{Bundle, Id, Object, ObjectKind};
use fedeq_flower::record::Content;
use fedeq_flower::wire;
use node_support::{App, CountingWorker, NodeFolder, SuperLink, message};
use prost::Message as _;
use serde_json::json;

/// The app of a federation whose devices bring tables of their own.
fn app_of_tables(folder: &Path) -> App {
    let example = folder.join("example.csv");
    fs::write(&example, "label,height\nwell,1\nill,2\n").expect("writable");
    let settings = [
        "data=csv",
        "data.partition.rule=own",
        "data.partition.clients=1",
        "model=mlp",
        "method=fedrep",
        "plan.rounds=2",
        "plan.sampling.fraction=1",
    ];
    let settings = settings.iter().flat_map(|setting| ["--set", setting]);
    App::with(["--data", example.to_str().expect("UTF-8")].into_iter().chain(settings))
}

/// All that a SuperLink has received, as text.
fn received(link: &SuperLink) -> String {
    link.state().calls.iter().map(|(_, body)| String::from_utf8_lossy(body)).collect()
}

#[test]
fn a_refusal_tells_the_server_nothing_about_the_data_or_its_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let app = app_of_tables(folder.path());
    let data = folder.path().join("patients-of-ward-7.csv");
    let tables = [
        ("label,height\nhiv-positive,180.5\nwell,170\n", "hiv-positive"),
        ("label,height\nwell,one-hundred-and-eighty\nill,170\n", "one-hundred-and-eighty"),
        ("label,secret-column,height\nwell,1,2\nill,2,3\n", "deviations do not fit"),
        ("", "patients-of-ward-7"),
    ];
    for (number, (table, secret)) in tables.into_iter().enumerate() {
        fs::write(&data, table).expect("writable");
        let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), NodeWorker::new(0, data.clone(), app.terms()));
        link.send(&app.train(0));
        let notices = node.serve(&link, &mut worker, 1);
        assert_eq!(link.refusal(0), Refusal::Unable, "{number}");
        let said = format!("{notices:?}");
        assert!(said.contains(secret), "the reason is in the node's log: {said}");
        for word in [secret, "positive", "hundred", "secret", "patients", "ward-7", ".csv", "180.5"] {
            assert!(!received(&link).contains(word), "the server has received `{word}`");
        }
    }
}

/// A worker that panics at some round.
struct Fragile {
    inner: CountingWorker,
    panics_at: u64,
}

impl Worker for Fragile {
    fn client(&self) -> u64 {
        self.inner.client()
    }

    fn review(&self, envelope: &Envelope) -> Result<Accepted, Objection> {
        self.inner.review(envelope)
    }

    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> Result<WorkResult, String> {
        let Request { task, round, .. } = envelope.request;
        assert!(task != ClientTask::Train || round != self.panics_at, "a round at which the worker panics");
        self.inner.work(envelope, state)
    }
}

#[test]
fn a_node_ends_on_a_panic_and_refuses_the_request_from_then_on() {
    let app = App::write();
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut fragile = Fragile { inner: CountingWorker::accepting(&app), panics_at: 1 };
    link.send(&app.train(0));
    link.send(&app.train(1));
    let ended = catch_unwind(AssertUnwindSafe(|| node.serve(&link, &mut fragile, 2)));
    assert!(ended.is_err(), "the panic is not hidden");
    assert_eq!((link.replies(), fragile.inner.works), (1, 1));
    let beats = |link: &SuperLink| link.state().calls.iter().filter(|(call, _)| call == "send-node-heartbeat").count();
    let before = beats(&link);

    // Started again, it finds the request and does not try a second time, nor when another message asks for the same.
    let notices = node.serve(&link, &mut fragile, 2);
    assert_eq!((link.refusal(1), fragile.inner.works), (Refusal::Crashed, 1));
    assert!(notices.iter().any(|notice| matches!(notice, Notice::Refused(words) if words.contains("not tried again"))));
    let mut again = app.train(1);
    again.head.run_id = 4;
    link.send(&again);
    link.send(&app.evaluate(1));
    node.serve(&link, &mut fragile, 4);
    let refused = (2..4).filter(|number| link.reply(*number).content.is_err()).count();
    assert_eq!((refused, fragile.inner.works), (1, 2), "another request is carried out");
    assert!(beats(&link) >= before && node.is_done());
}

/// A message for the node whose content is the given object.
fn wrapped(content: Id, bundle: &mut Bundle) -> (Message, Id) {
    let request = message("train", Content::default());
    let body = wire::MessageHeader { metadata: Some(request.head.clone()), content: None, error: None }.encode_to_vec();
    let id = bundle.add(&Object { kind: ObjectKind::Message, children: vec![content], body });
    (request, id)
}

fn add(bundle: &mut Bundle, kind: ObjectKind, children: &[&Id], body: Vec<u8>) -> Id {
    bundle.add(&Object { kind, children: children.iter().map(|&id| id.clone()).collect(), body })
}

/// An array that refers to one chunk of a megabyte so many times.
fn array(bundle: &mut Bundle, shape: &[u64], pieces: usize) -> Id {
    let piece = add(bundle, ObjectKind::ArrayChunk, &[], vec![7; 1 << 20]);
    let body = json!({ "dtype": "float32", "shape": shape, "stype": "numpy.ndarray", "arraychunk_ids": vec![0; pieces] });
    add(bundle, ObjectKind::Array, &[&piece], body.to_string().into_bytes())
}

/// A valid array of 30 MB of zeros, whose chunks are almost all the same object.
fn zeros(bundle: &mut Bundle) -> Id {
    let numbers = 30 << 18;
    let file = npy::write(&Array::new(vec![numbers], vec![0.0; numbers]));
    let pieces: Vec<Id> = file.chunks(1 << 20).map(|piece| add(bundle, ObjectKind::ArrayChunk, &[], piece.to_vec())).collect();
    let last = pieces.len() - 1;
    let places: Vec<usize> = (0..=last).map(|place| if place == last { 2 } else { place.min(1) }).collect();
    let body = json!({ "dtype": "float32", "shape": [numbers], "stype": "numpy.ndarray", "arraychunk_ids": places });
    add(bundle, ObjectKind::Array, &[&pieces[0], &pieces[1], &pieces[last]], body.to_string().into_bytes())
}

fn named(bundle: &mut Bundle, kind: ObjectKind, id: &Id, names: usize) -> Id {
    let body: serde_json::Map<_, _> = (0..names).map(|name| (format!("{name:06}"), id.clone().into())).collect();
    add(bundle, kind, &[id], serde_json::Value::Object(body).to_string().into_bytes())
}

/// A few megabytes that unpack to many gigabytes, in different ways.
fn bombs() -> Vec<(&'static str, Bundle, Id)> {
    let mut all = Vec::new();
    let mut with = |name, make: &dyn Fn(&mut Bundle) -> Id| {
        let mut bundle = Bundle::default();
        let content = make(&mut bundle);
        all.push((name, bundle, content));
    };
    let record = |bundle: &mut Bundle, array: &Id| named(bundle, ObjectKind::ArrayRecord, array, 1);
    with("more chunks than a small shape needs", &|bundle| {
        let array = array(bundle, &[10], 300_000);
        let record = record(bundle, &array);
        named(bundle, ObjectKind::RecordDict, &record, 1)
    });
    with("as many chunks as a large shape needs", &|bundle| {
        let array = array(bundle, &[300_000 << 18], 300_000);
        let record = record(bundle, &array);
        named(bundle, ObjectKind::RecordDict, &record, 1)
    });
    with("a shape that overflows", &|bundle| {
        let array = array(bundle, &[u64::MAX, u64::MAX], 1);
        let record = record(bundle, &array);
        named(bundle, ObjectKind::RecordDict, &record, 1)
    });
    with("many names for one array", &|bundle| {
        let array = zeros(bundle);
        let record = named(bundle, ObjectKind::ArrayRecord, &array, 20_000);
        named(bundle, ObjectKind::RecordDict, &record, 1)
    });
    with("many names for one record", &|bundle| {
        let array = zeros(bundle);
        let record = record(bundle, &array);
        named(bundle, ObjectKind::RecordDict, &record, 20_000)
    });
    with("millions of empty values", &|bundle| {
        let record = add(bundle, ObjectKind::ConfigRecord, &[], [10, 0].repeat(4 << 20));
        named(bundle, ObjectKind::RecordDict, &record, 1)
    });
    all
}

#[test]
fn a_message_that_unpacks_to_gigabytes_is_refused_before_it_does() {
    let app = App::write();
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    let before = peak_memory();
    for (number, (name, mut bundle, content)) in bombs().into_iter().enumerate() {
        let (request, id) = wrapped(content, &mut bundle);
        link.send_objects(&request, &id, &bundle);
        node.serve(&link, &mut worker, number + 1);
        assert!(matches!(link.refusal(number), Refusal::TooLarge | Refusal::Unreadable), "{name}");
    }
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < 1 << 30, "it took {} MB", grown >> 20);
    link.send(&app.train(0));
    node.serve(&link, &mut worker, bombs().len() + 1);
    assert!(link.reply(bombs().len()).content.is_ok(), "the node still works");
}

/// The peak memory of this process, where the system tells.
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().map_or(0, |kibibytes| kibibytes << 10)
}

#[test]
fn the_largest_size_of_a_message_is_a_setting() {
    let app = App::write();
    let (mut node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    node.limits.message = 10_000;
    link.send(&app.train(0));
    let notices = node.serve(&link, &mut worker, 1);
    assert_eq!((link.refusal(0), worker.works), (Refusal::TooLarge, 0));
    assert!(format!("{notices:?}").contains("--message-limit"), "{notices:?}");
    node.limits.message = 100 << 20;
    let mut again = app.train(0);
    again.head.run_id = 4;
    link.send(&again);
    node.serve(&link, &mut worker, 2);
    assert!(link.reply(1).content.is_ok());
}
