//! A run that was killed ends with the same bytes as one that was not.
#![allow(clippy::print_stderr, reason = "the stress test says how it goes")]
mod run_support;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use fedeq_core::Method;
use run_support::{assert_same_files, fedeq, half_done, json, manifests, refusal, run, run_command, spawn, succeed};
use tempfile::TempDir;

/// Every method there is; the one that can be asynchronous once more so, with its messages as they are and compressed; one whose server keeps a bound that
/// adapts while some clients lie; one whose server keeps moments; and runs that end before their plan does.
fn cases() -> Vec<Vec<String>> {
    const ASYNCHRONOUS: [&str; 4] =
        ["method=fedeq", "method.server_step=consensus", "plan.asynchronous={ slowest = 4, max_staleness = 9 }", "plan.rounds=6"];
    let synchronous = Method::NAMES.iter().map(|name| vec![format!("method={name}")]);
    const CLIPPED: [&str; 4] = [
        "method=fedavg",
        "attack=noise",
        "plan.aggregation={ rule = 'median', clip = { adaptive = { rate = 0.5 } } }",
        "plan.rounds=6",
    ];
    const OPTIMISED: [&str; 4] =
        ["method=fedavg", "plan.server_optimiser.rule=yogi", "training.optimiser=adam", "training.schedule.shape=cosine"];
    const STILL: [&str; 6] = [
        "model=mlp",
        "plan.rounds=9",
        "plan.evaluate_every=1",
        "plan.patience=3",
        "data.split.validation=0.2",
        "training.learning_rate=1e-9",
    ];
    let patient = |settings: &[&str]| settings.iter().chain(&STILL).map(|setting| (*setting).to_owned()).collect();
    let compressed = ASYNCHRONOUS.into_iter().chain(["plan.compression={ up = { top-k = 0.1 }, down = 'int4' }"]);
    let compressed = compressed.map(str::to_owned).collect();
    synchronous
        .chain([
            ASYNCHRONOUS.map(str::to_owned).to_vec(),
            compressed,
            CLIPPED.map(str::to_owned).to_vec(),
            OPTIMISED.map(str::to_owned).to_vec(),
            patient(&["method=fedavg-ft"]),
            patient(&ASYNCHRONOUS),
        ])
        .collect()
}

/// An equilibrium network that trains in no time: what is left of a run is mostly writing, which is when a kill can hurt.
const SMALL: [&str; 6] = [
    "model=deq-mlp",
    "model.hidden=32",
    "data.partition.clients=8",
    "plan.sampling.fraction=0.3",
    "plan.rounds=12",
    "data.unseen={ count = 1 }",
];

/// Numbers between 0 and 1 that look random: moments to kill at.
struct Moments(u64);

