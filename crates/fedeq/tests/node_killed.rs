//! A node that is killed again and again is the node it would have been.
mod node_support;

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fedeq_core::Weights;
use fedeq_data::Seed;
use fedeq_flower::letter;
use fedeq_flower::record::Content;
use node_support::{App, Counted, Site, SuperLink};

/// Longest lives in milliseconds, in turn: starting, training and answering all fall into one of them.
const LONGEST_LIVES: [u64; 6] = [8, 16, 32, 64, 128, 256];
/// A server repeats what is not answered.
const REPEAT: Duration = Duration::from_secs(1);

/// The node as a process of its own.
fn start(site: &Site, link: &SuperLink) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.args(["node", "--superlink", &link.address, "--insecure", "--client", "0", "--data", "nowhere", "--state"]);
    command.arg(site.path()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts")
}

fn kill(mut node: Child) {
    node.kill().expect("it was running");
    node.wait().expect("it ends");
}

fn is_answered(link: &SuperLink, round: u64) -> bool {
    link.whole().iter().any(|answer| answer.content.is_ok() && answer.head.group_id == round.to_string())
}

/// What was sent in each round; all answers to a round say the same, down to the seconds they took. (A repeated question that is found only rounds later is turned
/// down, since its answer is no longer kept.)
fn sent(link: &SuperLink) -> BTreeMap<String, Weights> {
    let mut said: BTreeMap<String, Content> = BTreeMap::new();
    for answer in link.whole() {
        let Ok(content) = answer.content else { continue };
        let first = said.entry(answer.head.group_id.clone()).or_insert_with(|| content.clone());
        assert!(*first == content, "round {} was trained twice", answer.head.group_id);
    }
    let weights = |content: &Content| letter::read(content).ok().and_then(|reply| reply.weights().cloned());
    said.into_iter().map(|(round, content)| (round, weights(&content).expect("an update"))).collect()
}

/// Asks round after round of a node that is killed all the time, at moments of no rule.
fn disturb(site: &Site, link: &SuperLink, app: &App, rounds: u64) {
    let (mut round, mut asked) = (0, Instant::now());
    let mut lives = LONGEST_LIVES
        .iter()
        .cycle()
        .zip(0..)
        .map(|(longest, number)| Duration::from_millis(Seed::new(9).derive("life", [number]).to_u64() % longest));
    link.ask(&app.train(0));
    while round < rounds {
        let node = start(site, link);
        sleep(lives.next().expect("there are always more"));
        kill(node);
        let is_next = is_answered(link, round);
        round += u64::from(is_next);
        if round < rounds && (is_next || asked.elapsed() > REPEAT) {
            link.ask(&app.train(round));
            asked = Instant::now();
        }
    }
}

/// Compares a node that is killed all the time with one that is left alone.
fn survives(rounds: u64) {
    let app = App::write();
    let (calm, quiet_link, mut worker) = (Site::new(), SuperLink::start(), Counted::new());
    for round in 0..rounds {
        quiet_link.ask(&app.train(round));
        calm.serve(&quiet_link, &mut worker, round as usize + 1);
    }
    let (site, link) = (Site::new(), SuperLink::start());
    disturb(&site, &link, &app, rounds);
    assert!(sent(&link) == sent(&quiet_link), "what was sent is the same");
    // The last answer may have come through before the node could put its question away.
    site.serve_until(&link, &mut worker, &|| site.is_done());
    assert!(site.learned().state == calm.learned().state, "model, dual and memory are the same");
}

#[test]
fn a_node_that_is_killed_at_any_moment_ends_with_the_same_bytes() {
    survives(8);
}

#[test]
#[ignore = "takes minutes: `cargo test --workspace --test node_killed -- --ignored`"]
fn a_node_that_is_killed_hundreds_of_times_ends_with_the_same_bytes() {
    survives(120);
}
