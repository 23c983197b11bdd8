//! A node against a SuperLink that is not one: what it refuses, what it repeats, what it survives.
mod node_support;

use std::fs;
use std::process::Command;

use fedeq::node::Member;
use fedeq_core::{Array, Client, Params, Request, Task, Weights, client_seed};
use fedeq_flower::letter::Assignment;
use fedeq_flower::message::Message;
use fedeq_flower::node::{Notice, Refusal, Worker};
use fedeq_flower::object::{Id, id_of};
use fedeq_flower::record::{Content, Record};
use fedeq_flower::vault::Vault;
use fedeq_flower::wire::{Failure, Metadata, ObjectTree, Scalar, Values};
use fedeq_run::experiment::{Experiment, Override};
use node_support::{App, Counted, Site, SuperLink, message, settings};

/// A site whose node has trained in the first round.
fn trained(app: &App) -> (Site, SuperLink, Counted) {
    let (site, link, mut worker) = (Site::new(), SuperLink::start(), Counted::new());
    link.ask(&app.train(0));
    site.serve(&link, &mut worker, 1);
    assert!(link.answer(0).content.is_ok());
    (site, link, worker)
}

/// The first round's question with other weights.
fn with_weights(app: &App, change: impl Fn(&str, &Array) -> Option<Array>) -> Message {
    let mut assignment = app.assignment(Task::Train, 1);
    let all = assignment.request.weights.packed();
    let changed: Params = all.iter().filter_map(|(name, array)| Some((name.to_owned(), change(name, array)?))).collect();
    assignment.request.weights = Weights::unpacked(&changed);
    message("train", assignment.write().expect("plain"))
}

/// The first round's question with a setting replaced.
fn with_setting(app: &App, key: &str, value: &str) -> Message {
    let content = app.assignment(Task::Train, 1).write().expect("plain");
    let mut settings = content.config("fedeq").expect("settings").clone();
    settings.items.retain(|item| item.key != key);
    let settings = settings.with(key, Scalar::Text(value.into()));
    let weights = content.arrays("weights").expect("weights").clone();
    message("train", Content::default().with("weights", Record::Arrays(weights)).with("fedeq", Record::Config(settings)))
}

fn is_bias(name: &str) -> bool {
    name.ends_with("bias")
}

/// Whether a node said to who runs it why it turned something down.
fn is_said(notices: &[Notice], words: &str) -> bool {
    notices.iter().any(|notice| matches!(notice, Notice::Refused(said) if said.contains(words)))
}

