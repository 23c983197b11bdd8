//! Reproductions and sweeps that end before their time is over and continue elsewhere.
mod run_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use run_support::{assert_same_files, fedeq, json, manifests, refusal, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// A cell of fig-rho with short rounds.
const SMALL: [&str; 16] = [
    "reproduce",
    "fig-rho",
    "--cells",
    "rho-0.01",
    "--seeds",
    "2",
    "--set",
    "plan.evaluate_every=20",
    "--set",
    "plan.sampling.fraction=0.2",
    "--set",
    "training.epochs=1",
    "--set",
    "training.personal_epochs=1",
    "--out",
    "results",
];

fn small(folder: &TempDir, rounds: &str) -> Command {
    let mut command = fedeq(folder);
    command.args(SMALL).args(["--set", &format!("plan.rounds={rounds}")]);
    command
}

fn folder() -> TempDir {
    TempDir::new().expect("a folder")
}

fn run_folders(below: &Path) -> Vec<PathBuf> {
    let runs = below.join("runs/fig-rho/small");
    let mut paths: Vec<PathBuf> = fs::read_dir(runs).into_iter().flatten().map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Results without what no two runs have in common.
fn without_timings(path: &Path) -> Value {
    let mut results = json(path);
    for cell in results["cells"].as_object_mut().expect("cells").values_mut() {
        for table in ["mean", "deviation"] {
            forget(&mut cell[table]);
        }
        for run in cell["runs"].as_array_mut().expect("runs") {
            forget(&mut run["metrics"]);
            run["disk"] = 0.into();
            // How many ran side by side, which only seconds depend on.
            run.as_object_mut().expect("a run").remove("jobs");
        }
    }
    results
}

fn forget(table: &mut Value) {
    for metric in ["seconds", "batch-time", "client-memory"] {
        table.as_object_mut().expect("a table").remove(metric);
    }
}

/// The journals of all runs below a folder, by their names in it.
fn journals(below: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for run in run_folders(below) {
        for name in ["rounds.jsonl", "evaluations.jsonl", "heads.jsonl", "metrics.csv"] {
            let key = format!("{}/{name}", run.file_name().expect("a name").to_string_lossy());
            files.insert(key, fs::read(run.join(name)).expect(name));
        }
    }
    files
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("writable");
    for entry in fs::read_dir(from).expect("readable").map(|entry| entry.expect("an entry")) {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).expect("copied");
        }
    }
}

/// What a command says that must end since its time is over.
fn out_of_time(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the time is over; the same command again continues from here"), "{said}");
    said
}

/// Rounds that were over when a run was stopped.
fn kept_rounds(run: &Path) -> u64 {
    let last = manifests(run).pop().expect("a checkpoint");
    last.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse().ok()).expect("a round")
}

/// Rounds that take some seconds.
const ROUNDS: &str = "200";

#[test]
fn two_ends_of_the_time_and_two_moves_give_the_same_bytes_as_one_run_straight_through() {
    let [whole, first, second, third] = [(); 4].map(|()| folder());
    succeed(small(&whole, ROUNDS).args(["--quiet", "--state", "state", "--keep-models"]));

    let state = |folder: &TempDir| folder.path().join("state");
    let part =
        |folder: &TempDir| out_of_time(small(folder, ROUNDS).args(["--time-budget", "2s", "--state", "state", "--keep-models"]));
    let said = part(&first);
    assert!(said.contains("1 run under way with ") && said.contains("`state` holds "), "{said}");
    let begun = run_folders(&state(&first));
    assert_eq!(begun.len(), 1, "the first seed is not finished yet");
    let after = kept_rounds(&begun[0]);
    assert!((1..200).contains(&after), "in the middle of a cell: {after}");
    assert_eq!(manifests(&begun[0]).len(), 1, "one checkpoint is enough to continue");
    assert!(!begun[0].join("summary.json").exists());

    copy(&state(&first), &state(&second));
    fs::remove_dir_all(first.path().join("state")).expect("gone");
    part(&second);
    assert!(kept_rounds(&run_folders(&state(&second))[0]) > after, "it went on");

    copy(&state(&second), &state(&third));
    succeed(small(&third, ROUNDS).args(["--quiet", "--state", "state", "--keep-models"]));
    for (left, right) in run_folders(&state(&whole)).iter().zip(&run_folders(&state(&third))) {
        assert_same_files(left, right, "stopped twice and moved");
    }
    let results = |folder: &TempDir| without_timings(&folder.path().join("results/results-small.json"));
    assert_eq!(results(&third), results(&whole));
}

