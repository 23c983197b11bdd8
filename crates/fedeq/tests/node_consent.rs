//! A node carries out the one experiment that its owner has accepted. The attacks of a malicious server that chooses another one, as tests.
mod node_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fedeq::node::Terms;
use fedeq_core::{ClientTask, Disclosure, Reply, Request, SigningSecret};
use fedeq_flower::envelope::{self, Envelope};
use fedeq_flower::node::{Accepted, Notice, Objection, Refusal, WorkResult, Worker};
use fedeq_run::agreement::SigningKeys;
use node_support::{App, CountingWorker, NodeFolder, SuperLink, message, settings};

/// The rows of a patients' table: a label and two numbers each.
const ROWS: [(&str, f32, f32); 20] = {
    let mut rows = [("well", 0.0, 0.0); 20];
    let mut at = 0;
    while at < 20 {
        rows[at] = (if at % 2 == 0 { "well" } else { "ill" }, 140.25 + 3.5 * at as f32, 50.125 + 1.75 * ((7 * at) % 20) as f32);
        at += 1;
    }
    rows
};

/// What every device of this federation reads: a table of its own.
const TABLES: [&str; 5] =
    ["data=csv", "data.partition.rule=own", "data.partition.clients=1", "plan.rounds=1", "plan.sampling.fraction=1"];
/// What the owner has seen and accepted.
const HARMLESS: [&str; 2] = ["model=mlp", "method=fedrep"];
/// What a server asks for that wants to have rows: one gradient step on one sample, and the whole model back.
const ROW_BY_ROW: [&str; 6] =
    ["model=mlp", "method=fedavg", "data.limit.train=1", "training.batch_size=1", "training.epochs=1", "data.source.scale=none"];

/// The app of an experiment on tables like this one.
fn app(folder: &Path, settings: &[&str]) -> App {
    let example = folder.join("example.csv");
    fs::write(&example, "label,height,weight\nwell,150,60\nill,190,80\nwell,160,90\n").expect("writable");
    let settings: Vec<&str> = TABLES.iter().chain(settings).flat_map(|setting| ["--set", setting]).collect();
    App::with(["--data", example.to_str().expect("UTF-8")].into_iter().chain(settings))
}

/// The table of a device.
fn table(folder: &Path) -> PathBuf {
    let path = folder.join("patients.csv");
    let rows: String = ROWS.iter().map(|(label, height, weight)| format!("{label},{height},{weight}\n")).collect();
    fs::write(&path, format!("label,height,weight\n{rows}")).expect("writable");
    path
}

/// Asks for one row after the other, each by another seed, and gives the rows that are in what comes back.
fn rows_recovered(folder: &Path, node: &NodeFolder, link: &SuperLink, worker: &mut dyn Worker) -> usize {
    let mut found = Vec::new();
    for seed in 0..4 {
        let mut app = app(folder, &[&ROW_BY_ROW[..], &[&format!("seed={seed}")]].concat());
        // Chosen weights: so small that the model is sure of nothing, and every sample moves it.
        app.theta.params = app.theta.params.map(|value| 0.01 * value);
        link.send(&app.train(0));
        node.serve(link, worker, seed + 1);
        found.extend(link.reply(seed).content.ok().and_then(|content| row_in(&envelope::read_reply(&content).ok()?, &app)));
    }
    found.iter().filter(|row| ROWS.iter().any(|(_, height, weight)| is_near(row, [*height, *weight]))).count()
}

/// After one gradient step on one sample, the first layer's weights have moved by the sample, times as much as its offsets have moved.
fn row_in(reply: &Reply, app: &App) -> Option<[f32; 2]> {
    let Reply::Update(update) = reply else { return None };
    let moved = update.weights.like().params.minus(&app.theta.params);
    let of = |end: &str| moved.iter().find(|(name, _)| name.ends_with(end)).map(|(_, array)| &array.values);
    let (weights, offsets) = (of("layers.0.weight")?, of("layers.0.bias")?);
    let (unit, by) = offsets.iter().enumerate().max_by(|one, other| one.1.abs().total_cmp(&other.1.abs()))?;
    // Weights lie input by input.
    Some([weights[unit] / by, weights[offsets.len() + unit] / by])
}

