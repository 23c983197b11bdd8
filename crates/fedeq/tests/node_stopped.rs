//! A node as a process that is told to stop, killed, or whose work takes too much, while it trains for ever.
mod node_support;
mod run_support;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use fedeq_core::ClientTask;
use fedeq_flower::node::Refusal;
use node_support::{App, NodeFolder, SuperLink, settings};
use run_support::{Running, spawn};

/// An experiment whose first round would take days.
fn endless() -> App {
    App::with(settings().chain(["--set", "training.epochs=1000000"]))
}

/// The node as a process that allows so many epochs.
fn start(node: &NodeFolder, link: &SuperLink, app: &App, options: &[&str]) -> Running {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fedeq"));
    command.args(["node", "--superlink", &link.address, "--insecure", "--client", "0", "--data", "nowhere", "--state"]);
    command.arg(node.path()).args(["--accept", &app.fingerprint.to_string(), "--max-epochs", "1000000"]).args(options);
    spawn(&mut command)
}

/// Whether the node works on a request, for the first time that counts.
fn is_at_work(node: &Path) -> bool {
    has_begun(node, 1)
}

/// Whether the node has begun to work on a request so often, and that is on disk: a file that is still being written has another name.
fn has_begun(node: &Path, times: u32) -> bool {
    let records = fs::read_dir(node.join("attempts")).into_iter().flatten().flatten().map(|record| record.path());
    let written = records.filter(|path| path.extension().is_none());
    written.flat_map(fs::read_to_string).any(|record| record.contains(&format!(r#""begun":{times},"#)))
}

#[test]
fn a_node_that_is_told_to_stop_ends_in_the_middle_of_training_and_starts_over_later() {
    let (app, node, link) = (endless(), NodeFolder::new(), SuperLink::start());
    link.send(&app.train(0));
    for signal in ["-TERM", "-INT"] {
        let mut process = start(&node, &link, &app, &[]);
        process.wait_until("it works on the request", || is_at_work(node.path()));
        let told = Command::new("kill").args([signal, &process.id().to_string()]).status().expect("`kill` is there");
        assert!(told.success());
        let begun = std::time::Instant::now();
        let ended = process.wait().expect("ours");
        assert_eq!(ended.code(), Some(0), "{signal}");
        // A second is promised; a busy machine gets more before this fails, and the training would take days.
        assert!(begun.elapsed().as_secs() < 10, "{signal}: it took {:?}", begun.elapsed());
        let records =
            fs::read_dir(node.path().join("attempts")).expect("a folder").map(|record| record.expect("readable").path());
        let texts: BTreeSet<String> = records.map(|path| fs::read_to_string(path).expect("readable")).collect();
        let expected = [r#"{"begun":0,"panicked":false}"#, r#"{"round":0,"times":0}"#].map(String::from);
        assert_eq!(texts, BTreeSet::from(expected), "a stop says nothing against the request, nor against its round");
    }
    assert_eq!(link.replies(), 0);
}

/// How long a node takes to end, told so in the middle of training at moments that differ: what docs/reliability.md says.
#[test]
#[ignore = "measures nothing but time"]
#[allow(clippy::print_stderr, reason = "it is what it is for")]
fn milliseconds_of_a_stop() {
    let (app, node, link) = (endless(), NodeFolder::new(), SuperLink::start());
    link.send(&app.train(0));
    let mut taken: Vec<u128> = (0..20).map(|at| stopped_after(&node, &link, &app, 50 * at)).collect();
    taken.sort_unstable();
    eprintln!("a stop in ms: {taken:?}");
}

/// Stops a node that has trained for so many milliseconds, and says how many more it took.
fn stopped_after(node: &NodeFolder, link: &SuperLink, app: &App, trained: u64) -> u128 {
    let mut process = start(node, link, app, &[]);
    process.wait_until("it works on the request", || is_at_work(node.path()));
    std::thread::sleep(std::time::Duration::from_millis(trained));
    let begun = std::time::Instant::now();
    let told = Command::new("kill").args(["-TERM", &process.id().to_string()]).status().expect("`kill` is there");
    assert!(told.success() && process.wait().expect("ours").success());
    begun.elapsed().as_millis()
}

/// Kills a node, as often as it may be killed, while it trains.
fn kill_at_work(node: &NodeFolder, link: &SuperLink, app: &App, deaths: u32, options: &[&str]) {
    for death in 1..=deaths {
        let mut process = start(node, link, app, options);
        process.wait_until("it works on the request", || has_begun(node.path(), death));
        process.kill().expect("ours");
        process.wait().expect("it ends");
        assert_eq!(link.replies(), 0, "death {death}");
    }
}

#[test]
fn a_request_on_which_the_node_was_killed_three_times_is_dropped_and_others_are_carried_out() {
    let (app, node, link) = (endless(), NodeFolder::new(), SuperLink::start());
    link.send(&app.train(0));
    kill_at_work(&node, &link, &app, 3, &[]);
    let mut process = start(&node, &link, &app, &[]);
    process.wait_until("it has dropped the request", || link.replies() == 1);
    assert_eq!(link.refusal(0), Refusal::Crashed);
    // The same in another message is refused at once; another request is carried out, by the same process.
    let mut again = app.train(0);
    again.head.run_id = 4;
    link.send(&again);
    link.send(&app.evaluate(1));
    process.wait_until("it has replied to both", || link.replies() == 3);
    let refused = (1..3).filter(|reply| link.reply(*reply).content.is_err()).count();
    assert_eq!(refused, 1);
    assert!(process.try_wait().expect("ours").is_none(), "it is still the same process");
}

#[test]
fn how_often_a_node_may_be_killed_on_a_request_is_a_setting() {
    let (app, node, link) = (endless(), NodeFolder::new(), SuperLink::start());
    link.send(&app.train(0));
    kill_at_work(&node, &link, &app, 1, &["--max-deaths", "1"]);
    let mut process = start(&node, &link, &app, &["--max-deaths", "2"]);
    process.wait_until("it tries again", || has_begun(node.path(), 2));
    process.kill().expect("ours");
    process.wait().expect("it ends");
    let mut process = start(&node, &link, &app, &["--max-deaths", "2"]);
    process.wait_until("it has dropped the request", || link.replies() == 1);
    assert_eq!(link.refusal(0), Refusal::Crashed);
}

/// A node gives up a request, tells the server so, and carries out the next one: all in one process.
fn gives_up(options: &[&str], other: ClientTask) {
    let (app, node, link) = (endless(), NodeFolder::new(), SuperLink::start());
    link.send(&app.train(0));
    let mut process = start(&node, &link, &app, options);
    process.wait_until("it has given up", || link.replies() == 1);
    assert_eq!(link.refusal(0), Refusal::Limit, "{options:?}");
    // The same again is refused at once, in whatever message.
    let mut again = app.train(0);
    again.head.run_id = 4;
    link.send(&again);
    process.wait_until("it has refused it again", || link.replies() == 2);
    assert_eq!(link.refusal(1), Refusal::Limit);
    if other == ClientTask::Evaluate {
        link.send(&app.evaluate(1));
        process.wait_until("it has evaluated", || link.replies() == 3);
        assert!(link.reply(2).content.is_ok());
    }
    assert!(process.try_wait().expect("ours").is_none(), "it is still the same process");
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_gives_up_a_request_that_takes_too_long_and_drops_it() {
    gives_up(&["--max-seconds", "1"], ClientTask::Evaluate);
}

#[cfg(target_os = "linux")]
#[test]
fn a_node_gives_up_a_request_that_takes_too_much_memory_and_drops_it() {
    gives_up(&["--max-memory", "1"], ClientTask::Train);
}