/// Questions that a node should not answer, and a part of what it says about each where it runs.
fn nonsense(app: &App) -> Vec<(Message, &'static str)> {
    let flat = |array: &Array| Array::new(vec![1, array.values.len()], array.values.to_vec());
    let number = |array: &Array, value: f32| Array::new(array.shape.clone(), vec![value; array.values.len()]);
    let train = app.train(1);
    let mut failed = train.clone();
    failed.content = Err(Failure { code: 0, reason: "nobody is here".into() });
    let settings = Values::default().with("federation", Scalar::Integer(1));
    vec![
        (Message { head: Metadata { message_type: "dance".into(), ..train.head.clone() }, ..train.clone() }, "`dance`"),
        (failed, "nobody is here"),
        (message("train", Content::default()), "no such record"),
        (message("train", Content::default().with("fedeq", Record::Config(settings))), "it has no text"),
        (with_setting(app, "header", "{"), "its header is damaged"),
        (with_setting(app, "header", r#"{"task":"explode","round":1,"rounds":3,"rho":0.3}"#), "explode"),
        (with_setting(app, "experiment", "seed = 'none'"), "not a resolved experiment"),
        (with_setting(app, "layout", "[[\"params/w\",[1000000,1000000,1000000]]]"), "it ends before"),
        (with_setting(app, "layout", "[]"), "numbers more than its layout"),
        (with_weights(app, |name, array| Some(if is_bias(name) { flat(array) } else { array.clone() })), "has shape"),
        (with_weights(app, |name, array| (!is_bias(name)).then(|| array.clone())), "is missing"),
        (with_weights(app, |_, array| Some(number(array, f32::NAN))), "holds the value `NaN`"),
        (with_weights(app, |_, array| Some(number(array, f32::INFINITY))), "holds the value `inf`"),
    ]
}

#[test]
fn nonsense_is_turned_down_in_words_and_changes_nothing() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let before = site.kept();
    for (number, (question, words)) in nonsense(&app).iter().enumerate() {
        let id = link.ask(question);
        let notices = site.serve(&link, &mut worker, number + 2);
        assert!(matches!(link.refusal(number + 1), Refusal::Unreadable | Refusal::Unable), "{words}");
        assert_eq!(link.answer(number + 1).head.reply_to_message_id, id, "{words}");
        assert!(is_said(&notices, words), "{words}: {notices:?}");
        assert_eq!(site.kept(), before, "{words}");
    }
    let last = nonsense(&app).len() + 1;
    link.ask(&app.train(1));
    site.serve(&link, &mut worker, last + 1);
    assert!(link.answer(last).content.is_ok(), "and it still works");
}

/// A way to spoil one object of a message.
type Spoil = fn(Vec<u8>) -> Option<Vec<u8>>;

#[test]
fn objects_that_are_not_what_they_should_be_are_turned_down() {
    let ways: [(Spoil, &str); 5] = [
        (|_| Some(b"ArrayChunk  0\0".to_vec()), "its bytes have another hash"),
        (|bytes| Some(bytes[..bytes.len() / 2].to_vec()), "its bytes have another hash"),
        (|_| Some(Vec::new()), "its bytes have another hash"),
        (|_| Some(vec![0; 17 << 20]), "more than"),
        (|_| None, "the SuperLink does not have it"),
    ];
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let before = site.kept();
    for (number, (spoil, words)) in ways.into_iter().enumerate() {
        let question = app.train(1);
        link.ask(&question);
        spoil_largest(&link, spoil);
        let notices = site.serve(&link, &mut worker, number + 2);
        assert_eq!(link.refusal(number + 1), Refusal::Unreadable, "{words}");
        assert!(is_said(&notices, words), "{words}: {notices:?}");
        assert_eq!(site.kept(), before, "{words}");
    }
    assert_eq!(worker.works, 1);
}

/// Changes the object that holds the weights.
fn spoil_largest(link: &SuperLink, spoil: Spoil) {
    let mut desk = link.desk();
    let largest = desk.objects.iter().max_by_key(|(_, bytes)| bytes.len()).map(|(id, _)| id.clone()).expect("objects");
    let bytes = desk.objects.remove(&largest).expect("there");
    desk.objects.extend(spoil(bytes).map(|bytes| (largest, bytes)));
}

#[test]
fn a_tree_without_end_is_turned_down() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let leaf = |number: usize| ObjectTree { object_id: id_of(&number.to_le_bytes()), children: Vec::new() };
    let tree = ObjectTree { object_id: id_of(b"root"), children: (0..20_000).map(leaf).collect() };
    link.desk().announce(&app.train(1), tree);
    let notices = site.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unreadable);
    assert!(is_said(&notices, "more than 20000 objects"), "{notices:?}");
}

#[test]
fn a_run_that_the_superlink_does_not_know_is_forgotten_and_others_go_on() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    link.ask(&app.train(1));
    link.desk().failures.extend([("pull-object", (403, 1)), ("push-messages", (403, 1))]);
    link.ask(&app.evaluate(1));
    let notices = site.serve(&link, &mut worker, 2);
    assert!(matches!(&notices[1], Notice::Refused(words) if words.contains("403")), "{notices:?}");
    assert_eq!((link.answer(1).head.message_type.as_str(), worker.works), ("evaluate", 2));
}

#[test]
fn an_answer_that_nobody_wants_any_more_is_not_carried_along() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    link.desk().failures.insert("push-messages", (403, 1));
    link.ask(&app.train(1));
    link.ask(&app.evaluate(2));
    site.serve(&link, &mut worker, 2);
    assert_eq!(link.answer(1).head.message_type, "evaluate");
    assert!(site.is_done());
}

