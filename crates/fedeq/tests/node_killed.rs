//! A node that is killed again and again ends in the same state as one that is not.
mod node_support;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fedeq_core::Weights;
use fedeq_data::Seed;
use fedeq_flower::envelope;
use fedeq_flower::record::Content;
use node_support::{App, CountingWorker, NodeFolder, SuperLink};

/// Longest lifetimes in milliseconds, in turn: the node is killed while it starts, trains or replies.
const LONGEST_LIFETIMES: [u64; 6] = [8, 16, 32, 64, 128, 256];
/// A server repeats a request without a reply.
const REPEAT: Duration = Duration::from_secs(1);

/// The node as a process of its own. It is killed more often on one request than usual owners would have it.
fn start(node: &NodeFolder, link: &SuperLink, app: &App) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.args(["node", "--superlink", &link.address, "--insecure", "--client", "0", "--data", "nowhere", "--state"]);
    command.arg(node.path()).args(["--accept", &app.fingerprint.to_string(), "--max-deaths", "1000000"]);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts")
}

fn kill(mut node: Child) {
    node.kill().expect("it was running");
    node.wait().expect("it ends");
}

fn has_reply(link: &SuperLink, round: u64) -> bool {
    link.complete_replies().iter().any(|reply| reply.content.is_ok() && reply.head.group_id == round.to_string())
}

/// The weights that were sent in each round; all replies of a round have the same content, down to the seconds. (A repeated request that is found only rounds
/// later is refused, since its reply is no longer stored.)
fn sent(link: &SuperLink) -> BTreeMap<String, Weights> {
    let mut said: BTreeMap<String, Content> = BTreeMap::new();
    for reply in link.complete_replies() {
        let Ok(content) = reply.content else { continue };
        let first = said.entry(reply.head.group_id.clone()).or_insert_with(|| content.clone());
        assert!(*first == content, "round {} was trained twice", reply.head.group_id);
    }
    let weights =
        |content: &Content| envelope::read_reply(content).ok().and_then(|reply| reply.weights().ok()?.map(Cow::into_owned));
    said.into_iter().map(|(round, content)| (round, weights(&content).expect("an update"))).collect()
}

/// Requests round after round from a node that is killed all the time, at random moments.
fn disturb(node: &NodeFolder, link: &SuperLink, app: &App, rounds: u64) {
    let (mut round, mut asked, mut patience) = (0, Instant::now(), Patience::default());
    link.send(&app.train(0));
    let begun = Instant::now();
    for number in 0.. {
        assert!(begun.elapsed() < Duration::from_secs(600) * rounds.div_ceil(8) as u32, "round {round} does not end");
        let process = start(node, link, app);
        sleep(patience.lifetime(number));
        kill(process);
        let is_next = has_reply(link, round);
        patience.note(is_next);
        round += u64::from(is_next);
        if round == rounds {
            return;
        }
        if is_next || asked.elapsed() > REPEAT {
            link.send(&app.train(round));
            asked = Instant::now();
        }
    }
}

/// On a machine that is too busy to finish a round within the usual lifetimes, they are doubled after many lives without a reply.
#[derive(Default)]
struct Patience {
    without_reply: u32,
    doublings: u32,
}

impl Patience {
    fn note(&mut self, is_reply: bool) {
        self.without_reply = if is_reply { 0 } else { self.without_reply + 1 };
        if self.without_reply == 50 {
            (self.without_reply, self.doublings) = (0, (self.doublings + 1).min(10));
        }
    }

    fn lifetime(&self, number: u64) -> Duration {
        let longest = LONGEST_LIFETIMES[number as usize % LONGEST_LIFETIMES.len()] << self.doublings;
        Duration::from_millis(Seed::new(9).derive("life", [number]).to_u64() % longest)
    }
}

/// Compares a node that is killed all the time with one that is left alone.
fn survives(rounds: u64) {
    let app = App::of_rounds(rounds);
    let (calm, quiet_link, mut worker) = (NodeFolder::new(), SuperLink::start(), CountingWorker::accepting(&app));
    for round in 0..rounds {
        quiet_link.send(&app.train(round));
        calm.serve(&quiet_link, &mut worker, round as usize + 1);
    }
    let (node, link) = (NodeFolder::new(), SuperLink::start());
    disturb(&node, &link, &app, rounds);
    assert!(sent(&link) == sent(&quiet_link), "what was sent is the same");
    // The last reply may have arrived before the node could remove its request.
    node.serve_until(&link, &mut worker, &|| node.is_done());
    assert!(node.trained().state == calm.trained().state, "the states are the same");
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
