//! What there is to say about GPUs where there is none: who is refused, what a run remembers of its device, and runs side by side.
mod run_support;

use std::fs;
use std::path::{Path, PathBuf};

use fedeq_core::fingerprint;
use fedeq_run::experiment::Experiment;
use fedeq_run::run::{Manifest, read_json, write_json};
use run_support::{
    TINY, assert_same_files, fedeq, half_done_of, json, last_checkpoint, manifests, refusal, run, run_command, succeed,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Why this machine has no GPU; nothing where it has one, and what is refused elsewhere is not refused here.
fn no_gpu(folder: &TempDir) -> Option<String> {
    let output = succeed(fedeq(folder).args(["devices", "--json"]));
    let machine: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    machine["no_gpu"]["problem"].as_str().map(str::to_owned)
}

#[test]
fn devices_are_listed_for_people_and_for_programs() {
    let folder = TempDir::new().expect("a folder");
    let text = String::from_utf8(succeed(fedeq(&folder).arg("devices")).stdout).expect("UTF-8");
    assert!(text.lines().nth(1).is_some_and(|line| line.starts_with("cpu ") && line.contains("instructions")), "{text}");
    let output = succeed(fedeq(&folder).args(["devices", "--json"]));
    let machine: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(machine["cpu"]["instructions"].is_string() && machine["gpus"].is_array(), "{machine}");
    let has_gpus = machine["gpus"].as_array().is_some_and(|gpus| !gpus.is_empty());
    assert_eq!(has_gpus, machine["no_gpu"].is_null(), "{machine}");
    assert_eq!(text.contains("no GPU: "), !has_gpus, "{text}");
}

#[test]
fn a_gpu_that_is_not_there_is_refused_before_anything_begins() {
    let folder = TempDir::new().expect("a folder");
    let Some(missing) = no_gpu(&folder) else { return };
    let refused = |arguments: &[&str]| {
        let (error, hint) = refusal(fedeq(&folder).args(arguments), 2);
        assert!(error.contains("cannot be used: ") && error.contains(&missing), "{arguments:?}: {error}");
        assert!(hint.ends_with("`--device cpu` needs none"), "{hint}");
    };
    refused(&["run", "--device", "cuda", "--out", "out"]);
    refused(&["run", "--set", "engine.device=cuda:1", "--out", "out"]);
    refused(&["sweep", "--device", "cuda", "--seeds", "0..3", "--jobs", "2", "--out", "out"]);
    refused(&["reproduce", "fig-rho", "--device", "cuda", "--out", "out", "--runs", "out"]);
    assert!(!folder.path().join("out").exists());
    run(&folder, "done", &["model=linear"]);
    refused(&["evaluate", "done", "--device", "cuda"]);
    let (error, hint) = refusal(fedeq(&folder).args(["run", "--device", "gpu"]), 2);
    assert!(error.contains("`engine.device` cannot be `gpu`") && hint.contains("`cuda`"), "{error}; {hint}");
}

#[test]
fn what_a_gpu_cannot_do_is_refused_by_name_and_needs_no_gpu_for_that() {
    let prepared = |settings: &[&str]| {
        let settings: Vec<_> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        Experiment::read(None, &settings).expect("an experiment").prepare().map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(prepared(&["engine.device=cuda"]), Ok(()));
    for (setting, name) in [
        ("model.equilibrium.solver={ broyden = { memory = 5 } }", "`model.equilibrium.solver.broyden`"),
        ("model.equilibrium.solver={ anderson = { memory = 9 } }", "`model.equilibrium.solver.anderson.memory` is `9`"),
        ("training.watch_fixed_points={ samples = 2 }", "`training.watch_fixed_points`"),
    ] {
        assert_eq!(prepared(&[setting]), Ok(()), "the CPU can");
        let refused = prepared(&["engine.device=cuda", setting]);
        assert!(refused.as_ref().is_err_and(|problem| problem.contains(name)), "{setting}: {refused:?}");
    }
}

#[test]
fn nodes_of_a_federation_train_on_their_cpu() {
    let folder = TempDir::new().expect("a folder");
    let (error, _) = refusal(fedeq(&folder).args(["init-federation", "--set", "engine.device=cuda", "--out", "app"]), 2);
    assert!(error.contains("nodes train on their CPU"), "{error}");
}

#[test]
fn a_run_on_the_cpu_says_nothing_of_gpus() {
    let folder = TempDir::new().expect("a folder");
    let done = run(&folder, "done", &["model=linear"]);
    assert!(json(&done.join("version.json"))["gpu"].is_null());
    let timings = fs::read_to_string(done.join("timings.jsonl")).expect("readable");
    let experiment = fs::read_to_string(done.join("experiment.toml")).expect("readable");
    assert!(!timings.contains("device") && !experiment.contains("precision") && !experiment.contains("earlier"));
    if no_gpu(&folder).is_some() {
        let output = succeed(&mut run_command(&folder, "again", &["model=linear"]));
        assert!(!String::from_utf8_lossy(&output.stderr).contains("is not used"));
    }
}

/// Makes a run that was stopped say that it was computed on a GPU so far.
fn pretend_gpu(run: &Path) {
    let experiment = run.join("experiment.toml");
    let text = fs::read_to_string(&experiment).expect("readable").replace("device = \"cpu\"", "device = \"cuda\"");
    fs::write(&experiment, &text).expect("writable");
    let identity = Experiment::from_resolved(&text).expect("an experiment").identity().expect("an identity");
    for path in manifests(run) {
        let sealed: Value = read_json(&path).expect("a manifest");
        let mut manifest: Manifest = serde_json::from_value(sealed["manifest"].clone()).expect("a manifest");
        (manifest.experiment, manifest.device) = (identity.clone(), "cuda (mixed)".into());
        let seal = fingerprint(serde_json::to_string(&manifest).expect("JSON").as_bytes());
        write_json(&path, &json!({ "manifest": manifest, "fingerprint": seal })).expect("writable");
    }
}

const LONG: [&str; 2] = ["plan.rounds=200", "plan.evaluate_every=50"];

fn begun_on_a_gpu(folder: &TempDir) -> PathBuf {
    let half = half_done_of(folder, "runs/half", &LONG);
    pretend_gpu(&half);
    half
}

#[test]
fn a_run_goes_on_on_another_device_only_if_that_is_said_and_never_forgets_it() {
    let folder = TempDir::new().expect("a folder");
    let half = begun_on_a_gpu(&folder);
    if let Some(missing) = no_gpu(&folder) {
        let (error, hint) = refusal(fedeq(&folder).args(["resume", "runs/half"]), 2);
        assert!(error.contains(&missing) && hint.contains("--device cpu"), "{error}; {hint}");
    }
    let text = fs::read_to_string(half.join("experiment.toml")).expect("readable");
    fs::write(half.join("experiment.toml"), text.replace("device = \"cuda\"", "device = \"cpu\"")).expect("writable");
    let (error, hint) = refusal(fedeq(&folder).args(["resume", "runs/half"]), 2);
    assert_eq!(error, "`runs/half` was computed on `cuda (mixed)` so far, and `engine.device` is now `cpu`");
    assert!(hint.contains("say `--device cpu`"), "{hint}");
    succeed(fedeq(&folder).args(["resume", "runs/half", "--quiet", "--device", "cpu"]));
    let text = fs::read_to_string(half.join("experiment.toml")).expect("readable");
    assert!(text.contains("device = \"cpu\"") && text.contains("earlier_devices = [\"cuda (mixed)\"]"), "{text}");
    assert_eq!(json(&manifests(&half)[0])["manifest"]["device"], "cuda (mixed), then cpu");
    succeed(fedeq(&folder).args(["evaluate", "runs/half"]));
    succeed(fedeq(&folder).args(["resume", "runs/half"]));
    let (error, hint) = refusal(fedeq(&folder).args(["run", "runs/half/experiment.toml", "--out", "again"]), 2);
    assert!(error.contains("`engine.earlier_devices`") && hint.contains("leave it out"), "{error}; {hint}");
    run(&folder, "runs/whole", &LONG);
    let output = succeed(fedeq(&folder).args(["compare", "runs", "--json"]));
    let comparison: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut settings: Vec<String> = comparison["groups"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|group| group["settings"]["engine.device"].to_string())
        .collect();
    settings.sort();
    assert!(settings.len() == 2 && settings[0].contains("cpu") && settings[1].contains("cuda (mixed), then cpu"), "{settings:?}");
    let report = String::from_utf8(succeed(fedeq(&folder).args(["report", "runs", "--format", "md"])).stdout).expect("UTF-8");
    assert!(report.contains("was computed on cuda (mixed), then cpu"), "{report}");
}

#[test]
fn a_move_that_was_interrupted_is_made_again_or_taken_back() {
    let folder = TempDir::new().expect("a folder");
    let half = begun_on_a_gpu(&folder);
    // As if the process had been killed between its notes about the move and its next checkpoint.
    let path = half.join("experiment.toml");
    let text = fs::read_to_string(&path).expect("readable");
    let moved = text.replace("device = \"cuda\"", "device = \"cpu\"\nearlier_devices = [\"cuda (mixed)\"]");
    fs::write(&path, moved).expect("writable");
    let (error, _) = refusal(fedeq(&folder).args(["resume", "runs/half"]), 2);
    assert!(error.contains("was computed on `cuda (mixed)` so far"), "{error}");
    succeed(fedeq(&folder).args(["resume", "runs/half", "--quiet", "--device", "cpu"]));
    assert_eq!(json(&manifests(&half)[0])["manifest"]["device"], "cuda (mixed), then cpu");
}

#[test]
fn what_a_gpu_held_and_did_is_in_reports() {
    let folder = TempDir::new().expect("a folder");
    let done = run(&folder, "done", &["model=linear"]);
    let timings = fs::read_to_string(done.join("timings.jsonl")).expect("readable");
    let used = "\"device\":{\"memory\":2000000000,\"peak_memory\":3000000000,\"utilisation\":0.75}}\n";
    let lines: String = timings.lines().map(|line| format!("{},{used}", line.strip_suffix('}').expect("an object"))).collect();
    fs::write(done.join("timings.jsonl"), lines).expect("writable");
    let csv = String::from_utf8(succeed(fedeq(&folder).args(["report", "done", "--format", "csv"])).stdout).expect("UTF-8");
    assert!(csv.lines().nth(1).is_some_and(|line| line.contains(",cpu,3000000000,0.75,")), "{csv}");
    let page = String::from_utf8(succeed(fedeq(&folder).args(["report", "done", "--format", "md"])).stdout).expect("UTF-8");
    assert!(page.contains("+ GPU 3.0 GB"), "{page}");
}

fn sweep(folder: &TempDir, out: &str, jobs: &str) -> PathBuf {
    let mut command = fedeq(folder);
    command.args(["sweep", "--grid", "method=fedeq,fedrep", "--seeds", "0..3", "--out", out, "--jobs", jobs]);
    command.args(TINY.iter().flat_map(|setting| ["--set", setting]));
    let output = succeed(&mut command);
    let said = String::from_utf8_lossy(&output.stderr);
    let ends = said.lines().filter(|line| line.starts_with("cell ") && line.contains(": accuracy ")).count();
    assert_eq!(ends, if jobs == "1" { 0 } else { 6 }, "{said}");
    folder.path().join(out)
}

#[test]
fn runs_side_by_side_end_with_the_same_bytes_as_one_after_the_other() {
    let folder = TempDir::new().expect("a folder");
    let (alone, together) = (sweep(&folder, "alone", "1"), sweep(&folder, "together", "3"));
    let runs: Vec<_> = fs::read_dir(&alone).expect("readable").map(|entry| entry.expect("an entry").file_name()).collect();
    for name in runs.iter().filter(|name| *name != "sweep.csv") {
        assert_same_files(&alone.join(name), &together.join(name), &name.to_string_lossy());
    }
    assert_eq!(runs.len(), 7);
    // What differs are seconds and nothing else.
    let table = |path: &Path| {
        let text = fs::read_to_string(path.join("sweep.csv")).expect("readable");
        text.lines().map(|line| line.split(',').take(2).collect::<Vec<_>>().join(",")).collect::<Vec<_>>()
    };
    assert_eq!(table(&alone), table(&together));
    let summary = fs::read_dir(&together).expect("readable").map(|entry| entry.expect("an entry").path().join("summary.json"));
    let summaries: Vec<Value> = summary.filter(|path| path.is_file()).map(|path| json(&path)).collect();
    assert!(summaries.iter().all(|summary| summary["resources"]["peak_memory"].is_null()), "one process has one peak");
}

#[test]
fn one_bad_run_among_several_stops_none_of_the_others() {
    let folder = TempDir::new().expect("a folder");
    let mut command = fedeq(&folder);
    command.args(["sweep", "--quiet", "--jobs", "3", "--out", "sweep", "--grid", "training.learning_rate=1e30,0.01,0.02"]);
    for setting in ["method=local", "model=mlp", "plan.rounds=1", "plan.sampling.fraction=0.1"] {
        command.args(["--set", setting]);
    }
    let output = command.output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("cell 1 of 3 failed: "), "{said}");
    assert_eq!(fs::read_to_string(folder.path().join("sweep/sweep.csv")).expect("written").lines().count(), 4);
}

/// All that a card must do for this program, beside training well.
#[test]
#[ignore = "needs a GPU"]
fn on_a_card_the_same_seed_gives_the_same_bytes_also_after_a_kill_and_side_by_side() {
    let folder = TempDir::new().expect("a folder");
    assert_eq!(no_gpu(&folder), None);
    let settings = ["plan.rounds=30", "plan.evaluate_every=10", "engine.device=cuda"];
    let whole = run(&folder, "whole", &settings);
    assert_same_files(&whole, &run(&folder, "again", &settings), "again");
    let half = half_done_of(&folder, "half", &settings);
    succeed(fedeq(&folder).args(["resume", "half", "--quiet"]));
    assert_same_files(&whole, &half, "killed and resumed");
    let crowded =
        run(&folder, "crowded", &[&settings[..], &["engine.device_memory_mb=200", "engine.client_memory_mb=1"]].concat());
    assert_same_files(&whole, &crowded, "with little memory");
    let evaluated = succeed(fedeq(&folder).args(["evaluate", "whole"]));
    assert!(String::from_utf8_lossy(&evaluated.stdout).contains("the same numbers"));
    succeed(fedeq(&folder).args(["evaluate", "whole", "--device", "cpu"]));
    let version = json(&whole.join("version.json"));
    assert!(version["gpu"]["name"].is_string() && version["gpu"]["precision"] == "mixed", "{version}");
    let timings = fs::read_to_string(whole.join("timings.jsonl")).expect("readable");
    for line in timings.lines() {
        let device = &serde_json::from_str::<Value>(line).expect("JSON")["device"];
        let share = device["utilisation"].as_f64().expect("a number");
        assert!(device["peak_memory"].as_u64() >= device["memory"].as_u64() && (0.0..=1.0).contains(&share), "{device}");
    }
    let sweep = |out: &str, jobs: &str| {
        let mut command = fedeq(&folder);
        command.args(["sweep", "--quiet", "--device", "cuda", "--grid", "method=fedeq,fedrep", "--seeds", "0..3"]);
        command.args(TINY.iter().flat_map(|setting| ["--set", setting]));
        succeed(command.args(["--out", out, "--jobs", jobs]));
        folder.path().join(out)
    };
    let (alone, together) = (sweep("alone", "1"), sweep("together", "4"));
    for entry in
        fs::read_dir(&alone).expect("readable").map(|entry| entry.expect("an entry")).filter(|entry| entry.path().is_dir())
    {
        assert_same_files(&entry.path(), &together.join(entry.file_name()), "side by side");
    }
}

#[test]
#[ignore = "needs a GPU"]
fn a_run_moves_between_a_card_and_the_cpu_and_keeps_what_is_over() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["plan.rounds=200", "plan.evaluate_every=50", "engine.device=cuda", "engine.precision=exact"];
    let half = half_done_of(&folder, "half", &settings);
    succeed(fedeq(&folder).args(["resume", "half", "--quiet", "--device", "cpu"]));
    assert_eq!(json(&manifests(&half)[0])["manifest"]["device"], "cuda (exact), then cpu");
    let other = half_done_of(&folder, "other", &settings[..2]);
    succeed(fedeq(&folder).args(["resume", "other", "--quiet", "--device", "cuda"]));
    assert_eq!(json(&manifests(&other)[0])["manifest"]["device"], "cpu, then cuda (mixed)");
}

