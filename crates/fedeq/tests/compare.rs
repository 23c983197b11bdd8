//! `fedeq compare` and `fedeq sweep`: several runs side by side.
mod run_support;

use std::fs;
use std::process::Command;

use run_support::{assert_same_files, fedeq, last_checkpoint, refusal, run, spawn, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// The smallest model and the fewest steps: the tests are about tables, not about accuracy.
const SMALL: [&str; 2] = ["model=linear", "plan.rounds=1"];

fn sweep_command(folder: &TempDir) -> Command {
    let mut command = fedeq(folder);
    command.args(["sweep", "--quiet", "--out", "sweep", "--set", "plan.sampling.fraction=0.1", "--set", "training.epochs=1"]);
    for setting in SMALL {
        command.args(["--set", setting]);
    }
    command
}

fn sweep(folder: &TempDir, more: &[&str]) -> String {
    String::from_utf8(succeed(sweep_command(folder).args(more)).stdout).expect("UTF-8")
}

#[test]
fn runs_that_differ_only_in_their_seed_are_one_group() {
    let folder = TempDir::new().expect("a folder");
    for (method, seed) in [("local", 0), ("local", 1), ("fedavg", 0), ("fedavg", 1), ("fedrep", 0)] {
        let settings = [format!("method={method}"), format!("seed={seed}")];
        let settings: Vec<&str> = settings.iter().map(String::as_str).chain(SMALL).collect();
        run(&folder, &format!("runs/{method}-{seed}"), &settings);
    }
    let output = succeed(fedeq(&folder).args(["compare", "runs", "--json"])).stdout;
    let comparison: Value = serde_json::from_slice(&output).expect("JSON");
    let groups = comparison["groups"].as_array().expect("a list");
    let seeds = |method: &str| groups.iter().find(|group| group["method"] == method).map(|group| group["seeds"].clone());
    assert_eq!(groups.len(), 3);
    assert_eq!((seeds("local"), seeds("fedrep")), (Some(vec![0, 1].into()), Some(vec![0].into())));
    let local = groups.iter().find(|group| group["method"] == "local").expect("it is there");
    let summaries = [0, 1].map(|seed| run_support::json(&folder.path().join(format!("runs/local-{seed}/summary.json"))));
    let [a, b] = summaries.map(|summary| summary["evaluation"]["local"]["mean"].as_f64().expect("a number"));
    let accuracy = &local["measures"]["local"]["mean"];
    assert!((accuracy["mean"].as_f64().expect("a number") - (a + b) / 2.0).abs() < 1e-12);
    assert!((accuracy["deviation"].as_f64().expect("a number") - (a - b).abs() / f64::sqrt(2.0)).abs() < 1e-12);

    let text = String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs"])).stdout).expect("UTF-8");
    assert!(text.contains("±") && text.lines().next().is_some_and(|line| line.contains("worst tenth")), "{text}");
    assert!(text.contains("compared by `local` (`--view shared` for the other)"), "{text}");
    let csv = String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs", "--csv"])).stdout).expect("UTF-8");
    assert_eq!(csv.lines().count(), 4);
}

/// A group of the comparison, and its accuracy by seed in a view.
fn by_seed(folder: &TempDir, method: &str, view: &str) -> [f64; 3] {
    [0, 1, 2].map(|seed| {
        let summary = run_support::json(&folder.path().join(format!("runs/{method}-{seed}/summary.json")));
        let evaluation = &summary["evaluation"];
        let quality = if evaluation[view].is_null() { &evaluation["local"] } else { &evaluation[view] };
        quality["mean"].as_f64().expect("a number")
    })
}

#[test]
fn methods_are_compared_by_the_same_view_and_seeds_are_paired() {
    let folder = TempDir::new().expect("a folder");
    for method in ["fedeq", "fedrep"] {
        for seed in 0..3 {
            let settings = [format!("method={method}"), format!("seed={seed}"), "training.learning_rate=0.1".into()];
            let settings: Vec<&str> = settings.iter().map(String::as_str).chain(SMALL).collect();
            run(&folder, &format!("runs/{method}-{seed}"), &settings);
        }
    }
    for view in ["local", "shared"] {
        let output = succeed(fedeq(&folder).args(["compare", "runs", "--json", "--view", view])).stdout;
        let comparison: Value = serde_json::from_slice(&output).expect("JSON");
        let contrast = &comparison["contrasts"][0];
        let name = |place: &Value| comparison["groups"][place.as_u64().expect("a place") as usize]["method"].clone();
        let (better, other) = (name(&contrast["better"]), name(&contrast["other"]));
        let [a, b] = [&better, &other].map(|method| by_seed(&folder, method.as_str().expect("a name"), view));
        let difference = (0..3).map(|seed| a[seed] - b[seed]).sum::<f64>() / 3.0;
        assert!((contrast["difference"]["means"].as_f64().expect("a number") - difference).abs() < 1e-12, "{view}: {contrast}");
        assert_eq!(contrast["difference"]["test"], serde_json::json!({ "paired": { "pairs": 3 } }));
    }
    let text = String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs"])).stdout).expect("UTF-8");
    assert!(text.contains("paired t-test, n = 3") && text.contains("* the best, and all that"), "{text}");
    // Seeds that are not common cannot be paired, and one seed says nothing about chance.
    let some = ["runs/fedeq-0", "runs/fedeq-1", "runs/fedrep-2"];
    let text = String::from_utf8(succeed(fedeq(&folder).arg("compare").args(some)).stdout).expect("UTF-8");
    assert!(!text.contains("t-test, n"), "{text}");
    assert!(!text.lines().skip(1).take(2).any(|line| line.contains('*')), "{text}");
    let one =
        String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs/fedeq-0", "runs/fedrep-0"])).stdout).expect("UTF-8");
    assert!(one.contains("nothing is marked as best") && !one.contains('*'), "{one}");
}

#[test]
fn what_is_no_run_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let (error, _) = refusal(fedeq(&folder).args(["compare", "nowhere"]), 2);
    assert!(error.contains("`nowhere` is not a run folder"), "{error}");
}