fn is_near(row: &[f32; 2], [height, weight]: [f32; 2]) -> bool {
    (row[0] - height).abs() < 0.05 && (row[1] - weight).abs() < 0.05
}

#[test]
fn rows_of_a_table_are_recovered_from_a_node_that_agrees_to_everything_and_from_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = table(folder.path());

    // The attack works where nobody minds: this is what the rest of this test is about.
    let (mut node, link) = (NodeFolder::new(), SuperLink::start());
    node.limits.federations = usize::MAX;
    let mut careless = Careless(CountingWorker::on(Terms { least_samples: 1, least_batch: 1, ..Terms::default() }, &data));
    assert_eq!(rows_recovered(folder.path(), &node, &link, &mut careless), 4);

    // An owner who has accepted another experiment: nothing is even read.
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut worker = CountingWorker::on(app(folder.path(), &HARMLESS).terms(), &data);
    assert_eq!((rows_recovered(folder.path(), &node, &link, &mut worker), worker.works), (0, 0));
    (0..link.replies()).for_each(|number| assert_eq!(link.refusal(number), Refusal::NotAccepted));

    // Even one who has accepted all of these is protected by the limits of the node.
    let (mut node, link) = (NodeFolder::new(), SuperLink::start());
    node.limits.federations = usize::MAX;
    let mut trusting = Careless(CountingWorker::on(Terms::default(), &data));
    assert_eq!(rows_recovered(folder.path(), &node, &link, &mut trusting), 0);
    (0..link.replies()).for_each(|number| assert_eq!(link.refusal(number), Refusal::Unable));
}

/// A worker that agrees to whatever it is asked for.
struct Careless(CountingWorker);

impl Worker for Careless {
    fn client(&self) -> u64 {
        self.0.client()
    }

    fn review(&self, _: &Envelope) -> Result<Accepted, Objection> {
        Ok(Accepted { agreement: "anything".into(), ends_training: false })
    }

    fn work(&mut self, envelope: &Envelope, state: Option<&[u8]>) -> Result<WorkResult, String> {
        self.0.work(envelope, state)
    }
}

/// A node that has trained in the first round of an experiment that was accepted.
fn trained(app: &App) -> (NodeFolder, SuperLink, CountingWorker) {
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(app));
    link.send(&app.train(0));
    node.serve(&link, &mut worker, 1);
    assert!(link.reply(0).content.is_ok());
    (node, link, worker)
}

/// Sends a request and gives the refusal and the log.
fn refused(node: &NodeFolder, link: &SuperLink, worker: &mut dyn Worker, envelope: &Envelope) -> (Refusal, String) {
    let number = link.replies();
    let kind = if envelope.request.task == ClientTask::Train { "train" } else { "evaluate" };
    link.send(&message(kind, envelope.write().expect("plain")));
    let notices = node.serve(link, worker, number + 1);
    let logged = |notice: &Notice| if let Notice::Refused(reason) = notice { Some(reason.clone()) } else { None };
    (link.refusal(number), notices.iter().find_map(logged).expect("the reason is logged"))
}

#[test]
fn the_head_is_not_sent_when_a_server_changes_its_mind_about_the_method() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let before = node.stored_files();
    for settings in [&["method=fedavg"][..], &["method=fedeq", "training.epochs=2"], &["seed=1"]] {
        let base = ["model=deq-mlp", "plan.rounds=3", "plan.sampling.fraction=1", "data.partition.clients=5"];
        let other = App::with(base.iter().chain(settings).flat_map(|setting| ["--set", setting]));
        let envelope = Envelope { federation: app.federation.clone(), ..other.envelope(ClientTask::Train, 1) };
        let (refusal, logged) = refused(&node, &link, &mut worker, &envelope);
        assert_eq!(refusal, Refusal::NotAccepted);
        assert!(logged.contains(&format!("--accept {}", other.fingerprint)) && logged.contains("inspect"), "{logged}");
    }
    assert_eq!((worker.works, node.stored_files()), (1, before));
}

