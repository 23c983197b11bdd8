//! `fedeq sweep` with `--random`, `--halving` and `--budget`.
mod run_support;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use run_support::{TINY, assert_same_files, fedeq, last_checkpoint, spawn, succeed};
use serde_json::Value;
use tempfile::TempDir;

const RATES: [&str; 2] = ["--grid", "training.learning_rate=log:0.0001..0.2"];

/// A search of runs that take a second.
fn search(folder: &TempDir, out: &str, arguments: &[&str]) -> Command {
    let mut command = fedeq(folder);
    command.args(["sweep", "--json", "--quiet", "--out", out]).args(arguments);
    command.args(["--set", "data.split.validation=0.2", "--set", "data.limit.train=10"]);
    // What a test says itself is not said twice.
    let is_said = |setting: &str| arguments.iter().any(|said| said.split('=').next() == setting.split('=').next());
    TINY.iter().filter(|setting| !is_said(setting)).for_each(|setting| {
        command.args(["--set", setting]);
    });
    command
}

fn points(mut command: Command) -> Vec<Value> {
    let json: Value = serde_json::from_slice(&succeed(&mut command).stdout).expect("JSON");
    json["points"].as_array().expect("points").iter().map(|point| point["values"].clone()).collect()
}

/// The run folders of a search by their names.
fn runs(search: &Path) -> BTreeMap<String, PathBuf> {
    let paths = fs::read_dir(search).into_iter().flatten().flatten().map(|entry| entry.path()).filter(|path| path.is_dir());
    paths.map(|path| (path.file_name().expect("a name").to_string_lossy().into_owned(), path)).collect()
}

fn journal(run: &Path) -> String {
    fs::read_to_string(run.join("rounds.jsonl")).expect("a journal")
}

#[test]
fn a_search_draws_each_method_with_its_own_network() {
    let folder = TempDir::new().expect("a folder");
    let end = ["--random", "5", "--set", "plan.rounds=1", "--set", "plan.evaluate_every=1"];
    let typed = [&RATES[..], &["--grid", "method=fedeq,fedrep", "--with", "model=deq-mlp,mlp"], &end].concat();
    let drawn = points(search(&folder, "typed", &typed));
    assert_eq!(drawn.len(), 5);
    for point in &drawn {
        assert!(point[1] == "fedeq" && point[2] == "deq-mlp" || point[1] == "fedrep" && point[2] == "mlp", "{point}");
    }
    let [fedeq, fedrep] = ["fedeq", "fedrep"].map(|method| drawn.iter().filter(|point| point[1] == method).count());
    assert!(fedeq > 0 && fedrep > 0, "{drawn:?}");
    let file = "[grid]\n'training.learning_rate' = 'log:0.0001..0.2'\n[[together]]\nmethod = ['fedeq', 'fedrep']\nmodel = ['deq-mlp', 'mlp']\n";
    fs::write(folder.path().join("grid.toml"), file).expect("written");
    // The same runs: they are found finished.
    assert_eq!(points(search(&folder, "typed", &[&["--grid-file", "grid.toml"][..], &end].concat())), drawn);
    assert_eq!(runs(&folder.path().join("typed")).len(), 5);
}

#[test]
fn a_halving_search_that_is_killed_in_a_rung_continues_there_also_with_two_jobs() {
    let settings = ["--set", "plan.rounds=40", "--set", "plan.evaluate_every=5", "--set", "model=mlp"];
    let arguments = [&RATES[..], &["--halving", "2", "--random", "4"], &settings].concat();
    let whole = TempDir::new().expect("a folder");
    let expected = points(search(&whole, "search", &arguments));
    // Rungs end after 10, 20 and 40 rounds: one is killed in the first, one in the second.
    for (jobs, round) in [("1", 3), ("2", 12)] {
        let killed = TempDir::new().expect("a folder");
        let arguments = [&arguments[..], &["--jobs", jobs]].concat();
        let folder = killed.path().join("search");
        let mut child = spawn(&mut search(&killed, "search", &arguments));
        child.wait_until("a rung is under way", || runs(&folder).values().any(|run| last_checkpoint(run) >= Some(round)));
        child.kill_now();
        assert!(runs(&folder).values().all(|run| !run.join("summary.json").exists()), "it was too fast to be killed");
        assert_eq!(points(search(&killed, "search", &arguments)), expected, "{jobs} jobs");
        let read = |folder: &TempDir| fs::read_to_string(folder.path().join("search/search.csv")).expect("a table");
        assert_eq!(read(&killed), read(&whole), "{jobs} jobs");
        let all = runs(&whole.path().join("search"));
        assert_eq!(runs(&folder).into_keys().collect::<Vec<_>>(), all.keys().cloned().collect::<Vec<_>>());
        for (name, run) in &all {
            assert_eq!(journal(&folder.join(name)), journal(run), "{name}, {jobs} jobs");
            if run.join("summary.json").exists() {
                assert_same_files(&folder.join(name), run, "killed in a rung");
            }
        }
    }
}

#[test]
fn a_halving_search_within_a_budget_trains_no_more_rounds_than_that() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["--set", "plan.rounds=4", "--set", "plan.evaluate_every=1", "--set", "model=mlp"];
    let command = search(&folder, "search", &[&RATES[..], &["--halving", "2", "--budget", "12"], &settings].concat());
    assert_eq!(points(command).len(), 1, "one is trained to its end");
    // Eight points for a round, two of them for another, one for two more: with nine it would be thirteen rounds.
    let mut rounds: Vec<usize> = runs(&folder.path().join("search")).values().map(|run| journal(run).lines().count()).collect();
    rounds.sort_unstable();
    assert_eq!(rounds, [1, 1, 1, 1, 1, 1, 2, 4]);
}