#[test]
fn a_question_that_is_out_of_date_is_not_worked_on() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let question = app.train(1);
    let head = Metadata { created_at: question.head.created_at - 7200.0, ..question.head.clone() };
    link.ask(&Message { head, ..question });
    site.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Late);
    assert_eq!(worker.works, 1);
}

/// What an answer says, by its id.
fn content(link: &SuperLink, number: usize) -> Content {
    link.answer(number).content.expect("an answer")
}

#[test]
fn a_repeated_message_gets_the_same_bytes_and_is_not_trained_twice() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let question = app.train(1);
    for _ in 0..3 {
        link.ask(&question);
    }
    site.serve(&link, &mut worker, 4);
    let ids: Vec<Id> = (1..4).map(|number| link.answer_id(number)).collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "an id is the hash of all bytes");
    assert_eq!(worker.works, 2);
}

#[test]
fn a_server_that_asks_the_same_anew_hears_the_same() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let state = site.learned().state;
    let mut again = app.train(0);
    again.head.run_id = 4;
    let id = link.ask(&again);
    let notices = site.serve(&link, &mut worker, 2);
    assert!(notices.iter().any(|notice| matches!(notice, Notice::Answered { seconds, .. } if *seconds == 0.0)), "{notices:?}");
    assert_eq!(content(&link, 1), content(&link, 0));
    assert_eq!((link.answer(1).head.run_id, link.answer(1).head.reply_to_message_id), (4, id));
    assert_eq!((worker.works, site.learned().state), (1, state));
}

#[test]
fn a_round_is_not_trained_a_second_time_from_elsewhere() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let before = site.kept();
    let mut elsewhere = app.assignment(Task::Train, 0);
    elsewhere.request.weights.params = elsewhere.request.weights.params.map(|value| value + 0.1);
    link.ask(&message("train", elsewhere.write().expect("plain")));
    let notices = site.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unable);
    assert!(is_said(&notices, "round 1 is over for this client"), "{notices:?}");
    assert_eq!(site.kept(), before);
}

#[test]
fn an_answer_that_did_not_come_through_is_sent_after_a_restart_without_training_again() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    link.desk().failures.insert("push-object", (503, usize::MAX));
    link.ask(&app.train(1));
    let has_tried = || link.desk().heard.iter().filter(|(call, _)| call == "push-object").count() > 8;
    site.serve_until(&link, &mut worker, &has_tried);
    let state = site.learned().state;
    link.desk().failures.clear();
    let mut anew = Counted::new();
    site.serve_until(&link, &mut anew, &|| site.is_done());
    assert_eq!((worker.works, anew.works), (2, 0));
    assert_eq!(site.learned().state, state);
}

#[test]
fn a_question_whose_objects_do_not_come_at_once_is_not_lost() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    link.desk().failures.insert("pull-object", (503, 3));
    link.ask(&app.train(1));
    site.serve(&link, &mut worker, 2);
    assert!(link.answer(1).content.is_ok());
}

#[test]
fn a_superlink_that_has_forgotten_the_node_is_joined_again() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    link.desk().failures.insert("pull-messages", (401, 1));
    link.ask(&app.train(1));
    let notices = site.serve(&link, &mut worker, 2);
    assert_eq!(notices.iter().filter(|notice| matches!(notice, Notice::Joined(_))).count(), 2);
}

#[test]
fn a_lost_or_damaged_dual_is_said_and_not_replaced() {
    let app = App::write();
    let (site, link, mut worker) = trained(&app);
    let file = site.state_file();
    let mut bytes = fs::read(&file).expect("readable");
    let last = bytes.len() - 1;
    bytes[last] ^= 1;
    fs::write(&file, &bytes).expect("written");
    link.ask(&app.train(1));
    let notices = site.serve(&link, &mut worker, 2);
    assert_eq!(link.refusal(1), Refusal::Unable);
    assert!(is_said(&notices, "are not what was written"), "{notices:?}");
    fs::remove_file(&file).expect("removed");
    link.ask(&app.train(2));
    let notices = site.serve(&link, &mut worker, 3);
    assert_eq!(link.refusal(2), Refusal::Unable);
    assert!(is_said(&notices, "cannot read the model and the dual"), "{notices:?}");
    assert_eq!(worker.works, 1);
}

