//! A run that is stopped keeps every round that was over, and says from where it continues.
#![cfg(unix)]
mod run_support;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use run_support::{assert_same_files, fedeq, json, manifests, run, run_command, spawn, succeed};
use tempfile::TempDir;

/// No checkpoint comes by itself.
const NONE: [&str; 2] = ["engine.checkpoint_every=1000000", "engine.checkpoint_seconds=1000000"];

fn lines(journal: &Path) -> usize {
    fs::read_to_string(journal).map_or(0, |text| text.lines().count())
}

/// Waits until so many rounds are written down.
fn await_rounds(run: &Path, rounds: usize, child: &mut Child) {
    let begun = Instant::now();
    while lines(&run.join("rounds.jsonl")) < rounds && child.try_wait().expect("ours").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(60), "too slow");
        sleep(Duration::from_millis(2));
    }
}

/// The round of the last checkpoint.
fn kept(run: &Path) -> u64 {
    json(manifests(run).last().expect("some"))["manifest"]["round"].as_u64().expect("a number")
}

fn stop_and_resume(settings: &[&str], stop: impl Fn(&Path, &Child)) {
    let folder = TempDir::new().expect("a folder");
    let whole = run(&folder, "whole", settings);
    let stopped = folder.path().join("stopped");
    let mut child = run_command(&folder, "stopped", &[settings, &NONE].concat()).stderr(Stdio::piped()).spawn().expect("starts");
    await_rounds(&stopped, 3, &mut child);
    stop(&stopped, &child);
    let output = child.wait_with_output().expect("ours");
    let words = String::from_utf8(output.stderr).expect("UTF-8");
    assert_eq!(output.status.code(), Some(130), "{words}");
    let rounds = kept(&stopped);
    assert!(rounds >= 2, "only {rounds} rounds are kept: {words}");
    assert!(words.contains(&format!("stopped after {rounds} of 12 rounds")), "{words}");
    assert!(words.contains("continue from there with `fedeq resume stopped`"), "{words}");
    assert_eq!(json(&stopped.join("status.json"))["state"], "stopped");
    let again = succeed(fedeq(&folder).args(["resume", "stopped"]));
    let words = String::from_utf8(again.stderr).expect("UTF-8");
    assert!(words.contains(&format!("continuing after round {rounds} of 12")), "{words}");
    assert_same_files(&whole, &stopped, &format!("{settings:?}"));
}

fn interrupt(_: &Path, child: &Child) {
    succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
}

fn leave_order(run: &Path, _: &Child) {
    fs::write(run.join("control.json"), "{\"order\": \"stop\"}").expect("writable");
}

#[test]
fn ctrl_c_keeps_all_rounds_that_were_over_without_any_checkpoint_before() {
    stop_and_resume(&["plan.rounds=12"], interrupt);
}

#[test]
fn an_order_to_stop_keeps_them_too_also_where_states_do_not_fit_in_memory() {
    stop_and_resume(&["plan.rounds=12", "engine.client_memory_mb=1"], leave_order);
}

#[test]
fn work_under_way_without_rounds_is_kept_too() {
    let asynchronous = "plan.asynchronous={ slowest = 4, max_staleness = 9 }";
    stop_and_resume(&["plan.rounds=12", "method.server_step=consensus", asynchronous], interrupt);
}

#[test]
fn a_checkpoint_comes_after_some_time_however_few_rounds_are_over() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["plan.rounds=12", "training.epochs=4"];
    let whole = run(&folder, "whole", &settings);
    let killed = folder.path().join("killed");
    let by_time = ["engine.checkpoint_every=1000000", "engine.checkpoint_seconds=1", "plan.rounds=100000"];
    let mut child = spawn(&mut run_command(&folder, "timed", &[&settings[..], &by_time].concat()));
    let begun = Instant::now();
    while manifests(&folder.path().join("timed")).len() < 2 {
        assert!(begun.elapsed() < Duration::from_secs(60), "no checkpoint");
        sleep(Duration::from_millis(5));
    }
    child.kill_now();
    assert!(kept(&folder.path().join("timed")) > 0);
    // When checkpoints are written changes nothing of the result.
    let timed = ["engine.checkpoint_every=5", "engine.checkpoint_seconds=1"];
    succeed(&mut run_command(&folder, "killed", &[&settings[..], &timed].concat()));
    assert_same_files(&whole, &killed, "other checkpoints");
}

#[test]
fn a_run_that_diverges_keeps_the_rounds_before() {
    let folder = TempDir::new().expect("a folder");
    let steep = ["model=mlp", "method=fedavg", "training.learning_rate=1e12", "training.batch_size=1000"];
    let settings = [&steep[..], &["training.remainder=keep", "plan.evaluate_every=1", "plan.rounds=9"], &NONE].concat();
    let (error, hint) = run_support::refusal(&mut run_command(&folder, "out", &settings), 1);
    // JSON has no word for what is not finite, so that it once came back as damage.
    assert!(error.starts_with("after round 2, client `client-") && error.contains("is `NaN`"), "{error}");
    assert_eq!(hint, "lower `training.learning_rate`, which is `1000000000000`");
    assert_eq!(kept(&folder.path().join("out")), 1);
}

#[test]
fn a_run_without_end_can_be_begun_and_stopped() {
    const ENDLESS: [&str; 4] =
        ["plan.rounds=1000000", "plan.evaluate_every=0", "model=linear", "engine.client_memory_mb=1000000000"];
    let asynchronous = ["method.server_step=consensus", "plan.asynchronous={ slowest = 4, max_staleness = 9 }"];
    let folder = TempDir::new().expect("a folder");
    for (name, more) in [("in-step", &[][..]), ("without-rounds", &asynchronous)] {
        let path = folder.path().join(name);
        let mut child = spawn(&mut run_command(&folder, name, &[&ENDLESS[..], &NONE, more].concat()));
        await_rounds(&path, 3, &mut child);
        interrupt(&path, &child);
        assert_eq!(child.wait().expect("ours").code(), Some(130), "{name}");
        assert!(kept(&path) >= 2, "{name}");
    }
}