#[test]
fn a_sweep_has_a_cell_for_every_combination_and_seed() {
    let folder = TempDir::new().expect("a folder");
    let grid = ["--grid", "method=local,fedavg", "--grid", "training.learning_rate=0.01,0.1", "--seeds", "0,1"];
    let text = sweep(&folder, &grid);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.iter().filter(|line| line.contains('±')).count(), 4, "{text}");
    let csv = fs::read_to_string(folder.path().join("sweep/sweep.csv")).expect("written");
    let rows: Vec<&str> = csv.lines().collect();
    assert!(rows[0].starts_with("method,training.learning_rate,seed,run,local_mean,"), "{}", rows[0]);
    assert!(rows.len() == 9 && rows[1].starts_with("local,0.01,0,") && rows[8].starts_with("fedavg,0.1,1,"));
    let json: Value = serde_json::from_str(&sweep(&folder, &[&grid[..], &["--json"]].concat())).expect("JSON");
    assert_eq!(json["axes"], serde_json::json!(["method", "training.learning_rate"]));
    assert_eq!(json["points"][3]["values"], serde_json::json!(["fedavg", "0.1"]));
}

#[test]
fn a_sweep_without_seeds_takes_those_of_its_experiments() {
    let folder = TempDir::new().expect("a folder");
    sweep(&folder, &["--grid", "seed=3,4"]);
    let csv = fs::read_to_string(folder.path().join("sweep/sweep.csv")).expect("written");
    let seeds: Vec<Option<&str>> = csv.lines().skip(1).map(|row| row.split(',').nth(1)).collect();
    assert_eq!(seeds, [Some("3"), Some("4")], "{csv}");
}

#[test]
fn a_sweep_takes_a_preset() {
    let folder = TempDir::new().expect("a folder");
    sweep(&folder, &["--preset", "paper"]);
    let mut runs = fs::read_dir(folder.path().join("sweep")).expect("a folder").flatten().map(|entry| entry.path());
    let run = runs.find(|path| path.is_dir()).expect("a run");
    assert_eq!(run_support::json(&run.join("summary.json"))["preset"], "paper");
    let (error, _) = refusal(fedeq(&folder).args(["sweep", "--out", "other", "--preset", "papper"]), 2);
    assert_eq!(error, "`preset` cannot be `papper`");
}

#[test]
fn a_sweep_started_again_skips_what_is_finished_and_resumes_what_is_not() {
    let (left_alone, killed) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    let arguments = ["--grid", "method=local,fedavg", "--set", "plan.rounds=30", "--set", "engine.checkpoint_every=1"];
    let first = sweep(&left_alone, &arguments);
    let run = |folder: &TempDir, method: &str| {
        let below = fs::read_dir(folder.path().join("sweep")).into_iter().flatten();
        let mut paths = below.flatten().map(|entry| entry.path());
        paths.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(method)))
    };
    let mut child = spawn(sweep_command(&killed).args(arguments));
    child.wait_until("two rounds of FedAvg", || run(&killed, "fedavg").is_some_and(|half| last_checkpoint(&half) >= Some(2)));
    child.kill_now();
    let (local, half) = (run(&killed, "local").expect("a run"), run(&killed, "fedavg").expect("a run"));
    assert!(local.join("summary.json").exists() && !half.join("summary.json").exists());
    let written = || fs::metadata(local.join("status.json")).and_then(|data| data.modified()).expect("a time");
    let untouched = written();
    let second = sweep(&killed, &arguments);
    let accuracies =
        |text: &str| text.lines().take(3).map(|line| line.split("  ").take(6).collect::<String>()).collect::<Vec<_>>();
    assert_eq!(accuracies(&first).len(), accuracies(&second).len());
    let whole = run(&left_alone, "fedavg").expect("a run");
    assert_same_files(&whole, &half, "killed in the middle of a sweep");
    assert_eq!(written(), untouched);
}