fn fedeq(arguments: &[&str], state: &Site) -> std::process::Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.args(arguments).arg("--state").arg(state.path()).env_remove("FEDEQ_DATA");
    command.output().expect("the program starts")
}

#[test]
fn a_folder_is_for_one_process_and_one_client() {
    let (site, node) = (Site::new(), ["node", "--superlink", "127.0.0.1:1", "--insecure", "--client", "4"]);
    let vault = Vault::open(site.path()).expect("free");
    vault.claim(3).expect("free");
    let refused = |words: &str| {
        let output = fedeq(&node, &site);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && said.contains(words), "{said}");
    };
    refused("another process is working on it");
    vault.key().expect("a key");
    let public = fedeq(&["node", "key"], &site).stdout;
    assert!(public.starts_with(b"ecdsa-sha2-nistp256 "), "its name is no secret");
    drop(vault);
    refused("the folder of client `3`, not of `4`");
}

#[test]
fn a_node_predicts_with_no_connection_what_a_simulated_client_predicts() {
    let app = App::write();
    let (site, _link, _worker) = trained(&app);
    let folder = tempfile::tempdir().expect("a folder");
    let run = folder.path().join("run");
    let mut simulation = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    simulation.args(["run", "--quiet", "--out"]).arg(&run);
    simulation.args(settings()).args(["--set", "plan.rounds=1"]);
    assert!(simulation.output().expect("the program starts").status.success());
    let mut predict = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    let simulated = predict.arg("predict").arg(&run).args(["--client", "client-0", "--json"]).output().expect("it starts");
    // A node at work does not stand in the way.
    let _vault = Vault::open(site.path()).expect("free");
    let ours = fedeq(&["node", "predict", "--json"], &site);
    assert!(!ours.stdout.is_empty(), "{}", String::from_utf8_lossy(&ours.stderr));
    assert_eq!(String::from_utf8_lossy(&ours.stdout), String::from_utf8_lossy(&simulated.stdout));
}

#[test]
fn a_node_starts_from_the_same_head_of_its_own_as_a_simulated_client() {
    let wishes: Vec<Override> = settings().filter(|word| *word != "--set").map(|wish| wish.parse().expect("a setting")).collect();
    let own = "training.initial_heads=own".parse().expect("a setting");
    let experiment = Experiment::read(None, &[wishes, vec![own]].concat()).expect("sound");
    let prepared = experiment.prepare().expect("sound");
    let request = Request { task: Task::Train, round: 0, rounds: 3, rho: Some(0.3), weights: prepared.server().weights };
    let mut state = prepared.fresh_state(2);
    assert_ne!(state.own.head(), prepared.fresh_state(1).own.head());
    let (site, seed) = (prepared.network_site(2), client_seed(prepared.clients_seed(), 2));
    let (algorithm, training) = (experiment.method.algorithm(), &experiment.training);
    Client { algorithm, training, site: &site, state: &mut state, seed }.handle(&request).expect("trained");
    let text = experiment.to_toml().expect("writable");
    let assignment = Assignment { federation: "any".into(), experiment: text, request };
    let done = Member::new(2, "".into()).work(&assignment, None).expect("trained");
    assert!(done.state.expect("it has learned") == state.to_bytes().expect("writable"));
}

#[test]
fn among_several_federations_one_is_chosen_by_what_was_learned_in_it() {
    let (site, link, mut worker) = trained(&App::write());
    link.ask(&App::write().train(1));
    site.serve(&link, &mut worker, 2);
    let output = fedeq(&["node", "predict"], &site);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    let choices: Vec<&str> = said.lines().filter_map(|line| line.trim().strip_prefix("--federation ")).collect();
    assert!(choices.iter().all(|choice| choice.contains("fedeq on digits with deq-mlp, round")), "{said}");
    let (name, _) = choices[1].split_once(' ').expect("a name and words");
    assert!(fedeq(&["node", "predict", "--federation", name], &site).status.success());
}

#[test]
fn a_folder_without_a_model_is_refused() {
    let output = fedeq(&["node", "predict"], &Site::new());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(2) && said.contains("holds no model yet"), "{said}");
}
