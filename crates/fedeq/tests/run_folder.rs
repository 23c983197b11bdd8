//! What `fedeq run` leaves behind.
mod run_support;

use std::fs;
use std::path::Path;

use run_support::{assert_same_files, fedeq, json, refusal, run, run_command, succeed};
use serde_json::Value;
use tempfile::TempDir;

#[test]
fn a_run_folder_tells_everything_about_its_run() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "one", &[]);
    for name in ["experiment.toml", "version.json", "status.json", "timings.jsonl", "rounds.jsonl", "summary.json"] {
        assert!(run.join(name).is_file(), "{name}");
    }
    assert_eq!(json(&run.join("status.json"))["state"], "finished");
    let summary = json(&run.join("summary.json"));
    assert_eq!((&summary["method"], &summary["model"]), (&"fedeq".into(), &"deq-resnet-xs".into()));
    assert_eq!((&summary["clients"], &summary["unseen"]["clients"]), (&28.into(), &2.into()));
    assert!(summary["evaluation"]["local"]["mean"].as_f64().is_some_and(|mean| (0.0..=1.0).contains(&mean)));
    assert!(summary["unseen"]["local"]["mean"].as_f64().is_some_and(|mean| mean > 0.0));
    let lines = |name: &str| fs::read_to_string(run.join(name)).expect(name).lines().count();
    assert_eq!((lines("rounds.jsonl"), lines("evaluations.jsonl"), lines("metrics.csv"), lines("timings.jsonl")), (3, 2, 3, 3));
}

#[test]
fn results_are_the_same_to_the_byte_for_1_2_and_3_workers() {
    let folder = TempDir::new().expect("a folder");
    for workers in ["1", "2", "3"] {
        succeed(run_command(&folder, workers, &["plan.sampling.fraction=0.2"]).args(["--workers", workers]));
    }
    let at = |name: &str| folder.path().join(name);
    assert_same_files(&at("1"), &at("2"), "1 and 2 workers");
    assert_same_files(&at("1"), &at("3"), "1 and 3 workers");
}

#[test]
fn results_without_rounds_are_the_same_to_the_byte_for_1_and_3_workers() {
    let folder = TempDir::new().expect("a folder");
    let settings =
        ["plan.asynchronous={ slowest = 4, max_staleness = 9 }", "method.server_step=consensus", "plan.sampling.fraction=0.2"];
    for workers in ["1", "3"] {
        succeed(run_command(&folder, workers, &settings).args(["--workers", workers]));
    }
    assert_same_files(&folder.path().join("1"), &folder.path().join("3"), "1 and 3 workers");
    let rounds = fs::read_to_string(folder.path().join("1/rounds.jsonl")).expect("written");
    let rounds: Vec<Value> = rounds.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let staleness =
        |round: &Value| round["arrivals"].as_array().map(|all| all.iter().filter_map(|one| one["staleness"].as_u64()).max());
    // A fifth of 28 clients are five updates a round.
    assert!(rounds.iter().all(|round| round["arrivals"].as_array().is_some_and(|arrivals| arrivals.len() == 5)));
    assert!(rounds.iter().any(|round| staleness(round).flatten().is_some_and(|oldest| (1..=9).contains(&oldest))), "{rounds:?}");
}

