//! Differential privacy at the level of clients, from the command line: what is promised is written down, ends training, and survives a kill.
mod run_support;

use std::fs;
use std::path::Path;

use fedeq_core::{Accountant, Drawn};
use run_support::{assert_same_files, fedeq, half_done_of, json, refusal, run, run_command, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// A network without batch normalisation that trains in no time, and clients that toss coins.
const PRIVATE: [&str; 6] = [
    "model=deq-mlp",
    "model.hidden=16",
    "model.dense=8",
    "plan.sampling.poisson=true",
    "plan.privacy.noise_multiplier=0.8",
    "plan.privacy.clip.fixed=0.5",
];

fn settings(more: &[&'static str]) -> Vec<&'static str> {
    PRIVATE.iter().chain(more).copied().collect()
}

fn rounds(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("rounds.jsonl")).expect("readable");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// The places that tell of privacy.
fn told(folder: &TempDir, run: &str) -> String {
    let mut texts = Vec::new();
    for command in [vec!["compare", run, "--csv"], vec!["compare", run], vec!["report", run, "--format", "md"]] {
        texts.push(String::from_utf8(succeed(fedeq(folder).args(command)).stdout).expect("UTF-8"));
    }
    texts.concat()
}

#[test]
fn what_was_spent_is_in_journal_summary_and_comparison_and_is_what_the_accountant_says() {
    let folder = TempDir::new().expect("a folder");
    let path = run(&folder, "private", &settings(&["plan.rounds=5"]));
    // 30 digits clients less two unseen ones; a coin each by 0.1, and a tenth of one over the clients.
    let summary = json(&path.join("summary.json"));
    let clients = summary["clients"].as_u64().expect("a number") as f64;
    let accountant = Accountant::new(Drawn::Poisson(0.1), 0.8);
    for (round, line) in (1..).zip(rounds(&path)) {
        let expected = accountant.epsilon(round, 0.1 / clients);
        assert!((line["privacy"]["epsilon"].as_f64().expect("told") - expected).abs() < 1e-9, "{line}");
        let deviation = 0.8 * 0.5 / (0.1 * clients);
        assert!((line["privacy"]["deviation"].as_f64().expect("told") - deviation).abs() < 1e-9, "{line}");
    }
    let expected = accountant.epsilon(5, 0.1 / clients);
    assert!((summary["privacy"]["epsilon"].as_f64().expect("told") - expected).abs() < 1e-9);
    assert_eq!(summary["privacy"]["neighbours"], "a client added or removed");
    let shown = told(&folder, "private");
    assert!(shown.contains(&format!("{expected:.2}")) && shown.contains("private at the level of clients"), "{shown}");
}

#[test]
fn a_killed_private_run_ends_with_the_same_bytes_and_so_does_one_on_a_single_thread() {
    let folder = TempDir::new().expect("a folder");
    let adaptive = [
        "model=deq-mlp",
        "model.hidden=16",
        "plan.sampling.poisson=true",
        "plan.sampling.fraction=0.05",
        "plan.privacy.epsilon=8",
        "plan.privacy.clip.adaptive.initial=0.2",
        "plan.privacy.count_noise=4",
        "plan.rounds=60",
        "engine.checkpoint_every=1",
    ];
    let whole = run(&folder, "whole", &adaptive);
    let killed = half_done_of(&folder, "killed", &adaptive);
    succeed(fedeq(&folder).args(["resume", "killed", "--quiet"]));
    assert_same_files(&whole, &killed, "killed");
    let alone = run(&folder, "alone", &[&adaptive[..], &["engine.workers=1"]].concat());
    assert_eq!(fs::read(whole.join("rounds.jsonl")).expect("there"), fs::read(alone.join("rounds.jsonl")).expect("there"));
    let lines = rounds(&whole);
    let empty = lines.iter().filter(|line| line["cohort"].as_array().is_some_and(Vec::is_empty)).count();
    assert!(empty > 0 && empty < lines.len(), "a coin of 0.05 leaves some rounds without clients: {empty}");
    let clip = |line: &Value| line["privacy"]["clip"].as_f64().expect("told");
    assert!(clip(&lines[0]) == 0.2 && clip(&lines[59]) != 0.2, "the bound adapts");
    assert!(lines[59]["privacy"]["epsilon"].as_f64().expect("told") <= 8.0);
}

#[test]
fn a_budget_ends_training_cleanly_before_it_would_be_exceeded() {
    let folder = TempDir::new().expect("a folder");
    let path = run(&folder, "short", &settings(&["plan.rounds=500", "plan.privacy.budget=12", "plan.evaluate_every=0"]));
    let (lines, summary) = (rounds(&path), json(&path.join("summary.json")));
    let spent = summary["privacy"]["epsilon"].as_f64().expect("told");
    assert!(lines.len() < 500 && spent <= 12.0, "{} rounds, {spent}", lines.len());
    assert_eq!(summary["rounds"].as_u64(), Some(lines.len() as u64));
    assert_eq!(summary["evaluation"]["round"].as_u64(), Some(lines.len() as u64), "it is evaluated at its end");
    // Finished is finished.
    let again = succeed(fedeq(&folder).args(["resume", "short"]));
    assert!(rounds(&path).len() == lines.len(), "{}", String::from_utf8_lossy(&again.stderr));
}

#[test]
fn what_the_mechanism_does_not_cover_is_refused_before_anything_is_written() {
    let folder = TempDir::new().expect("a folder");
    let cases: [(&[&str], &str); 6] = [
        (&["model=deq-resnet-xs", "plan.privacy.epsilon=8"], "batch normalisation"),
        (&["model=mlp", "plan.privacy.epsilon=8", "plan.privacy.delta=0.2"], "plan.privacy.delta"),
        (&["model=mlp", "plan.privacy.clip.fixed=1"], "how much noise"),
        (&["model=mlp", "plan.privacy.epsilon=8", "plan.patience=2", "data.split.validation=0.2"], "`plan.patience`"),
        (&["model=mlp", "method=fedavg", "plan.privacy.epsilon=8"], "method.weighting"),
        (
            &[
                "method=fedavg",
                "method.weighting=uniform",
                "model=deq-mlp",
                "plan.privacy.epsilon=8",
                "training.warm_start.by-sample.lasting=true",
            ],
            "training.warm_start.by-sample.lasting",
        ),
    ];
    for (settings, named) in cases {
        let (error, _) = refusal(&mut run_command(&folder, "refused", settings), 2);
        assert!(error.contains(named), "{error}");
        assert!(!folder.path().join("refused").exists());
    }
    let settings = ["plan.privacy.epsilon=8", "plan.privacy.noise=clients", "plan.privacy.clip.adaptive.initial=0.1"];
    let arguments = ["init-federation", "--out", "app", "--set", "model=mlp"];
    let (error, hint) = refusal(fedeq(&folder).args(arguments).args(settings.iter().flat_map(|setting| ["--set", setting])), 2);
    assert!(error.contains("nodes are not told the bound") && hint.contains("plan.privacy.clip.fixed"), "{error}; {hint}");
}

/// Noise by clients under their masks: the account is that of the Gaussian mechanism, the noise at least what it counts on, and a run that was killed gives the same bytes.
#[test]
fn a_private_sum_in_secret_has_the_account_that_was_promised() {
    const SECRET: [&str; 9] = [
        "model=deq-mlp",
        "model.hidden=16",
        "model.dense=8",
        "plan.sampling.fraction=0.2",
        "plan.privacy.noise_multiplier=0.8",
        "plan.privacy.clip.fixed=0.5",
        "plan.privacy.noise=clients",
        "plan.privacy.dropouts=0.2",
        "plan.secure_aggregation.precision_bits=20",
    ];
    let folder = TempDir::new().expect("a folder");
    let path = run(&folder, "secret", &[&SECRET[..], &["plan.rounds=4"]].concat());
    let summary = json(&path.join("summary.json"));
    let clients = summary["clients"].as_u64().expect("a number") as f64;
    let accountant = Accountant::new(Drawn::FixedSize(1.0), 0.8);
    for (round, line) in (1..).zip(rounds(&path)) {
        let cohort = line["cohort"].as_array().expect("clients").len() as f64;
        let privacy = |name: &str| line["privacy"][name].as_f64().expect("told");
        assert!((privacy("epsilon") - accountant.epsilon(round, 0.1 / clients)).abs() < 1e-9, "{line}");
        // Nobody dropped out: the noise of all is more than that of as many as are counted on, and rounded up to whole steps.
        let noise = 0.8 * 0.5 / 0.8f64.sqrt() / cohort;
        assert!(privacy("deviation") >= noise && privacy("deviation") < 1.000_01 * noise, "{line} {noise}");
        assert!(line["clipped"].is_u64(), "{line}");
    }
    assert!(told(&folder, "secret").contains("private at the level of clients"));
    let again = run(&folder, "again", &[&SECRET[..], &["plan.rounds=4", "engine.workers=1"]].concat());
    assert_eq!(fs::read(path.join("rounds.jsonl")).expect("there"), fs::read(again.join("rounds.jsonl")).expect("there"));
}
