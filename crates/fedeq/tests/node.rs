//! A node against a fake SuperLink: what it refuses, what it repeats, what it survives.
mod node_support;

use std::fs;
use std::process::Command;

use fedeq::node::{NodeWorker, Terms};
use fedeq_core::{Array, Client, ClientByClient, ClientTask, Params, Request, Weights, Workers, client_seed};
use fedeq_flower::envelope::Envelope;
use fedeq_flower::message::Message;
use fedeq_flower::node::{Notice, Refusal, Worker};
use fedeq_flower::object::{Id, id_of};
use fedeq_flower::record::{Content, Record};
use fedeq_flower::store::NodeStore;
use fedeq_flower::wire::{Failure, MessageMetadata, NamedValues, ObjectTree, Scalar};
use fedeq_run::experiment::{Experiment, Override};
use node_support::{App, CountingWorker, NodeFolder, SuperLink, message, settings};

/// A node that has trained in the first round.
fn trained(app: &App) -> (NodeFolder, SuperLink, CountingWorker) {
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(app));
    link.send(&app.train(0));
    let notices = node.serve(&link, &mut worker, 1);
    assert!(link.reply(0).content.is_ok(), "{notices:?}");
    (node, link, worker)
}

/// A request with other weights.
fn with_weights(app: &App, change: impl Fn(&str, &Array) -> Option<Array>) -> Message {
    let mut envelope = app.envelope(ClientTask::Train, 1);
    let all = envelope.request.weights.packed();
    let changed: Params = all.iter().filter_map(|(name, array)| Some((name.to_owned(), change(name, array)?))).collect();
    envelope.request.weights = Weights::unpacked(&changed);
    message("train", envelope.write().expect("plain"))
}

/// A request with one of its settings replaced.
fn with_setting(app: &App, key: &str, value: &str) -> Message {
    let content = app.envelope(ClientTask::Train, 1).write().expect("plain");
    let mut settings = content.config("fedeq").expect("settings").clone();
    settings.items.retain(|item| item.key != key);
    let settings = settings.with(key, Scalar::Text(value.into()));
    let weights = content.arrays("weights").expect("weights").clone();
    message("train", Content::default().with("weights", Record::Arrays(weights)).with("fedeq", Record::Config(settings)))
}

fn is_bias(name: &str) -> bool {
    name.ends_with("bias")
}

/// Whether a node has logged this reason of a refusal.
fn is_logged(notices: &[Notice], reason: &str) -> bool {
    notices.iter().any(|notice| matches!(notice, Notice::Refused(logged) if logged.contains(reason)))
}

