//! `plan.patience`: training that ends once validation accuracy stands still.
mod run_support;

use std::fs;
use std::path::Path;

use run_support::{fedeq, json, refusal, run, run_command, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Steps so short that no accuracy changes: the first evaluation, after round 2, stays the best.
const STILL: [&str; 6] = [
    "model=mlp",
    "plan.rounds=20",
    "plan.evaluate_every=2",
    "plan.patience=2",
    "data.split.validation=0.2",
    "training.learning_rate=1e-9",
];

fn lines(run: &Path, name: &str) -> Vec<Value> {
    let text = fs::read_to_string(run.join(name)).expect(name);
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn a_run_ends_with_the_round_after_its_last_patience_and_says_so_everywhere() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(&mut run_command(&folder, "early", &[&STILL[..], &["method=local"]].concat()));
    let said = String::from_utf8(output.stderr).expect("UTF-8");
    assert!(said.contains(" in the last 2 evaluations; round 7 of 20 is the last"), "{said}");
    let shown = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(shown.contains("after 7 of 20 rounds: 2 evaluations found no better validation accuracy"), "{shown}");
    let early = folder.path().join("early");
    let (summary, evaluations) = (json(&early.join("summary.json")), lines(&early, "evaluations.jsonl"));
    assert_eq!(summary["rounds"], 7);
    let end = ["last_round", "planned", "evaluations"].map(|what| summary["stood_still"][what].as_u64());
    assert_eq!(end, [Some(7), Some(20), Some(2)]);
    let rounds: Vec<u64> = evaluations.iter().filter_map(|evaluation| evaluation["round"].as_u64()).collect();
    assert_eq!(rounds, [2, 4, 6, 7], "the last evaluation follows the last round, as at the end of any plan");
    let told: Vec<bool> = evaluations.iter().map(|evaluation| evaluation["stood_still"].is_object()).collect();
    assert_eq!(told, [false, false, true, false], "the journal says when that was decided");
    let evaluated = succeed(fedeq(&folder).args(["evaluate", "early"]));
    assert!(String::from_utf8_lossy(&evaluated.stdout).contains("the same numbers"));
}

/// Without what was sent: requests name the rounds of the plan.
fn without_bytes(mut line: Value) -> Value {
    if let Some(object) = line.as_object_mut() {
        object.remove("traffic");
    }
    line
}

/// Whatever a method does at the end of training, it does at an early end too.
#[test]
fn a_run_that_ends_early_ends_as_a_plan_of_so_many_rounds() {
    const ASYNCHRONOUS: [&str; 3] = ["method=fedeq", "method.server_step=consensus", "plan.asynchronous.slowest=4"];
    let common = ["model=mlp", "plan.evaluate_every=1", "data.split.validation=0.2"];
    for method in [&["method=local"][..], &["method=fedavg-ft"], &["method=fedeq"], &ASYNCHRONOUS] {
        let folder = TempDir::new().expect("a folder");
        let patient = ["plan.rounds=60", "plan.patience=1"];
        let early = run(&folder, "early", &[&common[..], &patient, method].concat());
        let summary = json(&early.join("summary.json"));
        let rounds = summary["rounds"].as_u64().expect("a number");
        assert!(rounds < 60, "{method:?}: one evaluation in sixty is not better than all before");
        let plan = format!("plan.rounds={rounds}");
        let planned = run(&folder, "planned", &[&common[..], &[plan.as_str()], method].concat());
        let other = json(&planned.join("summary.json"));
        assert!(summary["stood_still"].is_object() && other["stood_still"].is_null(), "{method:?}");
        for what in ["evaluation", "unseen", "rounds"] {
            assert_eq!(without_bytes(summary[what].clone()), without_bytes(other[what].clone()), "{method:?}: {what}");
        }
        let rounds = |run: &Path| lines(run, "rounds.jsonl").into_iter().map(without_bytes).collect::<Vec<_>>();
        assert_eq!(rounds(&early), rounds(&planned), "{method:?}");
    }
}

#[test]
fn a_run_that_learns_goes_on() {
    let folder = TempDir::new().expect("a folder");
    let settings = ["plan.rounds=6", "plan.evaluate_every=1", "plan.patience=6", "data.split.validation=0.2", "method=fedavg"];
    let summary = json(&run(&folder, "whole", &settings).join("summary.json"));
    assert!(summary["rounds"] == 6 && summary["stood_still"].is_null(), "{summary}");
}

#[test]
fn patience_without_evaluations_or_validation_samples_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let refused = |settings: &[&str]| refusal(&mut run_command(&folder, "out", settings), 2);
    let (error, hint) = refused(&["plan.patience=2"]);
    assert!(error.starts_with("`plan.patience` waits for a better validation accuracy"), "{error}");
    assert!(hint.starts_with("set `data.split.validation`, such as `0.1`"), "{hint}");
    let (error, _) = refused(&["plan.patience=0", "data.split.validation=0.2"]);
    assert_eq!(error, "`plan.patience` is `0`");
    let (error, _) = refused(&["plan.patience=1", "plan.evaluate_every=0", "data.split.validation=0.2"]);
    assert!(error.contains("`plan.evaluate_every` is `0`"), "{error}");
    assert!(!folder.path().join("out").exists());
}