#[test]
fn a_request_that_is_no_part_of_the_accepted_experiment_is_refused() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let train = app.envelope(ClientTask::Train, 1);
    let changed = |change: &dyn Fn(&mut Request)| {
        let mut envelope = train.clone();
        change(&mut envelope.request);
        envelope
    };
    let requests = [
        changed(&|request| request.rho = Some(0.0)),
        changed(&|request| request.rho = None),
        changed(&|request| request.rounds = 1000),
        changed(&|request| request.round = 3),
        changed(&|request| request.task = ClientTask::Finish),
        changed(&|request| request.task = ClientTask::Adopt),
        changed(&|request| request.task = ClientTask::Measure),
        app.envelope(ClientTask::Evaluate, 0),
        app.envelope(ClientTask::Evaluate, 4),
    ];
    for request in &requests {
        assert_eq!(refused(&node, &link, &mut worker, request).0, Refusal::NotAccepted, "{:?}", request.request.task);
    }
    assert_eq!(worker.works, 1);
}

#[test]
fn models_are_evaluated_only_so_often_after_a_round_whatever_weights_a_server_tries() {
    let app = App::write();
    let (node, link, mut worker) = trained(&app);
    let probe = |factor: f32| probe(&app, ClientTask::Evaluate, 1, factor);
    // A server that was killed while it asked may have other weights when it asks again; that is not for ever.
    link.send(&app.evaluate(1));
    link.send(&message("evaluate", probe(0.25).write().expect("plain")));
    node.serve(&link, &mut worker, 3);
    assert!((1..3).all(|number| link.reply(number).content.is_ok()));
    for factor in [0.5, 2.0, 4.0] {
        let (refusal, logged) = refused(&node, &link, &mut worker, &probe(factor));
        assert!(refusal == Refusal::Unable && logged.contains("was evaluated after round 1 before"), "{logged}");
    }
    // The same request gets the same reply, and the next round its evaluation.
    link.send(&app.evaluate(1));
    link.send(&app.evaluate(2));
    node.serve(&link, &mut worker, 8);
    assert!((6..8).all(|number| link.reply(number).content.is_ok()));
    assert_eq!(worker.works, 4);
}

#[test]
fn a_client_finishes_only_so_often_whatever_weights_a_server_tries() {
    // What comes back of fine-tuning is the loss on the device's samples, of whatever model was sent.
    let app = App::small(&["method=fedavg-ft", "model=mlp", "plan.rounds=1"]);
    for task in [ClientTask::Finish, ClientTask::Adopt] {
        let (node, link, mut worker) = trained(&app);
        let probe = |factor: f32| probe(&app, task, 1, factor);
        for factor in [1.0, 0.25] {
            link.send(&message("train", probe(factor).write().expect("plain")));
        }
        node.serve(&link, &mut worker, 3);
        assert!((1..3).all(|number| link.reply(number).content.is_ok()), "{task:?}");
        for factor in [0.5, 2.0, 4.0] {
            let (refusal, logged) = refused(&node, &link, &mut worker, &probe(factor));
            assert!(refusal == Refusal::Unable && logged.contains("has finished after round 1 before"), "{logged}");
        }
        assert_eq!(worker.works, 3);
        // The same request gets the same reply, and models are evaluated all the same.
        link.send(&message("train", probe(0.25).write().expect("plain")));
        link.send(&app.evaluate(1));
        node.serve(&link, &mut worker, 8);
        assert!((6..8).all(|number| link.reply(number).content.is_ok()));
    }
}

/// Requests with weights that a server chooses.
fn probe(app: &App, task: ClientTask, round: u64, factor: f32) -> Envelope {
    let mut probe = app.envelope(task, round);
    probe.request.weights.params = probe.request.weights.params.map(|value| factor * value);
    probe
}

/// Sends a request that is to be carried out.
fn carried_out(node: &NodeFolder, link: &SuperLink, worker: &mut dyn Worker, envelope: &Envelope) {
    let number = link.replies();
    let kind = if envelope.request.task == ClientTask::Train { "train" } else { "evaluate" };
    link.send(&message(kind, envelope.write().expect("plain")));
    let notices = node.serve(link, worker, number + 1);
    let Request { task, round, .. } = envelope.request;
    assert!(link.reply(number).content.is_ok(), "{task:?} {round}: {notices:?}");
}