/// Requests that a node should refuse, and a part of the reason that it logs for each.
fn malformed(app: &App) -> Vec<(Message, &'static str)> {
    let flat = |array: &Array| Array::new(vec![1, array.values.len()], array.values.to_vec());
    let number = |array: &Array, value: f32| Array::new(array.shape.clone(), vec![value; array.values.len()]);
    let train = app.train(1);
    let mut failed = train.clone();
    failed.content = Err(Failure { code: 0, reason: "out of memory".into() });
    let settings = NamedValues::default().with("federation", Scalar::Integer(1));
    vec![
        (Message { head: MessageMetadata { message_type: "dance".into(), ..train.head.clone() }, ..train.clone() }, "`dance`"),
        (failed, "out of memory"),
        (message("train", Content::default()), "no such record"),
        (message("train", Content::default().with("fedeq", Record::Config(settings))), "is missing or not a text"),
        (with_setting(app, "header", "{"), "its header is damaged"),
        (with_setting(app, "header", r#"{"task":"explode","round":1,"rounds":3,"rho":0.3}"#), "explode"),
        (with_setting(app, "experiment", "seed = 'none'"), "not a resolved experiment"),
        (with_setting(app, "layout", "[[\"params/w\",[1000000,1000000,1000000]]]"), "it has too few numbers"),
        (with_setting(app, "layout", "[]"), "numbers more than its layout"),
        (with_weights(app, |name, array| Some(if is_bias(name) { flat(array) } else { array.clone() })), "has not accepted"),
        (with_weights(app, |name, array| (!is_bias(name)).then(|| array.clone())), "has not accepted"),
        (with_weights(app, |_, array| Some(number(array, f32::NAN))), "holds the value `NaN`"),
        (with_weights(app, |_, array| Some(number(array, f32::INFINITY))), "holds the value `inf`"),
    ]
}

#[test]
fn malformed_requests_are_refused_and_change_nothing() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let before = node.stored_files();
    for (number, (request, words)) in malformed(&app).iter().enumerate() {
        let id = link.send(request);
        let notices = node.serve(&link, &mut worker, number + 2);
        let refusal = link.refusal(number + 1);
        assert!(matches!(refusal, Refusal::Unreadable | Refusal::Unable | Refusal::NotAccepted), "{words}");
        assert_eq!(link.reply(number + 1).head.reply_to_message_id, id, "{words}");
        assert!(is_logged(&notices, words), "{words}: {notices:?}");
        assert_eq!(node.stored_files(), before, "{words}");
    }
    let last = malformed(&app).len() + 1;
    link.send(&app.train(1));
    node.serve(&link, &mut worker, last + 1);
    assert!(link.reply(last).content.is_ok(), "the node still works");
}

/// Damages one object of a message.
type Damage = fn(Vec<u8>) -> Option<Vec<u8>>;

#[test]
fn damaged_objects_are_refused() {
    let ways: [(Damage, &str); 5] = [
        (|_| Some(b"ArrayChunk  0\0".to_vec()), "its bytes have another hash"),
        (|bytes| Some(bytes[..bytes.len() / 2].to_vec()), "its bytes have another hash"),
        (|_| Some(Vec::new()), "its bytes have another hash"),
        (|_| Some(vec![0; 17 << 20]), "more than"),
        (|_| None, "the SuperLink does not have it"),
    ];
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let before = node.stored_files();
    for (number, (damage, words)) in ways.into_iter().enumerate() {
        let request = app.train(1);
        link.send(&request);
        damage_largest(&link, damage);
        let notices = node.serve(&link, &mut worker, number + 2);
        assert_eq!(link.refusal(number + 1), Refusal::Unreadable, "{words}");
        assert!(is_logged(&notices, words), "{words}: {notices:?}");
        assert_eq!(node.stored_files(), before, "{words}");
    }
    assert_eq!(worker.works, 1);
}

/// Damages the object that contains the weights.
fn damage_largest(link: &SuperLink, damage: Damage) {
    let mut state = link.state();
    let largest = state.objects.iter().max_by_key(|(_, bytes)| bytes.len()).map(|(id, _)| id.clone()).expect("objects");
    let bytes = state.objects.remove(&largest).expect("it exists");
    state.objects.extend(damage(bytes).map(|bytes| (largest, bytes)));
}

#[test]
fn a_tree_of_too_many_objects_is_refused() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let leaf = |number: usize| ObjectTree { object_id: id_of(&number.to_le_bytes()), children: Vec::new() };
    let tree = ObjectTree { object_id: id_of(b"root"), children: (0..20_000).map(leaf).collect() };
    link.state().announce(&app.train(1), tree);
    let notices = node.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unreadable);
    assert!(is_logged(&notices, "more than 20000 objects"), "{notices:?}");
}

#[test]
fn a_request_of_an_unknown_run_is_dropped_and_others_are_carried_out() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    link.send(&app.train(1));
    link.state().failures.extend([("pull-object", (403, 1)), ("push-messages", (403, 1))]);
    link.send(&app.evaluate(1));
    let notices = node.serve(&link, &mut worker, 2);
    assert!(matches!(&notices[1], Notice::Refused(words) if words.contains("403")), "{notices:?}");
    assert_eq!((link.reply(1).head.message_type.as_str(), worker.works), ("evaluate", 2));
}

#[test]
fn a_reply_that_the_superlink_refuses_is_dropped() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    link.state().failures.insert("push-messages", (403, 1));
    link.send(&app.train(1));
    link.send(&app.evaluate(2));
    node.serve(&link, &mut worker, 2);
    assert_eq!(link.reply(1).head.message_type, "evaluate");
    assert!(node.is_done());
}

