//! A node against a server that wants to learn too much, take too much, or bring it down.
mod node_support;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fedeq::node::Member;
use fedeq_core::{Array, Request, Task};
use fedeq_flower::letter::Assignment;
use fedeq_flower::message::Message;
use fedeq_flower::node::{Done, Notice, Refusal, Worker};
use fedeq_flower::npy;
use fedeq_flower::object::{Bundle, Id, Kind, Object};
use fedeq_flower::record::Content;
use fedeq_flower::wire;
use node_support::{App, Counted, Site, SuperLink, message};
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

/// All that a SuperLink has heard, as text.
fn heard(link: &SuperLink) -> String {
    link.desk().heard.iter().map(|(_, body)| String::from_utf8_lossy(body)).collect()
}

#[test]
fn a_refusal_tells_the_server_nothing_of_the_data_or_where_it_lies() {
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
        let (site, link, mut worker) = (Site::new(), SuperLink::start(), Member::new(0, data.clone()));
        link.ask(&app.train(0));
        let notices = site.serve(&link, &mut worker, 1);
        assert_eq!(link.refusal(0), Refusal::Unable, "{number}");
        let said = format!("{notices:?}");
        assert!(said.contains(secret), "who runs the node is told what is wrong: {said}");
        for word in [secret, "positive", "hundred", "secret", "patients", "ward-7", ".csv", "180.5"] {
            assert!(!heard(&link).contains(word), "the server has heard `{word}`");
        }
    }
}

/// A worker that panics at some round.
struct Fragile {
    inner: Counted,
    panics_at: u64,
}

impl Worker for Fragile {
    fn number(&self) -> u64 {
        self.inner.number()
    }

    fn work(&mut self, assignment: &Assignment, state: Option<&[u8]>) -> Result<Done, String> {
        let Request { task, round, .. } = assignment.request;
        assert!(task != Task::Train || round != self.panics_at, "this is no round to work on");
        self.inner.work(assignment, state)
    }
}

#[test]
fn a_node_ends_on_a_panic_and_refuses_the_question_from_then_on() {
    let app = App::write();
    let (site, link) = (Site::new(), SuperLink::start());
    let mut fragile = Fragile { inner: Counted::new(), panics_at: 1 };
    link.ask(&app.train(0));
    link.ask(&app.train(1));
    let ended = catch_unwind(AssertUnwindSafe(|| site.serve(&link, &mut fragile, 2)));
    assert!(ended.is_err(), "the panic is not hidden");
    assert_eq!((link.answered(), fragile.inner.works), (1, 1));
    let beats = |link: &SuperLink| link.desk().heard.iter().filter(|(call, _)| call == "send-node-heartbeat").count();
    let before = beats(&link);

    // Started again, it finds the question, and does not try a second time; also not if it is asked in another message.
    let notices = site.serve(&link, &mut fragile, 2);
    assert_eq!((link.refusal(1), fragile.inner.works), (Refusal::Fatal, 1));
    assert!(notices.iter().any(|notice| matches!(notice, Notice::Refused(words) if words.contains("not tried again"))));
    let mut again = app.train(1);
    again.head.run_id = 4;
    link.ask(&again);
    link.ask(&app.evaluate(1));
    site.serve(&link, &mut fragile, 4);
    let refused = (2..4).filter(|number| link.answer(*number).content.is_err()).count();
    assert_eq!((refused, fragile.inner.works), (1, 2), "another question is answered");
    assert!(beats(&link) >= before && site.is_done());
}

/// A message for the node whose content is the given object.
fn wrapped(content: Id, bundle: &mut Bundle) -> (Message, Id) {
    let question = message("train", Content::default());
    let body = wire::Message { metadata: Some(question.head.clone()), content: None, error: None }.encode_to_vec();
    let id = bundle.add(&Object { kind: Kind::Message, children: vec![content], body });
    (question, id)
}

fn add(bundle: &mut Bundle, kind: Kind, children: &[&Id], body: Vec<u8>) -> Id {
    bundle.add(&Object { kind, children: children.iter().map(|&id| id.clone()).collect(), body })
}

/// An array of so many bytes that names one piece of a megabyte that often.
fn array(bundle: &mut Bundle, shape: &[u64], pieces: usize) -> Id {
    let piece = add(bundle, Kind::ArrayChunk, &[], vec![7; 1 << 20]);
    let body = json!({ "dtype": "float32", "shape": shape, "stype": "numpy.ndarray", "arraychunk_ids": vec![0; pieces] });
    add(bundle, Kind::Array, &[&piece], body.to_string().into_bytes())
}