/// So little that it takes seconds also where a processor stands in for a card (`crates/cuda/emulator`), which can run blocks, warps and lanes in any order.
#[test]
#[ignore = "needs a GPU"]
fn a_little_run_learns_what_it_learns_on_the_cpu_and_gives_the_same_bytes_in_any_order_of_blocks() {
    let folder = TempDir::new().expect("a folder");
    let shallow = ["plan.rounds=2", "model.equilibrium.stop={ relative = 0.0, max_steps = 3 }"];
    let on_a_card = |out: &str, order: &str| {
        let mut command = run_command(&folder, out, &[&shallow[..], &["engine.device=cuda"]].concat());
        succeed(command.env("EMULATOR_ORDER", order));
        folder.path().join(out)
    };
    let natural = on_a_card("natural", "natural");
    for order in ["reverse", "7"] {
        assert_same_files(&natural, &on_a_card(order, order), order);
    }
    let explicit = ["plan.rounds=2", "model=mlp"];
    let expected = json(&run(&folder, "cpu", &explicit).join("summary.json"));
    let exact = run(&folder, "exact", &[&explicit[..], &["engine.device=cuda", "engine.precision=exact"]].concat());
    let found = json(&exact.join("summary.json"));
    for view in ["local", "shared"] {
        let of = |summary: &Value, what: &str| summary["evaluation"][view][what].as_f64().expect("a number");
        assert!((of(&found, "loss") - of(&expected, "loss")).abs() < 1e-5 * of(&expected, "loss"), "{view}");
        assert_eq!(of(&found, "weighted"), of(&expected, "weighted"), "{view}");
    }
}