/// Training may end early: by patience or by a budget of privacy, and with something to do at the end.
const PATIENT: [&str; 5] = ["method=fedavg-ft", "model=mlp", "plan.rounds=8", "plan.patience=1", "data.split.validation=0.2"];
const BUDGETED: [&str; 7] = [
    "method=fedavg-ft",
    "method.weighting=uniform",
    "model=mlp",
    "plan.rounds=8",
    "plan.privacy.noise_multiplier=0.8",
    "plan.privacy.clip.fixed=0.1",
    "plan.privacy.budget=100000",
];

#[test]
fn a_client_finishes_only_so_often_in_whichever_rounds_training_might_end() {
    // The last round is the third at the earliest where two evaluations have to come before it.
    for (settings, first_end) in [(&PATIENT[..], 3), (&BUDGETED[..], 1)] {
        let app = App::small(settings);
        for task in [ClientTask::Finish, ClientTask::Adopt] {
            let (node, link, mut worker) = trained(&app);
            for round in 1..first_end {
                assert_eq!(refused(&node, &link, &mut worker, &probe(&app, task, round, 1.0)).0, Refusal::NotAccepted);
                carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Train, round));
            }
            for (round, factor) in [(first_end, 1.0), (first_end + 1, 0.25)] {
                carried_out(&node, &link, &mut worker, &probe(&app, task, round, factor));
            }
            let works = worker.works;
            for round in first_end..=8 {
                let (refusal, logged) = refused(&node, &link, &mut worker, &probe(&app, task, round, 0.5));
                let expected = format!("has finished after round {} before", first_end + 1);
                assert!(refusal == Refusal::Unable && logged.contains(&expected), "{settings:?} {round}: {logged}");
            }
            // What the server has said holds: nothing is trained or evaluated for later rounds any more.
            let last = first_end + 1;
            for (task, round) in [(ClientTask::Train, last), (ClientTask::Train, 7), (ClientTask::Evaluate, last + 1)] {
                let (refusal, logged) = refused(&node, &link, &mut worker, &app.envelope(task, round));
                let expected = format!("training was over after round {last}");
                assert!(refusal == Refusal::Unable && logged.contains(&expected), "{task:?} {round}: {logged}");
            }
            assert_eq!(worker.works, works);
            carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Evaluate, last));
        }
    }
}

#[test]
fn an_evaluation_that_there_is_only_after_training_ends_it() {
    let app = App::small(&[&BUDGETED[1..], &["method=fedavg", "plan.evaluate_every=2"]].concat());
    // One that there is anyway does not.
    let (node, link, mut worker) = trained(&app);
    for (task, round) in [(ClientTask::Train, 1), (ClientTask::Evaluate, 2), (ClientTask::Train, 2)] {
        carried_out(&node, &link, &mut worker, &app.envelope(task, round));
    }
    for factor in [1.0, 0.5] {
        carried_out(&node, &link, &mut worker, &probe(&app, ClientTask::Evaluate, 3, factor));
    }
    let after = [(ClientTask::Train, 3), (ClientTask::Evaluate, 4), (ClientTask::Evaluate, 5), (ClientTask::Evaluate, 8)];
    for (task, round) in after {
        let (refusal, logged) = refused(&node, &link, &mut worker, &app.envelope(task, round));
        assert!(refusal == Refusal::Unable && logged.contains("training was over after round 3"), "{task:?} {round}: {logged}");
    }
}

