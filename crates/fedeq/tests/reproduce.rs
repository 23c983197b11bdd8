//! `fedeq reproduce`: the embedded experiments, and a small one from beginning to end.
mod run_support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use fedeq_core::Method;
use fedeq_data::partition::Partition;
use fedeq_report::reproduce::{ExperimentCell, NAMES, ScaleName, cells, find};
use fedeq_run::experiment::Experiment;
use fedeq_run::forecast::{Forecaster, Rates};
use run_support::{fedeq, json, last_checkpoint, refusal, spawn, succeed};
use tempfile::TempDir;

/// Two cells of fig-rho with little to do, and results of their own.
const TINY: [&str; 18] = [
    "reproduce",
    "fig-rho",
    "--only",
    "rho-0.0?",
    "--only",
    "activation-relu",
    "--seeds",
    "1",
    "--set",
    "plan.rounds=3",
    "--set",
    "plan.evaluate_every=1",
    "--set",
    "training.epochs=1",
    "--set",
    "engine.checkpoint_every=1",
    "--out",
    "results",
];

fn tiny(folder: &TempDir) -> Command {
    let mut command = fedeq(folder);
    command.args(TINY);
    command
}

fn read(folder: &TempDir, name: &str) -> String {
    fs::read_to_string(folder.path().join("results").join(name)).expect(name)
}

fn run_folders(folder: &TempDir) -> Vec<PathBuf> {
    let runs = folder.path().join("runs/reproduce/fig-rho/small");
    let mut paths: Vec<PathBuf> = fs::read_dir(runs).into_iter().flatten().map(|entry| entry.expect("readable").path()).collect();
    paths.sort();
    paths
}

/// Results without what no two runs have in common.
fn without_timings(path: &Path) -> serde_json::Value {
    let mut results = json(path);
    for cell in results["cells"].as_object_mut().expect("cells").values_mut() {
        let forget = |table: &mut serde_json::Value| {
            for metric in ["seconds", "batch-time", "client-memory"] {
                table.as_object_mut().expect("a table").remove(metric);
            }
        };
        forget(&mut cell["mean"]);
        for run in cell["runs"].as_array_mut().expect("runs") {
            forget(&mut run["metrics"]);
            run["disk"] = 0.into();
        }
    }
    results
}

