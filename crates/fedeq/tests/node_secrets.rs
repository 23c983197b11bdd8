//! Every byte that a node sends over a whole run: no sample, and nothing of what its method keeps at home; only the shared part of the model.
mod node_support;

use std::collections::{BTreeMap, HashSet};

use fedeq::node::load_model;
use fedeq_core::{Algorithm, Array, ClientState, ClientTask, Method, Params, Reply, shared_part};
use fedeq_data::Samples;
use fedeq_flower::envelope;
use fedeq_flower::record::Content;
use fedeq_models::Part;
use node_support::{App, CountingWorker, NodeFolder, SuperLink, message};

/// How many consecutive bytes are compared: four numbers, or sixteen pixels.
const WINDOW: usize = 16;

/// Consecutive bytes by what they are.
type Secrets = BTreeMap<&'static str, HashSet<[u8; WINDOW]>>;

/// All windows of consecutive bytes.
fn windows(bytes: &[u8], step: usize) -> impl Iterator<Item = [u8; WINDOW]> {
    bytes.windows(WINDOW).step_by(step).map(|window| window.try_into().expect("as long as it is"))
}

/// Whether bytes are distinctive: zeros and repetitions occur everywhere.
fn is_distinctive(window: &[u8; WINDOW]) -> bool {
    window.iter().collect::<HashSet<_>>().len() >= 6
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers<'a>(arrays: impl IntoIterator<Item = (&'a str, &'a Array)>) -> Vec<[u8; WINDOW]> {
    arrays
        .into_iter()
        .flat_map(|(_, array)| windows(&floats(&array.values), 4).collect::<Vec<_>>())
        .filter(is_distinctive)
        .collect()
}

/// The client's samples as bytes, scaled to [0, 1], and as the network receives them.
fn samples(node: &NodeFolder) -> Vec<[u8; WINDOW]> {
    let (prepared, _) = load_model(&node.trained(), "nowhere".as_ref()).expect("the digits are here");
    let Samples::Images(images) = &prepared.dataset.samples else { panic!("digits are pictures") };
    let size: usize = images.shape.iter().product();
    let client = &prepared.splits.clients[0];
    let mut all = Vec::new();
    for &sample in client.train.iter().chain(&client.validation).chain(&client.test) {
        let pixels = &images.pixels[sample as usize * size..][..size];
        let shares: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / f32::from(images.white)).collect();
        let (mean, deviation) = (images.scaling.mean[0], images.scaling.deviation[0]);
        let seen: Vec<f32> = shares.iter().map(|share| (share - mean) / deviation).collect();
        for bytes in [pixels.to_vec(), floats(&shares), floats(&seen)] {
            all.extend(windows(&bytes, 1).filter(is_distinctive));
        }
    }
    all
}

/// Adds the current secrets of a node.
fn add_secrets(node: &NodeFolder, secrets: &mut Secrets) {
    let trained = node.trained();
    let (prepared, _) = load_model(&trained, "nowhere".as_ref()).expect("the digits are here");
    let state = ClientState::from_bytes(&trained.state, &prepared.fresh_state(0)).expect("a sound state");
    let head = state.own.head();
    assert!(!head.is_empty());
    secrets.entry("w").or_default().extend(numbers(head.iter()));
    secrets.entry("lambda").or_default().extend(numbers(state.dual.iter()));
    secrets.entry("samples").or_default().extend(samples(node));
}

fn reply(content: &Content) -> Reply {
    envelope::read_reply(content).expect("a reply")
}

/// A reply contains nothing that is not listed here; weights are those that the server has, by their names.
fn assert_nothing_else(content: &Content, theta: &Params) {
    let settings = content.config("fedeq").expect("settings");
    let known = ["header", "layout", "client", "version"];
    assert!(settings.items.iter().all(|item| known.contains(&item.key.as_str())), "{settings:?}");
    if let Ok(weights) = content.arrays("weights") {
        let names: Vec<&str> = weights.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["packed"]);
        let Reply::Update(update) = reply(content) else { panic!("only training sends weights") };
        let names = |params: &Params| params.iter().map(|(path, _)| path.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&update.weights.like().params), names(theta));
    }
}

fn sent_bytes(link: &SuperLink) -> HashSet<[u8; WINDOW]> {
    let state = link.state();
    let bodies = state.calls.iter().map(|(_, body)| body);
    bodies.chain(&state.headers).flat_map(|bytes| windows(bytes, 1).collect::<Vec<_>>()).collect()
}

#[test]
fn a_node_sends_what_the_method_shares_and_nothing_else() {
    let mut app = App::small(&["model.hidden=16", "model.dense=8"]);
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut worker = CountingWorker::accepting(&app);
    let (mut secrets, mut shared) = (Secrets::new(), HashSet::new());
    link.send(&message("query", Content::default()));
    for round in 0..3 {
        link.send(&app.train(round));
        link.send(&app.evaluate(round + 1));
        let replies = 1 + 2 * (round as usize + 1);
        node.serve(&link, &mut worker, replies);
        add_secrets(&node, &mut secrets);
        let Reply::Update(update) = reply(&link.reply(replies - 2).content.expect("a reply")) else { panic!("it trained") };
        shared.extend(numbers(update.weights.like().params.iter()));
        app.theta = update.weights.like().clone();
    }
    for number in 0..link.replies() {
        let content = link.reply(number).content.expect("a reply");
        assert_nothing_else(&content, &app.theta.params);
        if content.arrays("weights").is_ok() {
            let Reply::Update(update) = reply(&content) else { panic!("only training sends weights") };
            assert!(update.weights.like().params.iter().all(|(path, _)| Part::of(path) == Part::Shared));
        }
    }
    let sent = sent_bytes(&link);
    assert!(!shared.is_empty() && shared.is_subset(&sent), "the search finds what was sent");
    for (name, secret) in &secrets {
        assert!(secret.len() > 50, "{name}: too little to search for");
        assert!(secret.is_disjoint(&sent), "{name} was sent");
    }
}