#[test]
fn an_asynchronous_client_is_trained_no_more_once_training_is_over() {
    let more = ["method.server_step=consensus", "plan.asynchronous.slowest=2"];
    let app = App::small(&[&more[..], &["plan.rounds=8", "plan.patience=1", "data.split.validation=0.2"]].concat());
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    let update = |number: u64| {
        let mut envelope = app.envelope(ClientTask::Train, number);
        envelope.request.rounds = 40;
        envelope
    };
    // Updates of five clients to a round, counted by themselves; evaluations by rounds.
    carried_out(&node, &link, &mut worker, &update(0));
    carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Evaluate, 1));
    carried_out(&node, &link, &mut worker, &update(9));
    carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Evaluate, 2));
    carried_out(&node, &link, &mut worker, &update(13));
    carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Finish, 3));
    for number in [14, 39] {
        let (refusal, logged) = refused(&node, &link, &mut worker, &update(number));
        assert!(refusal == Refusal::Unable && logged.contains("training was over after round 3"), "{number}: {logged}");
    }
    carried_out(&node, &link, &mut worker, &app.envelope(ClientTask::Evaluate, 3));
    // A server that was killed meanwhile gets the update that it had before.
    let works = worker.works;
    let mut again = message("train", update(13).write().expect("plain"));
    again.head.run_id = 4;
    let replies = link.replies();
    link.send(&again);
    node.serve(&link, &mut worker, replies + 1);
    assert!(link.reply(replies).content.is_ok() && worker.works == works);
}

#[test]
fn whether_work_fails_is_not_told_for_ever_other_weights() {
    // With weights chosen for it, whether training diverges depends on the samples: a question of yes or no about them.
    let app = App::write();
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    let probe = |task: ClientTask, round: u64, factor: f32| {
        let mut probe = app.envelope(task, round);
        probe.request.weights.params = probe.request.weights.params.map(|value| factor * value.signum());
        probe
    };
    let tries = |first: u32, round: u64, worker: &mut CountingWorker| -> Vec<Refusal> {
        let factor = |number: u32| f32::MAX / (first + number) as f32;
        (0..12).map(|number| refused(&node, &link, worker, &probe(ClientTask::Train, round, factor(number))).0).collect()
    };
    let expected = [vec![Refusal::Unable; 8], vec![Refusal::Limit; 4]].concat();
    assert_eq!((tries(2, 0, &mut worker), worker.works), (expected.clone(), 8));
    let (_, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0));
    assert!(logged.contains("attempts/tries-train-") && worker.works == 8, "{logged}");
    // The next round has as many tries; the round before has none any more.
    assert_eq!((tries(20, 1, &mut worker), worker.works), (expected, 16));
    assert_eq!(refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0)).0, Refusal::Limit);
    let before = link.replies();
    link.send(&app.train(2));
    node.serve(&link, &mut worker, before + 1);
    assert!(link.reply(before).content.is_ok(), "an honest server goes on");
}

#[test]
fn asynchronous_work_has_as_many_updates_as_the_experiment_says() {
    let app = App::small(&["method.server_step=consensus", "plan.asynchronous.slowest=2"]);
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    let of = |rounds: u64| {
        let mut envelope = app.envelope(ClientTask::Train, 0);
        envelope.request.rounds = rounds;
        envelope
    };
    // Three rounds of all five clients.
    for rounds in [3, 3_000_000] {
        let (refusal, logged) = refused(&node, &link, &mut worker, &of(rounds));
        assert!(refusal == Refusal::Unable && logged.contains("the experiment has 5 updates in each round"), "{logged}");
    }
    assert_eq!(refused(&node, &link, &mut worker, &of(16)).0, Refusal::NotAccepted);
    link.send(&message("train", of(15).write().expect("plain")));
    node.serve(&link, &mut worker, 4);
    assert!(link.reply(3).content.is_ok());
}

#[test]
fn rounds_are_not_trained_again_in_another_federation_of_the_same_experiment() {
    let app = App::write();
    let (mut node, link, mut worker) = trained(&app);
    let again = Envelope { federation: "another".into(), ..app.envelope(ClientTask::Train, 0) };
    let (refusal, logged) = refused(&node, &link, &mut worker, &again);
    assert!(refusal == Refusal::Limit && logged.contains("--max-federations"), "{logged}");
    node.limits.federations = 2;
    link.send(&message("train", again.write().expect("plain")));
    node.serve(&link, &mut worker, 3);
    assert!(link.reply(2).content.is_ok(), "its owner may allow it");
}