/// A file to start runs from is no run, also if it bears the name that the README gives it.
#[test]
fn an_experiment_file_does_not_hide_the_runs_beside_it() {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("experiment.toml"), "seed = 3\nmodel = \"linear\"\nplan = { rounds = 1 }\n").expect("writable");
    succeed(fedeq(&folder).args(["run", "experiment.toml", "--quiet"]));
    run(&folder, "deeper/here/one", &SMALL);
    let comparison: Value =
        serde_json::from_slice(&succeed(fedeq(&folder).args(["compare", ".", "--json"])).stdout).expect("JSON");
    assert_eq!(comparison["groups"].as_array().map(Vec::len), Some(2), "{comparison}");
    let report: Value =
        serde_json::from_slice(&succeed(fedeq(&folder).args(["report", ".", "--format", "json"])).stdout).expect("JSON");
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(2), "{report}");
    for command in ["resume", "evaluate"] {
        let (error, hint) = refusal(fedeq(&folder).args([command, "."]), 2);
        assert_eq!(error, "`.` is not a run folder");
        assert!(hint.contains("fedeq run"), "{hint}");
    }
}

#[test]
fn a_run_on_another_device_is_another_run() {
    let folder = TempDir::new().expect("a folder");
    let here = run(&folder, "runs/cpu", &SMALL);
    let twin = folder.path().join("runs/cuda");
    fs::create_dir(&twin).expect("writable");
    for name in ["status.json", "summary.json", "rounds.jsonl", "evaluations.jsonl", "timings.jsonl", "clients.json"] {
        fs::copy(here.join(name), twin.join(name)).expect("writable");
    }
    let text = fs::read_to_string(here.join("experiment.toml")).expect("readable");
    fs::write(twin.join("experiment.toml"), text.replace("device = \"cpu\"", "device = \"cuda:1\"")).expect("writable");
    let output = succeed(fedeq(&folder).args(["report", "runs", "--format", "json"]));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(2), "{}", String::from_utf8_lossy(&output.stderr));
    let output = succeed(fedeq(&folder).args(["compare", "runs", "--json"]));
    let comparison: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let groups = comparison["groups"].as_array().expect("a list");
    let devices: Vec<String> = groups.iter().map(|group| group["settings"].to_string()).collect();
    assert!(devices.len() == 2 && devices[0].contains("cpu") && devices[1].contains("cuda"), "{comparison}");
}

#[test]
fn a_grid_with_a_bad_cell_is_refused_before_anything_is_trained() {
    let folder = TempDir::new().expect("a folder");
    let refused = |grid: &str| refusal(fedeq(&folder).args(["sweep", "--out", "sweep", "--grid", grid]), 2).0;
    assert!(refused("method=local,fedavgg").contains("`method.name` cannot be `fedavgg`"));
    assert!(refused("plan.rounds").contains("`plan.rounds` is not an axis of a grid"));
    assert!(refused("training.learning_rate=0.1,-1").contains("`training.learning_rate` is `-1`"));
    assert!(refused("method=local,local").contains("the same experiment twice: `local`, seed `0`"));
    assert!(!folder.path().join("sweep").exists());
}

#[test]
fn a_cell_that_diverges_is_reported_and_the_others_are_carried_out() {
    let folder = TempDir::new().expect("a folder");
    let mut command = fedeq(&folder);
    command.args(["sweep", "--quiet", "--out", "sweep", "--grid", "training.learning_rate=1e30,0.01"]);
    for setting in ["method=local", "model=mlp", "plan.rounds=1", "plan.sampling.fraction=0.1"] {
        command.args(["--set", setting]);
    }
    let output = command.output().expect("the program starts");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("0 (1 failed)"), "{text}");
    let csv = fs::read_to_string(folder.path().join("sweep/sweep.csv")).expect("written");
    assert_eq!(csv.lines().count(), 3);
}

/// As the nodes of a federation do that were started with `--metrics none`.
#[test]
fn scores_that_no_client_tells_are_not_shown_as_zeros() {
    let folder = TempDir::new().expect("a folder");
    for method in ["fedavg", "fedrep"] {
        run(&folder, &format!("runs/{method}"), &[&[&*format!("method={method}")], &SMALL[..]].concat());
    }
    let path = folder.path().join("runs/fedavg/summary.json");
    let mut summary = run_support::json(&path);
    for view in ["local", "shared"] {
        let quality = &mut summary["evaluation"][view];
        let clients = quality["clients"].as_array().expect("a list").len();
        quality["clients"] = vec![Value::Null; clients].into();
        for number in ["mean", "weighted", "worst_decile", "deviation", "loss", "mean_loss"] {
            quality[number] = 0.0.into();
        }
    }
    fs::write(&path, summary.to_string()).expect("writable");
    let text = String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs"])).stdout).expect("UTF-8");
    let row = text.lines().find(|line| line.starts_with("FedAvg")).expect("a row");
    assert_eq!(row.matches("not reported").count(), 4, "{row}");
    let csv = String::from_utf8(succeed(fedeq(&folder).args(["compare", "runs", "--csv"])).stdout).expect("UTF-8");
    let row = csv.lines().find(|line| line.starts_with("fedavg")).expect("a row");
    assert!(row.contains(",1,1,,,,,,,,,"), "{row}");
}
