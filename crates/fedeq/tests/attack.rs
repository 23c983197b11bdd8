//! Runs in which some clients lie: who they are is told, honest clients are evaluated, and all of it is the same to the byte.
mod run_support;

use std::fs;
use std::path::Path;

use run_support::{assert_same_files, fedeq, json, refusal, run, run_command, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// Ten of 28 clients a round; two of the 28 lie.
const MANY: [&str; 4] = ["model=mlp", "plan.sampling.fraction=0.36", "attack.share=0.1", "plan.evaluate_every=3"];

fn settings<'a>(more: &[&'a str]) -> Vec<&'a str> {
    [&MANY[..], more].concat()
}

fn rounds(run: &Path) -> Vec<Value> {
    let text = fs::read_to_string(run.join("rounds.jsonl")).expect("written");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

#[test]
fn liars_are_named_and_honest_clients_evaluated() {
    let folder = TempDir::new().expect("a folder");
    let output = succeed(&mut run_command(&folder, "one", &settings(&["attack=noise", "plan.aggregation.rule=multi-krum"])));
    let (text, run) = (String::from_utf8(output.stdout).expect("UTF-8"), folder.path().join("one"));
    let summary = json(&run.join("summary.json"));
    let liars: Vec<u64> = summary["attack"]["liars"].as_array().expect("a list").iter().filter_map(Value::as_u64).collect();
    assert_eq!((summary["attack"]["kind"].as_str(), liars.len()), (Some("noise"), 2), "a tenth of 28");
    assert!(text.contains("mean over 26 honest clients") && text.contains("noise by "), "{text}");
    for view in ["local", "shared"] {
        let clients = summary["evaluation"][view]["clients"].as_array().expect("a list");
        let unknown: Vec<u64> = (0..).zip(clients).filter(|(_, accuracy)| accuracy.is_null()).map(|(client, _)| client).collect();
        assert_eq!(unknown, liars, "{view}");
    }
    let mut seen = 0;
    for round in rounds(&run) {
        let distances = round["distances"].as_array().expect("a list").clone();
        assert_eq!(distances.len(), 10);
        for one in distances.iter().filter(|one| liars.contains(&one["client"].as_u64().expect("a number"))) {
            assert!(one["outlier"] == true && one["treatment"] == "left-out", "{one}");
            seen += 1;
        }
        let left_out = distances.iter().filter(|one| one["treatment"] == "left-out").count();
        assert_eq!(left_out, 2, "a fifth of ten");
    }
    assert!(seen > 0, "one of them took part");
    let again: Value = serde_json::from_slice(&succeed(fedeq(&folder).args(["evaluate", "one", "--json"])).stdout).expect("JSON");
    assert_eq!(again["agrees"], true);
    let report = String::from_utf8(succeed(fedeq(&folder).args(["report", "one", "--format", "md"])).stdout).expect("UTF-8");
    assert!(report.contains("10.0 % of the clients are malicious (`noise`)") && report.contains("| malicious |"), "{report}");
    succeed(fedeq(&folder).args(["report", "one", "--out", "page.html"]));
    let page = fs::read_to_string(folder.path().join("page.html")).expect("written");
    assert!(page.contains("clients that are far from the others most often") && page.contains("\"distance_largest\":["));
}

#[test]
fn robust_runs_are_the_same_to_the_byte_for_1_and_3_workers() {
    let folder = TempDir::new().expect("a folder");
    for (kind, rule) in [("label-flip", "trimmed-mean"), ("model-replacement", "geometric-median"), ("sign-flip", "krum")] {
        let (attack, rule) = (format!("attack={kind}"), format!("plan.aggregation.rule={rule}"));
        let all = settings(&[&attack, &rule, "plan.aggregation.clip=adaptive"]);
        for workers in ["1", "3"] {
            succeed(run_command(&folder, &format!("{kind}-{workers}"), &all).args(["--workers", workers]));
        }
        let at = |workers: &str| folder.path().join(format!("{kind}-{workers}"));
        assert_same_files(&at("1"), &at("3"), kind);
        assert!(rounds(&at("1")).iter().all(|round| round["bound"].as_f64() > Some(0.0)), "{kind}");
    }
}

#[test]
fn nothing_of_it_is_written_where_nothing_of_it_is_asked_for() {
    let folder = TempDir::new().expect("a folder");
    let run = run(&folder, "plain", &["model=mlp"]);
    let experiment = fs::read_to_string(run.join("experiment.toml")).expect("written");
    assert!(!experiment.contains("aggregation") && !experiment.contains("attack"), "{experiment}");
    assert!(json(&run.join("summary.json")).get("attack").is_none());
    assert!(rounds(&run).iter().all(|round| round.get("distances").is_none() && round.get("bound").is_none()));
}

#[test]
fn a_flower_federation_has_rules_and_no_liars_of_its_own() {
    let folder = TempDir::new().expect("a folder");
    let (error, _) = refusal(fedeq(&folder).args(["init-federation", "--out", "app", "--set", "attack=noise"]), 2);
    assert!(error.contains("`attack` is for simulations") && !folder.path().join("app").exists(), "{error}");
    succeed(fedeq(&folder).args(["init-federation", "--out", "app", "--set", "plan.aggregation.rule=median"]));
    let experiment = fs::read_to_string(folder.path().join("app/experiment.toml")).expect("written");
    assert!(experiment.contains("median") && experiment.contains("distances = true"), "{experiment}");
}

#[test]
fn a_federation_notes_who_is_far_from_the_others_unless_it_is_told_not_to_or_must_not() {
    let folder = TempDir::new().expect("a folder");
    let experiment = |name: &str, settings: &[&str]| {
        let set = settings.iter().flat_map(|setting| ["--set", setting]);
        succeed(fedeq(&folder).args(["init-federation", "--out", name, "--set", "model=deq-mlp"]).args(set));
        fs::read_to_string(folder.path().join(name).join("experiment.toml")).expect("written")
    };
    assert!(experiment("plain", &[]).contains("distances = true"));
    assert!(experiment("without", &["plan.aggregation.distances=false"]).contains("distances = false"));
    let private = ["plan.privacy.epsilon=8", "plan.privacy.clip.fixed=0.5"];
    for (name, settings) in
        [("secret", &["plan.secure_aggregation.clip=1"][..]), ("private", &private[..]), ("alone", &["method=local"][..])]
    {
        assert!(!experiment(name, settings).contains("distances"), "{name}");
    }
}

#[test]
fn in_a_federation_no_client_says_itself_how_much_it_counts_under_a_rule() {
    let folder = TempDir::new().expect("a folder");
    let init = |name: &str, settings: &[&str]| {
        let set = ["model=mlp", "plan.sampling.fraction=0.36"].iter().chain(settings).flat_map(|setting| ["--set", setting]);
        let mut command = fedeq(&folder);
        command.args(["init-federation", "--out", name, "--set", "method=fedavg"]).args(set);
        command
    };
    for rule in ["plan.aggregation.rule=geometric-median", "plan.aggregation.rule=multi-krum", "plan.aggregation.clip=adaptive"] {
        let (error, hint) = refusal(&mut init("refused", &[rule, "method.weighting=samples"]), 2);
        assert!(error.contains("one that claims enough has all the weight"), "{error}");
        assert!(hint.contains("method.weighting=uniform") && hint.contains("plan.aggregation.cap=0.1"), "{hint}");
    }
    assert!(!folder.path().join("refused").exists());
    let rule = "plan.aggregation.rule=geometric-median";
    succeed(&mut init("uniform", &[rule, "method.weighting=uniform"]));
    succeed(&mut init("capped", &[rule, "method.weighting=samples", "plan.aggregation.cap=0.2"]));
    succeed(&mut init("median", &["plan.aggregation.rule=median", "method.weighting=samples"]));
}