#[test]
fn an_archive_goes_from_machine_to_machine_and_results_are_not_computed_again() {
    let [whole, here, there] = [(); 3].map(|()| folder());
    succeed(small(&whole, "60").args(["--quiet", "--state", "state"]));
    let archive = |folder: &TempDir| folder.path().join("state.tar.gz");
    let packed = |folder: &TempDir, more: &[&str]| {
        let mut command = small(folder, "60");
        command.args(["--state", "state.tar.gz", "--jobs", "2"]).args(more);
        command
    };
    // The first stretch is too short for all of it; the second may take what it needs.
    let _ = packed(&here, &["--time-budget", "1s"]).output().expect("it runs");
    assert!(archive(&here).is_file() && !here.path().join("state.tar.gz.unpacked").exists());
    fs::copy(archive(&here), archive(&there)).expect("copied");
    let dry = String::from_utf8(succeed(packed(&there, &["--dry-run"]).arg("--quiet")).stdout).expect("UTF-8");
    assert!(!dry.contains("unknown"), "{dry}");
    assert_eq!(fs::read(archive(&there)).expect("there"), fs::read(archive(&here)).expect("there"), "a dry run changes nothing");
    let said = String::from_utf8(succeed(&mut packed(&there, &[])).stderr).expect("UTF-8");
    assert!(said.contains("no run is under way"), "{said}");
    let results = |folder: &TempDir| without_timings(&folder.path().join("results/results-small.json"));
    assert_eq!(results(&there), results(&whole));

    // What is finished needs no run folder: neither with the state alone, nor with the results alone.
    fs::remove_dir_all(there.path().join("results")).expect("gone");
    let said = String::from_utf8(succeed(&mut packed(&there, &[])).stderr).expect("UTF-8");
    assert_eq!(said.matches("already finished").count(), 2, "{said}");
    fs::remove_file(archive(&there)).expect("gone");
    let said = String::from_utf8(succeed(&mut packed(&there, &[])).stderr).expect("UTF-8");
    assert_eq!(said.matches("already finished").count(), 2, "{said}");
    assert_eq!(results(&there), results(&whole));
    let listed = Command::new("tar").args(["tzf"]).arg(archive(&there)).output().expect("tar is there");
    let names = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(names.lines().all(|name| !name.starts_with('/') && !name.contains("..")), "{names}");
    assert!(names.contains("results/results/results-small.json") && names.contains("state.json"), "{names}");
    succeed(packed(&there, &["--again"]).arg("--quiet"));
    assert_eq!(results(&there), results(&whole), "run again, to the same numbers");
}

#[test]
fn finished_runs_leave_their_models_behind_and_journals_stay() {
    let folder = folder();
    succeed(small(&folder, "4").args(["--quiet", "--state", "state"]));
    let runs = run_folders(&folder.path().join("state"));
    assert!(runs.len() == 2 && runs.iter().all(|run| !run.join("clients").exists() && !run.join("checkpoints").exists()));
    assert_eq!(journals(&folder.path().join("state")).len(), 8);
    assert!(json(&folder.path().join("state/rates.json"))["rate"][0]["train"].as_f64().is_some_and(|rate| rate > 0.0));
}