#[test]
fn every_cell_of_every_embedded_experiment_is_a_valid_experiment() {
    for name in NAMES {
        let spec = find(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        for scale in ScaleName::ALL {
            let cells = cells(&spec, scale, &[]).unwrap_or_else(|error| panic!("{name}, {scale}: {error}"));
            assert!(!cells.is_empty(), "{name}, {scale}");
            for cell in &cells {
                cell.experiment.check_settings().unwrap_or_else(|error| panic!("{name}, {scale}, {}: {error}", cell.name));
            }
            let mut names: Vec<&str> = cells.iter().map(|cell| cell.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), cells.len(), "{name}, {scale}: names of cells repeat");
            spec.check(scale).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}

/// Every cell of every embedded experiment, with the experiment's name.
fn all_cells(scale: ScaleName) -> Vec<(&'static str, ExperimentCell)> {
    let of = |name: &&'static str| {
        let cells = cells(&find(name).expect("known"), scale, &[]).expect("cells");
        cells.into_iter().map(|cell| (*name, cell)).collect::<Vec<_>>()
    };
    NAMES.iter().flat_map(of).collect()
}

#[test]
fn local_trains_every_client_in_every_round() {
    for scale in ScaleName::ALL {
        for (name, cell) in all_cells(scale) {
            if let Method::Local(local) = &cell.experiment.method {
                assert!(local.everybody, "{name}, {scale}, {}", cell.name);
            }
        }
    }
}

#[test]
fn femnist_at_full_scale_keeps_a_tenth_for_the_test() {
    let femnist: Vec<_> =
        all_cells(ScaleName::Full).into_iter().filter(|(_, cell)| cell.experiment.data.source.name() == "femnist").collect();
    assert!(femnist.iter().any(|(name, _)| *name == "table-1"));
    for (name, cell) in femnist {
        assert_eq!(cell.experiment.data.split.test, Some(0.1), "{name}, {}", cell.name);
    }
}

/// A role of 3,000 characters is 188 sequences of 16 symbols.
#[test]
fn shakespeare_at_full_scale_has_roles_of_3_000_characters_and_keeps_a_tenth_for_the_test() {
    let cells: Vec<_> =
        all_cells(ScaleName::Full).into_iter().filter(|(_, cell)| cell.experiment.data.source.name() == "shakespeare").collect();
    for name in ["table-1", "table-2", "fig-size", "presets", "fig-shakespeare"] {
        assert!(cells.iter().any(|(of, _)| *of == name), "{name}");
    }
    for (name, cell) in cells {
        let data = &cell.experiment.data;
        let is_long = matches!(data.partition, Partition::Natural { clients: Some(200), minimum: 188, .. });
        assert!(is_long && data.split.test == Some(0.1), "{name}, {}: {data:?}", cell.name);
    }
}

/// Whatever else differs, it is not the network, the rate, the rounds or the data.
#[test]
fn methods_are_compared_on_the_same_network() {
    for scale in ScaleName::ALL {
        let cells: Vec<ExperimentCell> =
            all_cells(scale).into_iter().filter(|(name, _)| *name == "same-network").map(|(_, cell)| cell).collect();
        let Some(first) = cells.first().map(|cell| &cell.experiment) else { panic!("cells") };
        for cell in &cells {
            let Experiment { model, data, training, plan, .. } = &cell.experiment;
            assert_eq!((model, data, training, plan.rounds), (&first.model, &first.data, &first.training, first.plan.rounds));
        }
    }
}

#[test]
fn an_experiment_gives_tables_figures_and_a_readme_and_keeps_what_a_person_wrote() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(&mut tiny(&folder));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("accuracy, local, %") && text.contains("accuracy, shared, %") && text.contains("not run"), "{text}");
    assert!(
        text.contains("`local`: a client's own model after its last training") && text.contains("One seed: nothing is marked"),
        "{text}"
    );
    let results = json(&folder.path().join("results/results-small.json"));
    for metric in ["local", "shared", "local-worst-tenth", "shared-worst-tenth", "local-weighted", "shared-weighted"] {
        assert!(results["cells"]["rho-0.01"]["mean"][metric].is_f64(), "{metric} in {}", results["cells"]["rho-0.01"]["mean"]);
    }
    assert_eq!(run_folders(&folder).len(), 2, "every cell is an ordinary run");
    for name in ["rounds-small.svg", "rounds-small.png", "activation-small.svg", "table-small.md"] {
        assert!(folder.path().join("results").join(name).is_file(), "{name}");
    }
    let first = read(&folder, "README.md");
    assert!(first.contains("| 0.01 | ") && first.contains("not run") && first.contains("Not run."), "{first}");
    assert!(first.contains("--set 'plan.rounds=3'"), "what was changed is said: {first}");
    fs::write(folder.path().join("results/README.md"), format!("{first}\nA person's words.\n")).expect("written");
    let (table, figure) = (read(&folder, "table-small.md"), read(&folder, "rounds-small.svg"));

    let again = succeed(&mut tiny(&folder));
    let told = String::from_utf8(again.stderr).expect("UTF-8");
    assert_eq!(told.matches("already finished").count(), 2, "{told}");
    assert_eq!((read(&folder, "table-small.md"), read(&folder, "rounds-small.svg")), (table, figure), "the same bytes");
    assert_eq!(read(&folder, "README.md"), format!("{first}\nA person's words.\n"));
}

#[test]
fn a_killed_experiment_goes_on_to_the_same_results() {
    let [left_alone, killed] = [(); 2].map(|()| TempDir::new().expect("a folder"));
    succeed(&mut tiny(&left_alone));
    let mut child = spawn(&mut tiny(&killed));
    child.wait_until("a round was over", || run_folders(&killed).iter().any(|run| last_checkpoint(run) >= Some(1)));
    child.kill_now();
    succeed(&mut tiny(&killed));
    let results = |folder: &TempDir| without_timings(&folder.path().join("results/results-small.json"));
    assert_eq!(results(&killed), results(&left_alone));
}

#[test]
fn a_dry_run_says_what_would_run_how_long_it_takes_and_how_much_disk() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(fedeq(&folder).args(["reproduce", "table-1", "--dry-run", "--seeds", "2"]));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(text.contains("fedavg-ft-cifar-100-100-20") && text.contains("56 cells, 2 seeds"), "{text}");
    assert!(text.contains("112 runs ahead: about ") && text.contains(" of disk"), "{text}");
    assert!(
        text.contains("not available: femnist, cifar10, cifar100, shakespeare; samples of the same shape stood in"),
        "{text}"
    );
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "a dry run writes nothing");
}

/// What a run folder holds.
fn size_of(folder: &Path) -> u64 {
    let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable"));
    entries.map(|entry| if entry.path().is_dir() { size_of(&entry.path()) } else { entry.metadata().expect("known").len() }).sum()
}