#[test]
fn a_node_that_accepts_nothing_keeps_what_it_is_asked_for_to_be_inspected() {
    let app = App::write();
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut worker = CountingWorker::on(Terms::default(), "nowhere".as_ref());
    assert_eq!(refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0)).0, Refusal::NotAccepted);
    let fedeq = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_fedeq")).args(arguments).output().expect("it starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"), String::from_utf8(output.stderr).expect("text"))
    };
    let state = node.path().to_str().expect("UTF-8");
    let (code, said, _) = fedeq(&["node", "inspect", "--state", state]);
    assert!(code == Some(0) && said.contains(&app.fingerprint.to_string()), "{said}");
    for part in ["fedeq on digits with deq-mlp", "at most 3 rounds", "1 epoch", "what leaves the device", "its head stays"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(fedeq(&["node", "inspect", "--state", state, "--fingerprint"]).1, format!("{}\n", app.fingerprint));
    let join = ["node", "--superlink", "127.0.0.1:1", "--insecure", "--client", "0", "--state"];
    let (code, _, said) = fedeq(&[&join[..], &[state]].concat());
    assert_eq!(code, Some(2));
    assert!(said.contains("no experiment is accepted") && said.contains(&app.fingerprint.to_string()), "{said}");
    let (code, _, said) = fedeq(&["node", "inspect", "--state", "nowhere"]);
    assert!(code == Some(2) && said.contains("--accept none"), "{said}");
    let (code, _, said) = fedeq(&[&join[..], &[state, "--accept", "12345"]].concat());
    assert!(code == Some(2) && said.contains("48 hexadecimal digits"), "{said}");
}

#[test]
fn limits_of_a_node_hold_for_what_was_accepted_too() {
    let app = App::write();
    let terms = [
        (Terms { least_samples: 21, ..app.terms() }, Refusal::Unable, "--min-samples"),
        (Terms { least_batch: 11, ..app.terms() }, Refusal::Unable, "--min-batch"),
        (Terms { most_epochs: 0, ..app.terms() }, Refusal::Limit, "--max-epochs"),
    ];
    for (terms, refusal, option) in terms {
        let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::on(terms, "nowhere".as_ref()));
        let (told, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0));
        assert!(told == refusal && logged.contains(option), "{option}: {logged}");
    }
    // Fine-tuning has epochs of its own.
    let app = App::small(&["method=fedavg-ft", "method.tuning.after.epochs=9", "model=mlp"]);
    let terms = Terms { most_epochs: 8, ..app.terms() };
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::on(terms, "nowhere".as_ref()));
    let (told, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0));
    assert!(told == Refusal::Limit && logged.contains("train for 9 epochs"), "{logged}");
}

#[test]
fn a_server_cannot_fill_the_disk_or_the_inbox() {
    let app = App::write();
    let (mut node, link, mut worker) = trained(&app);
    node.limits.disk = 10_000;
    let (refusal, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 1));
    assert!(refusal == Refusal::Limit && logged.contains("--max-disk"), "{logged}");
    assert!(node.is_done());
    node.limits = fedeq_flower::limit::NodeLimits { waiting: 0, ..Default::default() };
    let (refusal, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 1));
    assert!(refusal == Refusal::Limit && logged.contains("wait already"), "{logged}");
    assert_eq!(worker.works, 1);
}

/// A worker that fails at everything.
struct Failing(CountingWorker);

impl Worker for Failing {
    fn client(&self) -> u64 {
        self.0.client()
    }

    fn review(&self, envelope: &Envelope) -> Result<Accepted, Objection> {
        self.0.review(envelope)
    }

    fn work(&mut self, _: &Envelope, _: Option<&[u8]>) -> Result<WorkResult, String> {
        self.0.works += 1;
        Err("`patients.csv` on line 7: `180 cm` is no number".into())
    }
}

#[test]
fn a_request_that_fails_twice_is_dropped_and_the_server_is_told_so() {
    let app = App::write();
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut failing = Failing(CountingWorker::accepting(&app));
    for run in 3..7 {
        let mut request = app.train(0);
        request.head.run_id = run;
        link.send(&request);
    }
    node.serve(&link, &mut failing, 4);
    let told: Vec<Refusal> = (0..4).map(|number| link.refusal(number)).collect();
    assert_eq!(told, [Refusal::Unable, Refusal::Unable, Refusal::Failed, Refusal::Failed]);
    assert_eq!(failing.0.works, 2);
}