#[test]
fn every_metric_is_in_the_table_and_every_phase_in_the_timings() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "one", &["plan.measure_theory=true"]);
    let table = fs::read_to_string(run.join("metrics.csv")).expect("written");
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (heading, first) = (lines.next().expect("a heading"), lines.next().expect("a row"));
    let number = |name: &str| {
        let at = heading.iter().position(|column| *column == name).unwrap_or_else(|| panic!("no column `{name}`"));
        first[at].parse::<f64>().unwrap_or_else(|_| panic!("`{name}` is `{}`", first[at]))
    };
    for view in ["local", "shared"] {
        for measure in ["mean", "weighted", "worst_decile", "deviation", "mean_loss", "weighted_loss"] {
            assert!(number(&format!("{view}_{measure}")) >= 0.0);
        }
    }
    for name in ["gap", "dual_norm", "lagrangian", "stationarity", "head_gradient", "bytes_up", "bytes_down", "train_loss"] {
        assert!(number(name) > 0.0, "{name}");
    }
    assert!(number("solver_steps") >= 1.0 && number("solver_residual") > 0.0);
    assert!((0.0..=1.0).contains(&number("solver_unconverged")));
    let timings = fs::read_to_string(run.join("timings.jsonl")).expect("written");
    let timing: Value = serde_json::from_str(timings.lines().next().expect("a line")).expect("JSON");
    assert!(timing["client_memory"]["backward"].as_u64().is_some_and(|bytes| bytes > 1_000), "a number: {timing}");
    assert!((0.3..1.0).contains(&number("solver_warm")), "the second of two epochs starts from the first");
    let summary = json(&run.join("summary.json"));
    for phase in ["train", "solve", "backward", "update", "communicate", "evaluate"] {
        assert!(summary["resources"][format!("{phase}_seconds")].as_f64().is_some_and(|seconds| seconds > 0.0), "{phase}");
    }
    assert!(summary["resources"]["peak_memory"].as_u64().is_some_and(|bytes| bytes > 1_000_000));
    let round: Value = serde_json::from_str(
        fs::read_to_string(run.join("rounds.jsonl")).expect("written").lines().nth(1).expect("a second round"),
    )
    .expect("JSON");
    let up = |key: &str| round[key]["up"].as_u64().expect("a count");
    assert!(up("sent") > 0 && up("sent") < up("traffic"), "of this round, and of all so far");
}