#[test]
fn the_disk_that_is_forecast_is_about_what_a_run_takes() {
    let folder = TempDir::new().expect("a folder");
    let wishes = ["plan.rounds=3", "training.epochs=1", "engine.checkpoint_every=1"].map(|text| text.parse().expect("a setting"));
    let spec = find("fig-rho").expect("known");
    let cell =
        cells(&spec, ScaleName::Small, &wishes).expect("cells").into_iter().find(|cell| cell.name == "rho-0.01").expect("a cell");
    let forecast = Forecaster::default().forecast(&cell.experiment).expect("sound");
    succeed(&mut tiny(&folder));
    let taken = run_folders(&folder)
        .iter()
        .filter(|path| path.to_string_lossy().contains("rho-0.01"))
        .map(|path| size_of(path))
        .sum::<u64>();
    assert!((taken / 2..2 * taken).contains(&forecast.disk.finished), "{} against {taken}", forecast.disk.finished);
    assert!(forecast.seconds > 0.0 && !forecast.is_stand_in);
}

/// The cells that no GPU can compute: all by name.
fn refused_on_a_gpu(_: &str, _: ScaleName) -> &'static [&'static str] {
    &[]
}

#[test]
fn every_experiment_is_forecast_at_both_scales_before_anything_was_ever_run() {
    let mut forecaster = Forecaster::new(Rates::default()).expect("sound rates");
    let gpus = forecaster.gpus();
    assert!(gpus.iter().any(|gpu| gpu == "NVIDIA H200 (mixed)"), "{gpus:?}");
    for (name, scale) in NAMES.iter().flat_map(|name| ScaleName::ALL.map(|scale| (name, scale))) {
        let cells = cells(&find(name).expect("known"), scale, &[]).expect("cells");
        let mut refused = Vec::new();
        for cell in &cells {
            let what = format!("{name}, {scale}, {}", cell.name);
            let forecast = forecaster.forecast(&cell.experiment).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert!(forecast.seconds.is_finite() && forecast.seconds > 0.0, "{what}: {forecast:?}");
            assert!(forecast.disk.finished > forecast.disk.checkpoint && forecast.disk.checkpoint > 0, "{what}: {forecast:?}");
            let there = forecaster.seconds_on(&cell.experiment, "NVIDIA H200 (mixed)");
            assert!(there.is_none_or(|(seconds, _)| seconds.is_finite() && seconds > 0.0), "{what}: {there:?}");
            if there.is_none() {
                refused.push(cell.name.as_str());
            }
        }
        assert_eq!(refused, refused_on_a_gpu(name, scale), "{name}, {scale}: cells that a GPU cannot compute");
    }
}

#[test]
fn a_dry_run_for_a_gpu_that_is_not_there_says_whose_rates_it_uses() {
    let folder = TempDir::new().expect("a folder");
    let forecast = |experiment: &str, cell: &str| {
        let arguments = ["reproduce", experiment, "--scale", "full", "--only", cell, "--dry-run", "--quiet", "--device", "cuda"];
        let text = String::from_utf8(succeed(fedeq(&folder).args(arguments)).stdout).expect("UTF-8");
        assert!(text.contains("all 3 runs from the beginning, by device:") && text.contains("this CPU: "), "{text}");
        assert!(!text.contains("unknown"), "{text}");
        text
    };
    let of_rounds = forecast("fig-rho", "rho-0.01");
    assert!(of_rounds.contains("rounds on NVIDIA H200 (mixed)") && !of_rounds.contains("at least"), "{of_rounds}");
    let of_rounds = forecast("table-1", "fedeq-cifar-10-100-5");
    assert!(of_rounds.contains("rounds on NVIDIA H200 (mixed)") && !of_rounds.contains("at least"), "{of_rounds}");
    let of_kernels = forecast("table-1", "fedrep-shakespeare-200");
    assert!(of_kernels.contains("kernels on NVIDIA H200 (mixed)") && of_kernels.contains("at least"), "{of_kernels}");
}