#[test]
fn a_checkpoint_that_is_too_large_is_not_kept_and_its_cell_is_not_begun_in_vain() {
    let folder = folder();
    let said =
        out_of_time(small(&folder, "100000").args(["--time-budget", "2s", "--state", "state", "--largest-checkpoint", "1kB"]));
    assert_eq!(said.matches("not begun: it would not end in time").count(), 2, "{said}");
    assert!(run_folders(&folder.path().join("state")).is_empty());
}

#[test]
fn a_cell_that_ends_in_time_measures_the_same_without_its_checkpoint() {
    let [kept, unkept] = [(); 2].map(|()| folder());
    succeed(small(&kept, "4").args(["--quiet", "--state", "state"]));
    succeed(small(&unkept, "4").args(["--time-budget", "1h", "--state", "state", "--largest-checkpoint", "1kB"]));
    let state = |folder: &TempDir| folder.path().join("state");
    assert_eq!(journals(&state(&unkept)), journals(&state(&kept)));
    let results = |folder: &TempDir| without_timings(&folder.path().join("results/results-small.json"));
    assert_eq!(results(&unkept), results(&kept));
    assert!(run_folders(&state(&unkept)).iter().all(|run| !run.join("clients").exists() && !run.join("checkpoints").exists()));
    let again = succeed(small(&unkept, "4").args(["--state", "state"]));
    assert_eq!(String::from_utf8_lossy(&again.stderr).matches("already finished").count(), 2);
}

#[test]
fn a_sweep_ends_in_time_and_continues_in_a_copy() {
    let [whole, first, second] = [(); 3].map(|()| folder());
    let sweep = |folder: &TempDir| {
        let mut command = fedeq(folder);
        command.args(["sweep", "--grid", "method=fedeq,fedrep", "--out", "sweep", "--quiet"]);
        for setting in ["plan.rounds=150", "plan.evaluate_every=50", "plan.sampling.fraction=0.1", "training.epochs=1"] {
            command.args(["--set", setting]);
        }
        command
    };
    succeed(&mut sweep(&whole));
    out_of_time(sweep(&first).args(["--time-budget", "1s"]));
    copy(&first.path().join("sweep"), &second.path().join("sweep"));
    succeed(&mut sweep(&second));
    let runs = |folder: &TempDir| {
        let entries = fs::read_dir(folder.path().join("sweep")).expect("readable").map(|entry| entry.expect("an entry").path());
        let mut runs: Vec<PathBuf> = entries.filter(|path| path.is_dir()).collect();
        runs.sort();
        runs
    };
    assert_eq!(runs(&second).len(), 2);
    for (left, right) in runs(&whole).iter().zip(&runs(&second)) {
        assert_same_files(left, right, "stopped by its time");
    }
}

#[test]
fn nonsense_is_refused_and_leaves_nothing_behind() {
    let folder = folder();
    for time in ["0s", "25", "soon", "-5m", "1.5h", "", "5m5m", "999999d"] {
        let (error, hint) = refusal(small(&folder, "3").args(["--state", "state", &format!("--time-budget={time}")]), 2);
        assert_eq!(error, format!("the time budget is `{time}`, which is no time (`--time-budget`)"));
        assert!(hint.contains("`25m`"), "{hint}");
    }
    let (error, _) = refusal(small(&folder, "3").args(["--state", "s", "--time-budget", "5m", "--largest-checkpoint", "16"]), 2);
    assert_eq!(error, "`16` is no size");
    let (error, _) = refusal(fedeq(&folder).args(["reproduce", "table-1", "--state", "state.tar.gz"]), 2);
    assert!(error.contains("`femnist` is not in the data folder"), "{error}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing was written");
    fs::write(folder.path().join("notes.tar.gz"), "mine").expect("writable");
    let (error, _) = refusal(small(&folder, "3").args(["--state", "notes.tar.gz"]), 2);
    assert!(error.contains("is no archive of a state"), "{error}");
    assert_eq!(fs::read_to_string(folder.path().join("notes.tar.gz")).expect("there"), "mine");
}