#[test]
fn solves_that_fail_are_told_during_the_run_and_at_its_end() {
    let folder = TempDir::new().expect("a folder");
    let broken = ["model.equilibrium.solver.anderson.mixing=1e9"];
    for quiet in [&[][..], &["--quiet"]] {
        let name = format!("broken{}", quiet.len());
        let output = succeed(run_command(&folder, &name, &broken).args(quiet));
        let (told, shown) = (String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
        assert_eq!(told.matches("warning: ").count(), 1, "{told}");
        assert!(told.contains("warning: in round 1, ") && told.contains("equilibrium solves became NaN or infinite"), "{told}");
        assert!(told.contains("`model.equilibrium.solver`"), "{told}");
        assert!(shown.contains("100.0 % became NaN or infinite"), "{shown}");
    }
    let solves = json(&folder.path().join("broken0/summary.json"))["solves"].clone();
    assert!(solves["samples"].as_u64().is_some_and(|samples| samples > 0));
    assert_eq!((&solves["not_finite"], &solves["unconverged"]), (&solves["samples"], &solves["samples"]));
    let sound = succeed(&mut run_command(&folder, "sound", &[]));
    assert!(!String::from_utf8_lossy(&sound.stderr).contains("warning"));
    let solves = json(&folder.path().join("sound/summary.json"))["solves"].clone();
    assert_eq!(solves["not_finite"], 0);
}

#[test]
fn a_run_that_diverges_names_the_client_the_round_and_the_setting_to_blame() {
    let folder = TempDir::new().expect("a folder");
    let blamed = |name: &str, settings: &[&str]| {
        let (error, hint) = refusal(&mut run_command(&folder, name, &[settings, &["training.epochs=5"]].concat()), 1);
        assert!(error.starts_with("in round ") && error.contains(", client `client-"), "{error}");
        hint
    };
    let hint = blamed("rho", &["method.rho=3000", "training.learning_rate=0.05"]);
    assert!(hint.starts_with("lower `method.rho`, which is `3000`") && hint.contains("must be below 40"), "{hint}");
    let hint = blamed("penalty", &["method=ditto", "method.penalty=3000", "training.learning_rate=0.05"]);
    assert!(hint.starts_with("lower `method.penalty`, which is `3000`"), "{hint}");
    let hint = blamed("rate", &["method.rho=0", "training.learning_rate=1e12"]);
    assert!(hint.starts_with("lower `training.learning_rate`, which is `1000000000000`"), "{hint}");
}

#[test]
fn a_run_says_how_much_disk_it_takes_and_takes_no_more() {
    let folder = TempDir::new().expect("a folder");
    let whole = ["plan.sampling.fraction=1", "engine.checkpoint_every=1"];
    for (name, settings) in
        [("fedeq", &[][..]), ("ditto", &["method=ditto", "model=mlp"]), ("cold", &["training.warm_start=off"])]
    {
        let output = succeed(&mut run_command(&folder, name, &[settings, &whole].concat()));
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        let line = words.lines().find(|line| line.starts_with("takes up to ")).unwrap_or_else(|| panic!("{words}"));
        let amounts: Vec<f64> = line.split(" of disk").map(megabytes).collect();
        let taken = size_of(&folder.path().join(name)) as f64 / 1e6;
        assert!(taken <= 1.05 * amounts[1] && taken > 0.7 * amounts[1], "{name}: {taken} MB of `{line}`");
        assert!(amounts[0] > 1.5 * amounts[1]);
    }
}

/// The last amount in a text.
fn megabytes(text: &str) -> f64 {
    let words: Vec<&str> = text.split([' ', ',']).collect();
    let at = words.iter().rposition(|word| matches!(*word, "kB" | "MB")).unwrap_or_else(|| panic!("no amount in `{text}`"));
    words[at - 1].parse::<f64>().expect("a number") * if words[at] == "kB" { 1e-3 } else { 1.0 }
}

fn size_of(folder: &Path) -> u64 {
    let size = |entry: fs::DirEntry| match entry.metadata().expect("readable") {
        data if data.is_dir() => size_of(&entry.path()),
        data => data.len(),
    };
    fs::read_dir(folder).expect("a folder").map(|entry| size(entry.expect("readable"))).sum()
}

#[test]
fn a_finished_run_keeps_one_checkpoint_and_the_states_it_names() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "one", &["plan.rounds=5"]);
    let manifests = run_support::manifests(&run);
    assert_eq!(manifests.len(), 1);
    let named = json(&manifests[0])["manifest"]["clients"].as_object().map(serde_json::Map::len);
    assert_eq!(fs::read_dir(run.join("clients")).map(Iterator::count).ok(), named);
}

#[test]
fn a_run_says_how_many_solves_started_warm_and_keeps_no_fixed_points_between_rounds() {
    let folder = TempDir::new().expect("a folder");
    let text = |out: &str, settings: &[&str]| {
        let output = succeed(&mut run_command(&folder, out, settings)).stdout;
        String::from_utf8(output).expect("UTF-8")
    };
    let warm = text("warm", &[]);
    assert!(warm.contains("steps a sample, ") && warm.contains(" % started warm, "), "{warm}");
    assert!(!text("cold", &["training.warm_start=off"]).contains("started warm"));
    assert!(!text("explicit", &["method=fedrep"]).contains("steps a sample"));
    text("lasting", &["training.warm_start.by-sample.lasting=true"]);
    let kept = |out: &str| -> u64 {
        let states = fs::read_dir(folder.path().join(out).join("clients")).expect("a folder");
        states.map(|state| state.and_then(|state| state.metadata()).expect("readable").len()).sum()
    };
    assert_eq!(kept("warm"), kept("cold"));
    assert!(kept("lasting") > kept("warm"));
}

#[test]
fn results_do_not_depend_on_how_many_states_fit_in_memory() {
    let folder = TempDir::new().expect("a folder");
    let plenty = run(&folder, "plenty", &[]);
    // A megabyte holds the states of a few of the clients.
    let little = run(&folder, "little", &["engine.client_memory_mb=1"]);
    assert_same_files(&plenty, &little, "memory");
}