#[test]
fn the_rows_of_table_1_that_are_judged_have_three_seeds_and_the_others_one() {
    let cells = cells(&find("table-1").expect("known"), ScaleName::Full, &[]).expect("cells");
    assert_eq!((cells.len(), cells.iter().map(|cell| cell.seeds).sum::<u64>()), (56, 5 * 7 * 3 + 3 * 7));
    for cell in &cells {
        let is_judged = ["fedeq", "fedrep", "knn-per", "fedavg-ft", "ditto"].contains(&cell.experiment.method.name());
        assert_eq!(cell.seeds, if is_judged { 3 } else { 1 }, "{}", cell.name);
    }
    let folder = TempDir::new().expect("a folder");
    let dry = |more: &[&str]| {
        let arguments =
            ["reproduce", "table-1", "--scale", "full", "--only", "fed*-femnist-100", "--dry-run", "--device", "cuda"];
        String::from_utf8(succeed(fedeq(&folder).args(arguments).args(more)).stdout).expect("UTF-8")
    };
    let text = dry(&[]);
    assert!(text.contains("5 cells, 1 to 3 seeds: 0 done, 11 runs ahead") && text.contains("all 11 runs from"), "{text}");
    let text = dry(&["--seeds", "2"]);
    assert!(text.contains("5 cells, 2 seeds: 0 done, 10 runs ahead"), "a person may ask for others: {text}");
}

#[test]
fn a_measurement_of_two_rounds_is_recorded_and_used() {
    let folder = TempDir::new().expect("a folder");
    let text =
        String::from_utf8(succeed(tiny(&folder).args(["--dry-run", "--measure", "--state", "state"])).stdout).expect("UTF-8");
    assert!(text.contains("  rounds on "), "{text}");
    let again = String::from_utf8(succeed(tiny(&folder).args(["--dry-run", "--state", "state"])).stdout).expect("UTF-8");
    assert!(again.contains("  rounds on "), "{again}");
    assert!(run_folders(&folder).is_empty() && !folder.path().join("results").exists());
}

#[test]
fn one_seed_of_everything_comes_first_and_our_method_with_its_rivals_before_others() {
    let folder = TempDir::new().expect("a folder");
    let mut command = fedeq(&folder);
    command.args(["reproduce", "fig-communication", "--seeds", "2", "--out", "results"]);
    for setting in ["plan.rounds=1", "plan.evaluate_every=1", "training.epochs=1", "training.personal_epochs=1"] {
        command.args(["--set", setting]);
    }
    let runs = announced(&succeed(&mut command).stderr);
    let half = runs.len() / 2;
    assert!(runs[..half].iter().all(|(_, seed)| seed == "0") && runs[half..].iter().all(|(_, seed)| seed == "1"), "{runs:?}");
    let place = |name: &str| runs.iter().position(|(cell, _)| cell == name).unwrap_or_else(|| panic!("no {name} in {runs:?}"));
    assert!(place("fedeq") < place("fedrep") && place("fedrep") < place("fedavg"), "{runs:?}");
}

/// The runs that a reproduction says it begins: the cell and the seed.
fn announced(stderr: &[u8]) -> Vec<(String, String)> {
    let said = String::from_utf8(stderr.to_vec()).expect("UTF-8");
    let runs =
        said.lines().filter(|line| line.starts_with("run ")).filter_map(|line| line.split_once(": ")?.1.split_once(", seed "));
    runs.map(|(cell, seed)| (cell.to_owned(), seed.to_owned())).collect()
}

#[test]
fn several_experiments_are_one_queue_with_results_of_their_own() {
    let folder = TempDir::new().expect("a folder");
    let both = |more: &[&str]| {
        let mut command = fedeq(&folder);
        command.args(["reproduce", "fig-dual", "fig-communication", "--only", "clients-fedrep-0.1"]);
        command.args(["--only", "fig-communication/fedeq", "--seeds", "2", "--out", "results", "--state", "state"]);
        for setting in ["plan.rounds=1", "plan.evaluate_every=1", "training.epochs=1", "training.personal_epochs=1"] {
            command.args(["--set", setting]);
        }
        command.args(more);
        command
    };
    let text = String::from_utf8(succeed(&mut both(&["--dry-run"])).stdout).expect("UTF-8");
    assert!(text.contains("2 cells, 2 seeds: 0 done, 4 runs ahead"), "{text}");
    let output = succeed(&mut both(&[]));
    let runs = announced(&output.stderr);
    let runs: Vec<(&str, &str)> = runs.iter().map(|(cell, seed)| (cell.as_str(), seed.as_str())).collect();
    let [rival, own] = ["fig-dual/clients-fedrep-0.1", "fig-communication/fedeq"];
    assert_eq!(
        runs,
        [(own, "0"), (rival, "0"), (own, "1"), (rival, "1")],
        "a seed of our method, then of its rivals, then the next"
    );
    for (name, cell) in [("fig-dual", "clients-fedrep-0.1"), ("fig-communication", "fedeq")] {
        for place in ["results", "state/results/results"] {
            let results = json(&folder.path().join(place).join(name).join("results-small.json"));
            let cells: Vec<&String> = results["cells"].as_object().expect("cells").keys().collect();
            assert_eq!(cells, [cell], "{place}");
            assert_eq!(results["cells"][cell]["runs"].as_array().map(Vec::len), Some(2));
        }
    }
    // From the state alone, which another machine has.
    fs::remove_dir_all(folder.path().join("results")).expect("removed");
    fs::remove_dir_all(folder.path().join("state/runs")).expect("removed");
    succeed(&mut both(&["--publish"]));
    let names = ["fig-dual", "fig-communication"];
    assert!(names.iter().all(|name| folder.path().join("results").join(name).join("table-small.md").is_file()));
    let again = String::from_utf8(succeed(&mut both(&[])).stderr).expect("UTF-8");
    assert_eq!(again.matches("already finished").count(), 4, "{again}");
}

