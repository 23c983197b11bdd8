//! Every byte that a node sends over a whole run: no sample, no head, no dual; only what the method shares.
mod node_support;

use std::collections::{BTreeMap, HashSet};

use fedeq::node::recall;
use fedeq_core::{Array, ClientState, Reply};
use fedeq_data::Samples;
use fedeq_flower::letter;
use fedeq_flower::record::Content;
use fedeq_models::Part;
use node_support::{App, Counted, Site, SuperLink, message};

/// So many consecutive bytes count as found: four numbers, or sixteen pixels.
const WINDOW: usize = 16;

/// What is looked for, by what it is: consecutive bytes of it.
type Secrets = BTreeMap<&'static str, HashSet<[u8; WINDOW]>>;

/// All consecutive bytes of some.
fn windows(bytes: &[u8], step: usize) -> impl Iterator<Item = [u8; WINDOW]> {
    bytes.windows(WINDOW).step_by(step).map(|window| window.try_into().expect("as long as it is"))
}

/// Whether bytes are no mere zeros or repetitions, which stand everywhere.
fn is_telling(window: &[u8; WINDOW]) -> bool {
    window.iter().collect::<HashSet<_>>().len() >= 6
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn numbers<'a>(arrays: impl IntoIterator<Item = (&'a str, &'a Array)>) -> Vec<[u8; WINDOW]> {
    arrays.into_iter().flat_map(|(_, array)| windows(&floats(&array.values), 4).collect::<Vec<_>>()).filter(is_telling).collect()
}

/// The client's samples as bytes, as shares of white and as the network sees them.
fn samples(site: &Site) -> Vec<[u8; WINDOW]> {
    let (prepared, _) = recall(&site.learned(), "nowhere".as_ref()).expect("the digits are here");
    let Samples::Images(images) = &prepared.dataset.samples else { panic!("digits are pictures") };
    let size: usize = images.shape.iter().product();
    let client = &prepared.federation.clients[0];
    let mut all = Vec::new();
    for &sample in client.train.iter().chain(&client.validation).chain(&client.test) {
        let pixels = &images.pixels[sample as usize * size..][..size];
        let shares: Vec<f32> = pixels.iter().map(|&pixel| f32::from(pixel) / f32::from(images.white)).collect();
        let (mean, deviation) = (images.scaling.mean[0], images.scaling.deviation[0]);
        let seen: Vec<f32> = shares.iter().map(|share| (share - mean) / deviation).collect();
        for bytes in [pixels.to_vec(), floats(&shares), floats(&seen)] {
            all.extend(windows(&bytes, 1).filter(is_telling));
        }
    }
    all
}

/// What a node keeps for itself, as it is now.
fn note_secrets(site: &Site, secrets: &mut Secrets) {
    let learned = site.learned();
    let (prepared, _) = recall(&learned, "nowhere".as_ref()).expect("the digits are here");
    let state = ClientState::from_bytes(&learned.state, &prepared.fresh_state(0)).expect("a sound state");
    let head = state.own.head();
    assert!(!head.is_empty());
    secrets.entry("w").or_default().extend(numbers(head.iter()));
    secrets.entry("lambda").or_default().extend(numbers(state.dual.iter()));
    secrets.entry("samples").or_default().extend(samples(site));
}

fn reply(content: &Content) -> Reply {
    letter::read(content).expect("a reply")
}

/// Whatever an answer holds is listed here.
fn assert_nothing_else(content: &Content) {
    let settings = content.config("fedeq").expect("settings");
    let known = ["header", "layout", "client", "version"];
    assert!(settings.items.iter().all(|item| known.contains(&item.key.as_str())), "{settings:?}");
    if let Ok(weights) = content.arrays("weights") {
        let names: Vec<&str> = weights.iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["packed"]);
        let Reply::Update(update) = reply(content) else { panic!("only training sends weights") };
        assert!(update.weights.params.iter().all(|(path, _)| Part::of(path) == Part::Shared));
    }
}

fn all_that_was_sent(link: &SuperLink) -> HashSet<[u8; WINDOW]> {
    let desk = link.desk();
    let bodies = desk.heard.iter().map(|(_, body)| body);
    bodies.chain(&desk.headers).flat_map(|bytes| windows(bytes, 1).collect::<Vec<_>>()).collect()
}

#[test]
fn a_node_sends_what_the_method_shares_and_nothing_else() {
    let (mut app, site, link, mut worker) = (App::write(), Site::new(), SuperLink::start(), Counted::new());
    let (mut secrets, mut shared) = (Secrets::new(), HashSet::new());
    link.ask(&message("query", Content::default()));
    for round in 0..3 {
        link.ask(&app.train(round));
        link.ask(&app.evaluate(round + 1));
        let answers = 1 + 2 * (round as usize + 1);
        site.serve(&link, &mut worker, answers);
        note_secrets(&site, &mut secrets);
        let Reply::Update(update) = reply(&link.answer(answers - 2).content.expect("an answer")) else { panic!("it trained") };
        shared.extend(numbers(update.weights.params.iter()));
        app.theta = update.weights;
    }
    (0..link.answered()).for_each(|number| assert_nothing_else(&link.answer(number).content.expect("an answer")));
    let sent = all_that_was_sent(&link);
    assert!(!shared.is_empty() && shared.is_subset(&sent), "what is shared is found, so the search finds");
    for (name, secret) in &secrets {
        assert!(secret.len() > 50, "{name}: there is something to look for");
        assert!(secret.is_disjoint(&sent), "{name} is among what was sent");
    }
}