#[test]
fn the_experiment_of_a_run_gives_the_same_run() {
    let folder = TempDir::new().expect("a folder");
    let first = run(&folder, "first", &["method=ditto", "seed=3"]);
    succeed(fedeq(&folder).args(["run", "first/experiment.toml", "--out", "second", "--quiet"]));
    assert_same_files(&first, &folder.path().join("second"), "run again");
    let text = |name: &str| fs::read_to_string(folder.path().join(name).join("experiment.toml")).expect("written");
    assert_eq!(text("first"), text("second"));
}

#[test]
fn the_summary_is_json_on_stdout_and_progress_is_on_stderr() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(run_command(&folder, "one", &[]).arg("--json"));
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(printed, json(&folder.path().join("one/summary.json")));
    assert!(String::from_utf8_lossy(&output.stderr).contains("round 3 of 3"));
    let again = succeed(fedeq(&folder).args(["resume", "one", "--json", "--quiet"]));
    assert!(again.stdout == output.stdout, "a finished run is shown again");
}

#[test]
fn a_run_is_never_overwritten_and_the_usual_names_are_counted() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "one", &[]);
    let (error, hint) = refusal(&mut run_command(&folder, "one", &[]), 2);
    assert_eq!(error, "`one` already exists");
    assert!(hint.contains("fedeq resume one"), "{hint}");
    for _ in 0..2 {
        let mut command = fedeq(&folder);
        succeed(command.args([
            "run",
            "--quiet",
            "--set",
            "plan.rounds=1",
            "--set",
            "method=local",
            "--set",
            "training.epochs=1",
        ]));
    }
    assert!(folder.path().join("runs/local-digits-0").is_dir() && folder.path().join("runs/local-digits-0-2").is_dir());
}

#[test]
fn a_folder_without_a_run_in_it_is_taken() {
    let folder = TempDir::new().expect("a folder");
    let small = ["model=linear", "plan.rounds=1"];
    fs::create_dir(folder.path().join("empty")).expect("writable");
    run(&folder, "empty", &small);
    // As if a process had been killed while it made the folder.
    let unborn = folder.path().join("unborn");
    fs::create_dir(&unborn).expect("writable");
    for name in ["lock", "version.json", "experiment.toml.partial"] {
        fs::write(unborn.join(name), "").expect("writable");
    }
    run(&folder, "unborn", &small);
    fs::create_dir(folder.path().join("other")).expect("writable");
    fs::write(folder.path().join("other/letter.txt"), "dear").expect("writable");
    refusal(&mut run_command(&folder, "other", &small), 2);
    assert!(folder.path().join("other/letter.txt").is_file());
}

#[test]
fn tensorboard_files_hold_sound_records_of_every_round() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "one", &[]);
    let file = fs::read_dir(run.join("tensorboard")).expect("a folder").next().expect("a file").expect("readable").path();
    let records = records(&file);
    // The version, the start of a session, three rounds with their timings, and two evaluations.
    assert_eq!(records.len(), 10);
    assert!(contains(&records[0], b"brain.Event:2"));
    assert!(records[2..].iter().filter(|record| contains(record, b"train/loss")).count() == 3);
    assert!(records[2..].iter().filter(|record| contains(record, b"local/accuracy")).count() == 2);
    assert!(records[2..].iter().filter(|record| contains(record, b"seconds/communicate")).count() == 3);
}

fn contains(record: &[u8], text: &[u8]) -> bool {
    record.windows(text.len()).any(|window| window == text)
}

/// Cuts an event file into records, by its lengths.
fn records(file: &Path) -> Vec<Vec<u8>> {
    let bytes = fs::read(file).expect("readable");
    let (mut rest, mut records) = (bytes.as_slice(), Vec::new());
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().expect("eight bytes")) as usize;
        records.push(rest[12..12 + length].to_vec());
        rest = &rest[16 + length..];
    }
    records
}