/// What a client of a method keeps to itself, beside its samples. Of those without anything all that a client keeps is what it has sent, or what it was sent.
fn kept(method: &str) -> &'static [&'static str] {
    match method {
        "fedeq" => &["dual", "own"],
        // A head; all of it; the normalisations.
        "fedper" | "fedrep" | "local" | "fedbn" => &["own"],
        // A personal model.
        "ditto" | "apfl" | "pfedme" => &["second"],
        "fedavg-ft" => &["after training"],
        "feddyn" => &["dual"],
        // SCAFFOLD's dual is the control variate, by whose change a client says what it is. kNN-Per's neighbours are samples.
        "fedavg" | "fedprox" | "moon" | "scaffold" | "knn-per" => &[],
        other => panic!("say what a client of `{other}` keeps"),
    }
}

/// The network of a method: a small one with what the method keeps.
fn network(method: &str) -> &'static [&'static str] {
    match method {
        "fedeq" => &["model=deq-mlp", "model.hidden=16", "model.dense=8"],
        "fedbn" => &["model=resnet-xs"],
        // What neighbours are compared by is what the last layer is given: of this network the sample itself, which is searched for.
        "knn-per" => &["model=linear"],
        _ => &["model=mlp", "model.hidden=[16]"],
    }
}

/// Adds what a client's state has that its method does not send.
fn add_kept(state: &ClientState, algorithm: &dyn Algorithm, secrets: &mut Secrets) {
    let mut add = |name, params: &Params| {
        let found = numbers(params.iter());
        if !found.is_empty() {
            secrets.entry(name).or_default().extend(found);
        }
    };
    let shared = shared_part(algorithm, &state.own).packed();
    add("own", &state.own.packed().filter(|path| shared.get(path).is_none()));
    state.second.iter().for_each(|second| add("second", &second.packed()));
    if !algorithm.sends_control() {
        add("dual", &state.dual);
    }
}

/// Lets a node take part in two rounds and in the end, and searches all that it sent.
fn search(method: &str) {
    let named = format!("method={method}");
    let mut app = App::small(&[&[named.as_str(), "plan.rounds=2"], network(method)].concat());
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    let mut worker = CountingWorker::accepting(&app);
    let algorithm = Method::named(method).expect("a method");
    let algorithm = algorithm.algorithm();
    let (mut secrets, mut public) = (Secrets::new(), HashSet::new());
    let state = || {
        let trained = node.trained();
        let (prepared, _) = load_model(&trained, "nowhere".as_ref()).expect("the digits are here");
        ClientState::from_bytes(&trained.state, &prepared.fresh_state(0)).expect("a sound state")
    };
    for round in 0..2 {
        public.extend(numbers(app.theta.packed().iter()));
        link.send(&app.train(round));
        link.send(&app.evaluate(round + 1));
        node.serve(&link, &mut worker, 2 * (round as usize + 1));
        add_kept(&state(), algorithm, &mut secrets);
        // Where two models have hardly moved apart, some numbers are the same in both.
        public.extend(numbers(shared_part(algorithm, &state().own).packed().iter()));
        let Reply::Update(update) = reply(&link.reply(2 * round as usize).content.expect("a reply")) else {
            panic!("it trained")
        };
        app.theta = update.weights.like().clone();
    }
    let before = state().own;
    link.send(&message("train", app.envelope(ClientTask::Finish, 2).write().expect("plain")));
    node.serve(&link, &mut worker, 5);
    if state().own != before {
        secrets.entry("after training").or_default().extend(numbers(state().own.packed().iter()));
    }
    add_kept(&state(), algorithm, &mut secrets);
    // What training did not move is what every client began with, or was sent.
    secrets.values_mut().for_each(|secret| secret.retain(|window| !public.contains(window)));
    assert_eq!(secrets.keys().copied().collect::<Vec<_>>(), kept(method), "{method}");
    secrets.insert("samples", samples(&node).into_iter().collect());
    (0..link.replies()).for_each(|number| assert_nothing_else(&link.reply(number).content.expect("a reply"), &app.theta.params));
    let sent = sent_bytes(&link);
    let shared: HashSet<_> = numbers(app.theta.params.iter()).into_iter().collect();
    assert!(shared.is_subset(&sent), "{method}: the search finds what was sent");
    for (name, secret) in &secrets {
        assert!(secret.len() > 50, "{method}: {name}: too little to search for");
        assert!(secret.is_disjoint(&sent), "{method}: {name} was sent");
    }
}

#[test]
fn what_a_client_of_any_method_keeps_is_in_no_byte_that_its_node_sends() {
    Method::NAMES.into_iter().for_each(search);
}