impl Moments {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Kills a command at some moment within `span`; says whether it was still at work.
fn kill_at(command: &mut Command, run: &Path, span: Duration, moment: f64) -> bool {
    let mut child = spawn(command);
    child.await_checkpoint(run, 0);
    sleep(span.mul_f64(moment));
    let was_running = child.try_wait().expect("ours").is_none();
    child.kill_now();
    was_running
}

/// Kills a run at work again and again, lets it finish, and compares it with one that was left alone. A run that came to its end
/// before it could be killed is compared as well, and another one begun. Says how many runs there were.
fn survives(settings: &[&str], kills: usize, seed: u64) -> usize {
    let folder = TempDir::new().expect("a folder");
    let begun = Instant::now();
    let whole = run(&folder, "whole", settings);
    let span = begun.elapsed();
    let killed = folder.path().join("killed");
    let (mut moments, mut at_work, mut runs) = (Moments(seed), 0, 1);
    let next = || if killed.exists() { resume(&folder, "killed") } else { run_command(&folder, "killed", settings) };
    while at_work < kills {
        // A resumed run has less left to do than a whole one: most moments must lie before its end.
        if kill_at(&mut next(), &killed, span.mul_f64(0.4), moments.next()) {
            at_work += 1;
        } else {
            assert_same_files(&whole, &killed, &format!("{settings:?}"));
            fs::remove_dir_all(&killed).expect("ours");
            runs += 1;
        }
    }
    succeed(&mut next());
    assert_same_files(&whole, &killed, &format!("{settings:?}"));
    runs
}

fn resume(folder: &TempDir, run: &str) -> Command {
    let mut command = fedeq(folder);
    command.args(["resume", run, "--quiet"]);
    command
}

#[test]
fn every_method_ends_with_the_same_bytes_after_being_killed_twice() {
    for (number, settings) in cases().iter().enumerate() {
        survives(&settings.iter().map(String::as_str).collect::<Vec<_>>(), 2, number as u64);
    }
}

#[test]
fn heads_that_start_different_are_the_same_after_being_killed() {
    survives(&["training.initial_heads=own", "training.warm_start.by-sample.lasting=true"], 2, 77);
}

#[test]
#[ignore = "minutes of killing: run it with `cargo test --workspace --test run_resume -- --ignored --nocapture`"]
fn every_method_ends_with_the_same_bytes_after_being_killed_fifty_times() {
    for (number, settings) in cases().iter().enumerate() {
        let begun = Instant::now();
        let settings: Vec<&str> = settings.iter().map(String::as_str).chain(SMALL).collect();
        let runs = survives(&settings, 50, 1_000 + number as u64);
        eprintln!("{settings:?}: killed 50 times at work, {runs} runs to the end, {:.0} s", begun.elapsed().as_secs_f64());
    }
}

#[test]
fn a_damaged_checkpoint_is_named_and_refused_and_the_one_before_it_is_used_if_asked() {
    let folder = TempDir::new().expect("a folder");
    let run = half_done(&folder);
    let manifests = manifests(&run);
    let last = manifests.last().expect("some");
    let text = fs::read_to_string(last).expect("readable");
    fs::write(last, text.replace("\"up\": ", "\"up\": 1")).expect("writable");
    let (error, hint) = refusal(&mut resume(&folder, "half"), 2);
    let name = last.file_name().expect("a name").to_string_lossy();
    assert!(error.contains(&*name) && error.contains("fingerprint"), "{error}");
    assert!(hint.contains("checkpoint before it"), "{hint}");

    let mut child = spawn(resume(&folder, "half").arg("--previous"));
    let begun = Instant::now();
    while fs::read_to_string(last).is_ok_and(|found| found.contains("\"up\": 1") && found != text) {
        assert!(begun.elapsed() < Duration::from_secs(60) && child.try_wait().expect("ours").is_none(), "it does not go on");
        sleep(Duration::from_millis(5));
    }
    child.kill_now();
}

#[test]
fn a_damaged_state_a_foreign_checkpoint_and_a_changed_journal_are_refused() {
    let folder = TempDir::new().expect("a folder");
    let run = half_done(&folder);
    let manifest = json(manifests(&run).last().expect("some"));
    let client =
        manifest["manifest"]["clients"].as_object().expect("some").values().next().expect("one").as_str().expect("a name");
    for name in [format!("clients/{client}"), "rounds.jsonl".into()] {
        let path = run.join(&name);
        let sound = fs::read(&path).expect("readable");
        let mut damaged = sound.clone();
        damaged[20] ^= 1;
        fs::write(&path, &damaged).expect("writable");
        let (error, _) = refusal(&mut resume(&folder, "half"), 2);
        assert!(error.contains(&name), "{error}");
        fs::write(&path, &sound).expect("writable");
    }
    let experiment = run.join("experiment.toml");
    let text = fs::read_to_string(&experiment).expect("readable");
    fs::write(&experiment, text.replace("seed = 0", "seed = 1")).expect("writable");
    let (error, _) = refusal(&mut resume(&folder, "half"), 2);
    assert!(error.contains("belongs to another experiment"), "{error}");
}

#[test]
fn a_run_that_is_being_worked_on_is_left_alone() {
    let folder = TempDir::new().expect("a folder");
    let mut child = spawn(&mut run_command(&folder, "busy", &["plan.rounds=200"]));
    child.await_checkpoint(&folder.path().join("busy"), 0);
    let (error, _) = refusal(&mut resume(&folder, "busy"), 2);
    assert!(error.contains(&format!("being worked on by process {}", child.id())), "{error}");
    child.kill_now();
    assert_eq!(json(&folder.path().join("busy/status.json"))["state"], "running", "the lock tells that it was killed");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_with_exit_code_130_and_the_run_can_be_resumed_to_the_same_bytes() {
    let folder = TempDir::new().expect("a folder");
    let whole = run(&folder, "whole", &["plan.rounds=12"]);
    let stopped = folder.path().join("stopped");
    let mut child = spawn(&mut run_command(&folder, "stopped", &["plan.rounds=12"]));
    child.await_checkpoint(&stopped, 2);
    succeed(Command::new("kill").args(["-INT", &child.id().to_string()]));
    assert_eq!(child.wait().expect("ours").code(), Some(130));
    assert_eq!(json(&stopped.join("status.json"))["state"], "stopped");
    succeed(&mut resume(&folder, "stopped"));
    assert_same_files(&whole, &stopped, "after Ctrl-C");
}