#[test]
fn an_expired_request_is_not_carried_out() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let request = app.train(1);
    let head = MessageMetadata { created_at: request.head.created_at - 7200.0, ..request.head.clone() };
    link.send(&Message { head, ..request });
    node.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Expired);
    assert_eq!(worker.works, 1);
}

/// The content of a reply.
fn content(link: &SuperLink, number: usize) -> Content {
    link.reply(number).content.expect("a reply")
}

#[test]
fn a_repeated_message_gets_the_same_bytes_and_is_not_trained_twice() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let request = app.train(1);
    for _ in 0..3 {
        link.send(&request);
    }
    node.serve(&link, &mut worker, 4);
    let ids: Vec<Id> = (1..4).map(|number| link.reply_id(number)).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "an id is the hash of all bytes");
    assert_eq!(worker.works, 2);
}

#[test]
fn the_same_request_of_a_restarted_server_gets_the_same_reply() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let state = node.trained().state;
    let mut again = app.train(0);
    again.head.run_id = 4;
    let id = link.send(&again);
    let notices = node.serve(&link, &mut worker, 2);
    assert!(notices.iter().any(|notice| matches!(notice, Notice::Replied { seconds, .. } if *seconds == 0.0)), "{notices:?}");
    assert_eq!(content(&link, 1), content(&link, 0));
    assert_eq!((link.reply(1).head.run_id, link.reply(1).head.reply_to_message_id), (4, id));
    assert_eq!((worker.works, node.trained().state), (1, state));
}

#[test]
fn a_round_is_not_trained_a_second_time_from_other_weights() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let before = node.stored_files();
    let mut elsewhere = app.envelope(ClientTask::Train, 0);
    elsewhere.request.weights.params = elsewhere.request.weights.params.map(|value| value + 0.1);
    link.send(&message("train", elsewhere.write().expect("plain")));
    let notices = node.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unable);
    assert!(is_logged(&notices, "has trained in round 1 before"), "{notices:?}");
    assert_eq!(node.stored_files(), before);
}

#[test]
fn a_reply_that_could_not_be_sent_is_sent_after_a_restart_without_training_again() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    link.state().failures.insert("push-object", (503, usize::MAX));
    link.send(&app.train(1));
    let has_tried = || link.state().calls.iter().filter(|(call, _)| call == "push-object").count() > 8;
    node.serve_until(&link, &mut worker, &has_tried);
    let state = node.trained().state;
    link.state().failures.clear();
    let mut restarted = CountingWorker::accepting(&app);
    node.serve_until(&link, &mut restarted, &|| node.is_done());
    assert_eq!((worker.works, restarted.works), (2, 0));
    assert_eq!(node.trained().state, state);
}

#[test]
fn a_request_whose_objects_arrive_late_is_not_lost() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    link.state().failures.insert("pull-object", (503, 3));
    link.send(&app.train(1));
    node.serve(&link, &mut worker, 2);
    assert!(link.reply(1).content.is_ok());
}

#[test]
fn a_node_registers_again_with_a_superlink_that_does_not_know_it() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    link.state().failures.insert("pull-messages", (401, 1));
    link.send(&app.train(1));
    let notices = node.serve(&link, &mut worker, 2);
    assert_eq!(notices.iter().filter(|notice| matches!(notice, Notice::Joined(_))).count(), 2);
}

#[test]
fn a_lost_or_damaged_dual_is_an_error() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let file = node.state_file();
    let mut bytes = fs::read(&file).expect("readable");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).expect("written");
    link.send(&app.train(1));
    let notices = node.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unable);
    assert!(is_logged(&notices, "are damaged"), "{notices:?}");
    fs::remove_file(&file).expect("removed");
    link.send(&app.train(2));
    let notices = node.serve(&link, &mut worker, 3);
    assert_eq!(link.refusal(2), Refusal::Unable);
    assert!(is_logged(&notices, "cannot read the model and the dual"), "{notices:?}");
    assert_eq!(worker.works, 1);
}

fn fedeq(arguments: &[&str], state: &NodeFolder) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.args(arguments).arg("--state").arg(state.path()).env_remove("FEDEQ_DATA");
    command.output().expect("the program starts")
}