/// Only the stand-in's memory can be chosen: of some sizes the largest in which a run begins and does not end, with a checkpoint of what was over.
#[test]
#[ignore = "needs a GPU"]
fn a_card_that_is_full_ends_a_run_and_more_memory_continues_it_to_the_same_bytes() {
    let folder = TempDir::new().expect("a folder");
    let devices = succeed(fedeq(&folder).arg("devices")).stdout;
    if !String::from_utf8_lossy(&devices).contains("stand-in") {
        return;
    }
    let settings = ["method=fedavg", "model=resnet-xs", "data.limit.train=4", "training.batch_size=2", "engine.device=cuda"];
    let mut full: Option<(PathBuf, String)> = None;
    let mut whole = None;
    for megabytes in ["1", "2", "4", "8", "16", "64"] {
        let output = run_command(&folder, megabytes, &settings).env("EMULATOR_MEMORY", megabytes).output().expect("it starts");
        let (run, said) = (folder.path().join(megabytes), String::from_utf8_lossy(&output.stderr).into_owned());
        match output.status.code() {
            Some(0) => {
                whole = Some(run);
                break;
            }
            code if last_checkpoint(&run).is_some() => {
                assert_eq!(code, Some(1), "{said}");
                full = Some((run, said));
            }
            // Not even the data fitted.
            _ => {}
        }
    }
    let (Some((full, said)), Some(whole)) = (full, whole) else { panic!("no size is too little for a run, or none enough") };
    for part in ["the GPU's memory is full", " wanted, ", " free", "`engine.device_memory_mb`", "`training.batch_size`"] {
        assert!(said.contains(part), "no {part} in {said}");
    }
    assert!(!full.join("summary.json").exists());
    succeed(fedeq(&folder).args(["resume", &full.to_string_lossy(), "--quiet"]));
    assert_same_files(&whole, &full, "continued with more memory");
}