/// The server of FedAvg sends every client its head, so that no client can have one of its own.
#[test]
fn a_cell_that_is_refused_is_named_and_left_out_and_others_go_on() {
    let folder = TempDir::new().expect("a folder");
    let reproduce = |cells: &[&str], more: &[&str]| {
        let mut command = fedeq(&folder);
        command.args(["reproduce", "fig-communication", "--seeds", "1", "--out", "results"]).args(more);
        cells.iter().for_each(|cell| _ = command.args(["--only", cell]));
        for setting in ["training.initial_heads=own", "plan.rounds=1", "training.epochs=1", "training.personal_epochs=1"] {
            command.args(["--set", setting]);
        }
        command
    };
    let left_out = "`fedavg` is left out: `training.initial_heads = own` does not go with `fedavg`";
    let dry = succeed(&mut reproduce(&["fedavg", "fedrep"], &["--dry-run"]));
    assert!(String::from_utf8_lossy(&dry.stderr).contains(left_out));
    assert!(String::from_utf8_lossy(&dry.stdout).contains("1 cell, 1 seed: 0 done, 1 run ahead"));
    let output = succeed(&mut reproduce(&["fedavg", "fedrep"], &[]));
    assert!(String::from_utf8_lossy(&output.stderr).contains(left_out));
    assert_eq!(announced(&output.stderr), [("fedrep".to_owned(), "0".to_owned())]);
    let results = json(&folder.path().join("results/results-small.json"));
    assert_eq!(results["cells"].as_object().expect("cells").keys().collect::<Vec<_>>(), ["fedrep"]);
    let (error, _) = refusal(&mut reproduce(&["fedavg"], &[]), 2);
    assert!(error.starts_with("`training.initial_heads = own` does not go with `fedavg`"), "{error}");
}

#[test]
fn a_cell_whose_settings_have_changed_is_not_done() {
    let folder = TempDir::new().expect("a folder");
    let states = |more: &[&str]| {
        let text = String::from_utf8(succeed(tiny(&folder).arg("--dry-run").args(more)).stdout).expect("UTF-8");
        (text.matches("  done ").count(), text.matches("  not run ").count())
    };
    assert_eq!(states(&[]), (0, 2));
    succeed(&mut tiny(&folder));
    assert_eq!(states(&[]), (2, 0));
    assert_eq!(states(&["--set", "training.learning_rate=0.05"]), (0, 2));
}

#[test]
fn all_experiments_are_listed() {
    let folder = TempDir::new().expect("a folder");
    let text = String::from_utf8(succeed(fedeq(&folder).args(["reproduce", "--list"])).stdout).expect("UTF-8");
    assert!(NAMES.iter().all(|name| text.contains(name)), "{text}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let refused = |arguments: &[&str]| refusal(fedeq(&folder).arg("reproduce").args(arguments), 2);
    let (error, hint) = refused(&["fig-roh"]);
    assert_eq!(error, "there is no experiment `fig-roh`");
    assert!(hint.starts_with("did you mean `fig-rho`?"), "{hint}");
    let (error, hint) = refused(&["fig-rho", "--only", "rho-7"]);
    assert!(error.contains("`rho-7`") && hint.contains("rho-0.01"), "{error} {hint}");
    // Among several, each must name a cell.
    let (error, _) = refused(&["fig-rho", "fig-dual", "--only", "fig-rho/*", "--only", "fig-dual/speed-*"]);
    assert_eq!(error, "no cell of `fig-rho` or `fig-dual` is named like `fig-dual/speed-*`");
    let (error, _) = refused(&["fig-rho", "fig-dual", "fig-rho"]);
    assert_eq!(error, "`fig-rho` is named twice");
    let (error, hint) = refused(&["table-1"]);
    assert!(error.contains("`femnist` is not in the data folder") && hint.contains("fedeq data get femnist"), "{error} {hint}");
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 0, "nothing was written");
}