/// What the program says when it refuses its arguments.
fn refused(arguments: &[&str], node: &NodeFolder) -> String {
    let output = fedeq(arguments, node);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    said
}

#[test]
fn a_folder_is_for_one_process_and_one_client() {
    let (node, arguments) =
        (NodeFolder::new(), ["node", "--superlink", "127.0.0.1:1", "--insecure", "--client", "4", "--accept", "none"]);
    let store = NodeStore::open(node.path()).expect("not locked");
    store.claim(3).expect("new");
    assert!(refused(&arguments, &node).contains("another process is using this folder"));
    store.key().expect("a key");
    let public = fedeq(&["node", "key"], &node).stdout;
    assert!(public.starts_with(b"ecdsa-sha2-nistp256 "), "the public key can be read meanwhile");
    drop(store);
    assert!(refused(&arguments, &node).contains("belongs to client `3`, not to `4`"));
}

#[test]
fn a_node_predicts_with_no_connection_what_a_simulated_client_predicts() {
    let app = App::write();
    let (node, _link, _worker) = trained(&app);
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let mut simulation = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    simulation.args(["run", "--quiet", "--out"]).arg(&run);
    simulation.args(settings()).args(["--set", "plan.rounds=1"]);
    assert!(simulation.output().expect("the program starts").status.success());
    let mut predict = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    let simulated = predict.arg("predict").arg(&run).args(["--client", "client-0", "--json"]).output().expect("it starts");
    // Also while a node is running on the folder.
    let _store = NodeStore::open(node.path()).expect("free");
    let ours = fedeq(&["node", "predict", "--json"], &node);
    assert!(!ours.stdout.is_empty(), "{}", String::from_utf8_lossy(&ours.stderr));
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&simulated.stdout));
}

#[test]
fn a_node_starts_from_the_same_head_of_its_own_as_a_simulated_client() {
    let wishes: Vec<Override> = settings().filter(|word| *word != "--set").map(|wish| wish.parse().expect("a setting")).collect();
    let own = "training.initial_heads=own".parse().expect("a setting");
    let experiment = Experiment::read(None, &[wishes, vec![own]].concat()).expect("sound");
    let prepared = experiment.prepare().expect("sound");
    let request = Request { task: ClientTask::Train, round: 0, rounds: 3, rho: Some(0.3), weights: prepared.server().weights };
    let mut state = prepared.fresh_state(2);
    assert_ne!(state.own.head(), prepared.fresh_state(1).own.head());
    let engine = ClientByClient::new(&prepared, Workers::new(1).expect("a thread"));
    let seed = client_seed(prepared.clients_seed(), 2);
    let (algorithm, training) = (experiment.method.algorithm(), &experiment.training);
    Client { algorithm, training, engine: &engine, number: 2, state: &mut state, seed, compression: None }
        .handle(&request)
        .expect("trained");
    let text = experiment.to_toml().expect("writable");
    let envelope = Envelope::new("any", &text, request);
    let done = NodeWorker::new(2, "".into(), Terms::default()).work(&envelope, None).expect("trained");
    assert!(done.state.expect("it has trained") == state.to_bytes().expect("writable"));
}

#[test]
fn one_of_several_federations_is_chosen_by_what_was_trained_in_it() {
    let (mut node, link, mut worker) = trained(&App::write());
    node.limits.federations = 2;
    link.send(&App::write().train(1));
    node.serve(&link, &mut worker, 2);
    let said = refused(&["node", "predict"], &node);
    assert!(said.contains("the models of several federations"), "{said}");
    assert!(refused(&["node", "predict", "--federation", "other"], &node).contains("no model of a federation `other`"));
    let choices: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("--federation ")).collect();
    assert!(choices.iter().all(|choice| choice.contains("fedeq on digits with deq-mlp, round")), "{said}");
    let (name, _) = choices[1].split_once(' ').expect("a name and a description");
    assert!(fedeq(&["node", "predict", "--federation", name], &node).status.success());
}

#[test]
fn a_folder_without_a_model_is_refused() {
    for arguments in [&["node", "predict"][..], &["node", "predict", "--federation", "any"]] {
        assert!(refused(arguments, &NodeFolder::new()).contains("has no model yet"));
    }
}