/// What a node tells with its settings: the update of the first round, and the scores after it.
fn told(app: &App, disclosure: Disclosure) -> [Reply; 2] {
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut worker = CountingWorker::on(Terms { disclosure, ..app.terms() }, "nowhere".as_ref());
    link.send(&app.train(0));
    node.serve(&link, &mut worker, 1);
    link.send(&app.evaluate(1));
    node.serve(&link, &mut worker, 2);
    let seconds = link.state().calls.iter().filter(|(call, _)| call == "push-messages").count();
    assert_eq!(seconds, 2);
    [0, 1].map(|number| envelope::read_reply(&link.reply(number).content.expect("a reply")).expect("readable"))
}

#[test]
fn how_much_a_node_tells_is_its_own_setting_and_changes_no_weight() {
    let app = App::write();
    let [everything, coarse, none] = [Disclosure::Everything, Disclosure::Coarse, Disclosure::None].map(|how| told(&app, how));
    let weights = |replies: &[Reply; 2]| replies[0].weights().expect("here").map(std::borrow::Cow::into_owned);
    assert!(weights(&everything).is_some() && weights(&coarse) == weights(&everything) && weights(&none) == weights(&everything));
    let headers = |replies: &[Reply; 2]| replies.each_ref().map(|reply| reply.header().expect("writable")).concat();
    // 20 training samples; the times of the three phases are texts of zeros unless they are told.
    let no_time = r#""seconds":{"solve":"000000000.000000","backward":"000000000.000000","update":"000000000.000000"}"#;
    assert!(headers(&everything).contains(r#""samples":20,"#) && !headers(&everything).contains(no_time));
    for replies in [&coarse, &none] {
        assert!(headers(replies).contains(r#""samples":1,"#) && headers(replies).contains(no_time), "{}", headers(replies));
    }
    let Reply::Scores(scores) = &none[1] else { panic!("scores") };
    assert_eq!((scores.local.predictions, scores.gap, scores.dual_norm, scores.participations), (0, 0.0, 0.0, 1));
    let Reply::Scores(scores) = &coarse[1] else { panic!("scores") };
    assert_eq!((scores.local.predictions, scores.participations), (20, 1));
}

/// An app whose clients know each other's keys, with these keys and the list as a file.
fn app_of_known_clients(folder: &Path) -> (App, Vec<SigningSecret>, PathBuf) {
    let secrets: Vec<SigningSecret> = (0..5).map(|_| SigningSecret::random().expect("random")).collect();
    let list = folder.join("clients.toml");
    let lines: String = secrets.iter().enumerate().map(|(client, key)| SigningKeys::line(client, &key.public_key())).collect();
    fs::write(&list, lines).expect("writable");
    let more = ["--set", "plan.secure_aggregation.clip=1", "--signing-keys", list.to_str().expect("UTF-8")];
    let app = App::with(settings().map(|word| word as &str).chain(more));
    (app, secrets, list)
}

#[test]
fn a_node_masks_only_with_clients_that_it_knows() {
    let folder = tempfile::tempdir().expect("a folder");
    let (app, secrets, list) = app_of_known_clients(folder.path());
    let known = SigningKeys::read(&list).expect("a list");
    // The server's operator has exchanged client 3's key for one of its own since.
    let lines = fs::read_to_string(&list).expect("readable");
    let invented = SigningKeys::line(3, &SigningSecret::random().expect("random").public_key());
    let line_of_3 = SigningKeys::line(3, &secrets[3].public_key());
    fs::write(&list, lines.replace(&line_of_3, &invented)).expect("writable");
    let other = SigningKeys::read(&list).expect("a list");
    let plain = App::with(settings().chain(["--set", "plan.secure_aggregation.clip=1"]));
    let on = |app: &App, keys: &SigningKeys| {
        let terms = Terms { known_keys: Some(keys.clone()), ..app.terms() };
        CountingWorker::on(terms, "nowhere".as_ref())
    };
    let mine = || secrets[0].clone();
    let attempts = [
        (&app, CountingWorker::accepting(&app), "is not this node's"),
        (&app, CountingWorker::accepting(&app).signing_with(secrets[1].clone()), "is not this node's"),
        (&app, on(&app, &other).signing_with(mine()), "a key of client `3` that is not on the list"),
        (
            &plain,
            on(&plain, &known).signing_with(mine()),
            "has no keys of clients to sign with, and `--signing-keys` asks for them",
        ),
    ];
    for (app, mut worker, words) in attempts {
        let (node, link) = (NodeFolder::new(), SuperLink::start());
        let (told, logged) = refused(&node, &link, &mut worker, &app.envelope(ClientTask::Train, 0));
        assert!(told == Refusal::NotAccepted && logged.contains(words) && worker.works == 0, "{words}: {logged}");
    }
    let (node, link, mut worker) = (NodeFolder::new(), SuperLink::start(), on(&app, &known).signing_with(mine()));
    link.send(&app.train(0));
    node.serve(&link, &mut worker, 1);
    let reply = envelope::read_reply(&link.reply(0).content.expect("trained")).expect("a reply");
    let Reply::Update(update) = reply else { panic!("{reply:?}") };
    assert_eq!(update.weights.like().params.count(), 0, "nothing is sent in clear");
}

#[test]
fn keys_to_sign_with_are_made_shown_collected_and_written_into_the_agreement() {
    let folder = tempfile::tempdir().expect("a folder");
    let fedeq = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
        let output = command.args(arguments).current_dir(folder.path()).env_remove("FEDEQ_DATA").output().expect("it starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"), String::from_utf8(output.stderr).expect("text"))
    };
    let mut lines = String::new();
    for client in ["0", "1", "2", "3", "4"] {
        let (code, line, said) = fedeq(&["node", "key", "--signing", "--client", client, "--state", client]);
        assert!(code == Some(0) && line.starts_with(&format!("{client} = \"")), "{line}{said}");
        let key = fedeq(&["node", "key", "--signing", "--state", client]).1;
        assert!(line.contains(key.trim()) && key.trim().len() == 64, "the same key again: {key}");
        lines += &line;
    }
    fs::write(folder.path().join("clients.toml"), &lines).expect("writable");
    let init = |more: &[&'static str], out: &'static str| {
        let all: Vec<&str> =
            ["init-federation", "--out", out].into_iter().chain(settings()).chain(more.iter().copied()).collect();
        fedeq(&all)
    };
    const SECURE: [&str; 4] = ["--set", "plan.secure_aggregation.clip=1", "--signing-keys", "clients.toml"];
    let (code, _, said) = init(&SECURE, "app");
    assert_eq!(code, Some(0), "{said}");
    let agreement = fs::read_to_string(folder.path().join("app/agreement.toml")).expect("written");
    let keys: Vec<&str> = lines.split('"').skip(1).step_by(2).collect();
    assert!(keys.len() == 5 && keys.iter().all(|key| agreement.contains(key)), "{agreement}");
    let shown = fedeq(&["node", "inspect", "app"]).1;
    assert!(shown.contains("fewer than a third of the 5 clients") && !shown.contains("as long as it follows"), "{shown}");
    // Another list is another agreement.
    let print = |app: &str| fedeq(&["node", "inspect", app, "--fingerprint"]).1;
    let before = print("app");
    fs::write(folder.path().join("clients.toml"), lines.replace(keys[4], &"ab".repeat(32))).expect("writable");
    if init(&SECURE, "other").0 == Some(0) {
        assert_ne!(print("other"), before);
    }
    // What does not fit is refused.
    fs::write(folder.path().join("clients.toml"), lines.lines().take(4).map(|line| format!("{line}\n")).collect::<String>())
        .expect("writable");
    let (code, _, said) = init(&SECURE, "fewer");
    assert!(code == Some(2) && said.contains("has `4` keys, and 5 clients train"), "{said}");
    let (code, _, said) = init(&["--signing-keys", "clients.toml"], "plain");
    assert!(code == Some(2) && said.contains("`plan.secure_aggregation`"), "{said}");
    let (code, _, said) = init(&["--set", "plan.secure_aggregation.clip=1", "--signing-keys", "nothing.toml"], "nothing");
    assert!(code == Some(2) && said.contains("nothing.toml"), "{said}");
}