/// An honest array of 30 MB of zeros, which has two different pieces.
fn zeros(bundle: &mut Bundle) -> Id {
    let numbers = 30 << 18;
    let file = npy::write(&Array::new(vec![numbers], vec![0.0; numbers]));
    let pieces: Vec<Id> = file.chunks(1 << 20).map(|piece| add(bundle, Kind::ArrayChunk, &[], piece.to_vec())).collect();
    let last = pieces.len() - 1;
    let places: Vec<usize> = (0..=last).map(|place| if place == last { 2 } else { place.min(1) }).collect();
    let body = json!({ "dtype": "float32", "shape": [numbers], "stype": "numpy.ndarray", "arraychunk_ids": places });
    add(bundle, Kind::Array, &[&pieces[0], &pieces[1], &pieces[last]], body.to_string().into_bytes())
}

fn named(bundle: &mut Bundle, kind: Kind, id: &Id, names: usize) -> Id {
    let body: serde_json::Map<_, _> = (0..names).map(|name| (format!("{name:06}"), id.clone().into())).collect();
    add(bundle, kind, &[id], serde_json::Value::Object(body).to_string().into_bytes())
}

/// A few megabytes that say they are many gigabytes, in different ways.
fn bombs() -> Vec<(&'static str, Bundle, Id)> {
    let mut all = Vec::new();
    let mut with = |name, make: &dyn Fn(&mut Bundle) -> Id| {
        let mut bundle = Bundle::default();
        let content = make(&mut bundle);
        all.push((name, bundle, content));
    };
    let record = |bundle: &mut Bundle, array: &Id| named(bundle, Kind::ArrayRecord, array, 1);
    with("pieces beyond a small shape", &|bundle| {
        let array = array(bundle, &[10], 300_000);
        let record = record(bundle, &array);
        named(bundle, Kind::RecordDict, &record, 1)
    });
    with("as many pieces as a large shape wants", &|bundle| {
        let array = array(bundle, &[300_000 << 18], 300_000);
        let record = record(bundle, &array);
        named(bundle, Kind::RecordDict, &record, 1)
    });
    with("a shape that nobody can count", &|bundle| {
        let array = array(bundle, &[u64::MAX, u64::MAX], 1);
        let record = record(bundle, &array);
        named(bundle, Kind::RecordDict, &record, 1)
    });
    with("many names for one array", &|bundle| {
        let array = zeros(bundle);
        let record = named(bundle, Kind::ArrayRecord, &array, 20_000);
        named(bundle, Kind::RecordDict, &record, 1)
    });
    with("many names for one record", &|bundle| {
        let array = zeros(bundle);
        let record = record(bundle, &array);
        named(bundle, Kind::RecordDict, &record, 20_000)
    });
    with("empty values without end", &|bundle| {
        let record = add(bundle, Kind::ConfigRecord, &[], [10, 0].repeat(4 << 20));
        named(bundle, Kind::RecordDict, &record, 1)
    });
    all
}

#[test]
fn a_message_that_unpacks_to_gigabytes_is_refused_before_it_does() {
    let app = App::write();
    let (site, link, mut worker) = (Site::new(), SuperLink::start(), Counted::new());
    let before = peak_memory();
    for (number, (name, mut bundle, content)) in bombs().into_iter().enumerate() {
        let (question, id) = wrapped(content, &mut bundle);
        link.ask_objects(&question, &id, &bundle);
        site.serve(&link, &mut worker, number + 1);
        assert!(matches!(link.refusal(number), Refusal::TooLarge | Refusal::Unreadable), "{name}");
    }
    let grown = peak_memory().saturating_sub(before);
    assert!(grown < 1 << 30, "it took {} MB", grown >> 20);
    link.ask(&app.train(0));
    site.serve(&link, &mut worker, bombs().len() + 1);
    assert!(link.answer(bombs().len()).content.is_ok(), "and it still works");
}

/// The most memory that this process has held, where the system tells.
fn peak_memory() -> usize {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<usize>().map_or(0, |kibibytes| kibibytes << 10)
}

#[test]
fn what_a_message_may_take_is_a_setting() {
    let app = App::write();
    let (mut site, link, mut worker) = (Site::new(), SuperLink::start(), Counted::new());
    site.message_limit = 10_000;
    link.ask(&app.train(0));
    let notices = site.serve(&link, &mut worker, 1);
    assert_eq!((link.refusal(0), worker.works), (Refusal::TooLarge, 0));
    assert!(format!("{notices:?}").contains("--message-limit"), "{notices:?}");
    site.message_limit = 100 << 20;
    let mut again = app.train(0);
    again.head.run_id = 4;
    link.ask(&again);
    site.serve(&link, &mut worker, 2);
    assert!(link.answer(1).content.is_ok());
}
