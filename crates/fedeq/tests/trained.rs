//! What can be done with a finished run: re-evaluate it, ask it, and take its models elsewhere.
mod run_support;

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use fedeq_core::{Method, Params, Weights};
use fedeq_models::{ModelConfig, Task};
use run_support::{fedeq, json, refusal, run, run_command, spawn, succeed};
use serde_json::Value;
use tempfile::TempDir;

/// One finished run that the tests share: nothing they do changes it.
fn finished() -> &'static TempDir {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = TempDir::new().expect("a folder");
        run(&folder, "done", &["model=deq-mlp"]);
        folder
    })
}

fn stdout(arguments: &[&str]) -> String {
    String::from_utf8(succeed(fedeq(finished()).args(arguments)).stdout).expect("UTF-8")
}

fn refused(arguments: &[&str]) -> (String, String) {
    refusal(fedeq(finished()).args(arguments), 2)
}

#[test]
fn a_finished_run_evaluated_again_has_the_numbers_of_its_last_evaluation() {
    let found: Value = serde_json::from_str(&stdout(&["evaluate", "done", "--json"])).expect("JSON");
    let summary = json(&finished().path().join("done/summary.json"));
    assert_eq!(found["evaluation"], summary["evaluation"]);
    assert_eq!(found["unseen"], summary["unseen"]);
    assert_eq!(found["agrees"], true);
}

#[test]
fn every_method_is_evaluated_again_with_the_same_numbers() {
    let folder = TempDir::new().expect("a folder");
    for method in Method::NAMES {
        let set = format!("method={method}");
        run(&folder, method, &[&set, "model=mlp", "plan.rounds=1"]);
        let output = succeed(fedeq(&folder).args(["evaluate", method, "--json"]));
        let found: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(found["agrees"], true, "{method}");
    }
}

/// The share of a client's test samples about which `fedeq predict` is right.
fn accuracy_of(folder: &TempDir, run: &str, client: &str) -> f64 {
    let output = succeed(fedeq(folder).args(["predict", run, "--client", client, "--json"])).stdout;
    let text = String::from_utf8(output).expect("UTF-8");
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    answers.iter().filter(|answer| answer["class"] == answer["expected"]).count() as f64 / answers.len() as f64
}

#[test]
fn the_models_of_unseen_clients_are_those_they_were_evaluated_by() {
    let folder = TempDir::new().expect("a folder");
    let trained_hard = ["plan.rounds=1", "data.unseen={ count = 2 }", "training.epochs=4", "training.learning_rate=0.1"];
    for method in Method::NAMES {
        let set = format!("method={method}");
        let path = run(&folder, method, &[&[set.as_str(), "model=resnet-xs"], &trained_hard[..]].concat());
        let unseen = json(&path.join("summary.json"))["unseen"].clone();
        let roster = json(&path.join("clients.json"));
        let unseen_from = roster["training"].as_u64().expect("a count") as usize;
        let clients = roster["clients"].as_array().expect("a list").iter().skip(unseen_from);
        let names: Vec<&str> = clients.filter_map(|client| client["name"].as_str()).collect();
        assert_eq!(names.len(), 2);
        for (name, accuracy) in names.iter().zip(unseen["local"]["clients"].as_array().expect("a list")) {
            assert_eq!(Some(accuracy_of(&folder, method, name)), accuracy.as_f64(), "{method}: {name}");
        }
        // The adapted model of a new client is another one than the global model, and it is the adapted one that is written.
        if method == "fedavg" {
            assert_ne!(unseen["local"], unseen["shared"]);
            let file = |client: &str| {
                let out = format!("models-{client}");
                succeed(fedeq(&folder).args(["export", method, "--client", client, "--out", &out]));
                fs::read(folder.path().join(out).join(format!("{client}.safetensors"))).expect("a model")
            };
            let weights = |client: &str| fedeq_core::Params::from_bytes(&file(client)).expect("sound").0;
            assert!(weights(names[0]) != weights(names[1]));
        }
    }
}

#[test]
fn an_export_says_what_of_a_prediction_is_not_in_its_files() {
    let folder = TempDir::new().expect("a folder");
    run(&folder, "neighbours", &["method=knn-per", "model=mlp", "plan.rounds=1"]);
    let told = succeed(fedeq(&folder).args(["export", "neighbours", "--client", "client-03", "--out", "models"])).stderr;
    assert!(String::from_utf8_lossy(&told).contains("training samples, which vote along in their predictions, are not in them"));
    assert_eq!(json(&folder.path().join("models/export.json"))["neighbours"]["count"], 10);
    stdout(&["export", "done", "--client", "client-03", "--out", "voteless"]);
    assert!(json(&finished().path().join("voteless/export.json"))["neighbours"].is_null());
}

#[test]
fn a_run_is_searched_for_samples_with_several_fixed_points() {
    let text = stdout(&["diagnose", "done", "--client", "client-03", "--samples", "4", "--starts", "3"]);
    assert!(
        text.contains("client-03") && text.contains("of 4 samples with more than one fixed point, from 3 starts each"),
        "{text}"
    );
    let finding: Value = serde_json::from_str(&stdout(&["diagnose", "done", "--samples", "2", "--json"])).expect("JSON");
    assert_eq!((finding["starts"].as_u64(), finding["clients"].as_array().map(Vec::len)), (Some(5), Some(30)));
    assert_eq!(
        (finding["found"]["samples"].as_u64(), finding["clients"][7]["samples"].as_array().map(Vec::len)),
        (Some(60), Some(2))
    );
    let radius = finding["clients"][7]["samples"][0]["radius"].as_f64();
    assert!(radius.is_some_and(|radius| radius > 0.0 && radius < 10.0), "{radius:?}");
    assert_eq!(refused(&["diagnose", "done", "--starts", "0"]).0, "`--starts` is `0`");
    let folder = TempDir::new().expect("a folder");
    run(&folder, "explicit", &["method=fedrep", "model=mlp", "plan.rounds=1"]);
    assert_eq!(refusal(fedeq(&folder).args(["diagnose", "explicit"]), 2).0, "`mlp` solves for no fixed point");
}

#[test]
fn a_run_can_watch_its_fixed_points() {
    let folder = TempDir::new().expect("a folder");
    let watch = "training.watch_fixed_points={ samples = 2, starts = 2 }";
    let run = run(&folder, "watched", &["model=deq-mlp", watch]);
    let table = fs::read_to_string(run.join("metrics.csv")).expect("written");
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let (heading, row) = (lines.next().expect("a heading"), lines.next().expect("a row"));
    let number =
        |name: &str| row[heading.iter().position(|column| *column == name).expect(name)].parse::<f64>().expect("a number");
    assert!((0.0..=1.0).contains(&number("fixed_points_several")) && number("spectral_radius") > 0.0);
    assert!(number("spectral_radius_largest") >= number("spectral_radius"));
    let summary = json(&run.join("summary.json"));
    assert_eq!(summary["evaluation"]["fixed_points"]["samples"], 2 * 28);
    let evaluation = succeed(fedeq(&folder).args(["evaluate", "watched", "--json"])).stdout;
    assert_eq!(serde_json::from_slice::<Value>(&evaluation).expect("JSON")["agrees"], true);
    let unwatched = run_support::run(&folder, "unwatched", &["model=deq-mlp"]);
    let rounds = |run: &Path| fs::read(run.join("rounds.jsonl")).expect("written");
    assert!(rounds(&run) == rounds(&unwatched), "watching changes nothing");
    let (error, _) = refusal(&mut run_command(&folder, "refused", &["model=mlp", watch]), 2);
    assert_eq!(error, "`training.watch_fixed_points` does not go with `mlp`, which solves for no fixed point");
}

#[test]
fn using_a_run_changes_nothing_in_its_folder() {
    let names = |folder: &Path| {
        let mut names: Vec<_> = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("readable").path()).collect();
        names.sort();
        names
    };
    let run = finished().path().join("done");
    let (before, summary) = (names(&run), fs::read(run.join("summary.json")).expect("readable"));
    stdout(&["evaluate", "done"]);
    stdout(&["predict", "done", "--client", "client-00", "--samples", "0..2"]);
    assert_eq!((before, summary), (names(&run), fs::read(run.join("summary.json")).expect("readable")));
}

#[test]
fn an_unfinished_run_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let mut child = spawn(&mut run_command(&folder, "half", &["plan.rounds=100000", "model=mlp"]));
    child.await_checkpoint(&folder.path().join("half"), 0);
    child.kill_now();
    let (error, hint) = refusal(fedeq(&folder).args(["evaluate", "half"]), 2);
    assert_eq!((error.as_str(), hint.as_str()), ("`half` is not finished", "finish it with `fedeq resume half`"));
    let (error, _) = refusal(fedeq(&folder).args(["evaluate", "nowhere"]), 2);
    assert!(error.contains("`nowhere` is not a run folder"));
}

#[test]
fn an_exported_model_is_a_whole_network_again() {
    let out = finished().path().join("models");
    stdout(&["export", "done", "--out", "models"]);
    let export = json(&out.join("export.json"));
    assert_eq!(export["clients"].as_array().map(Vec::len), Some(30));
    let config: ModelConfig = serde_json::from_value(export["model"].clone()).expect("a configuration");
    let task: Task = serde_json::from_value(export["task"].clone()).expect("a task");
    let expected = Weights::initial(&config.graph(&task).expect("a network"), 0);
    let file = out.join(export["clients"][7]["file"].as_str().expect("a name"));
    let (saved, metadata) = Params::from_bytes(&fs::read(&file).expect("readable")).expect("a sound file");
    let part = |of: &Params| saved.filter(|name| of.get(name).is_some());
    let weights = Weights { params: part(&expected.params), statistics: part(&expected.statistics) };
    weights.ensure_like(&expected).expect("every parameter and every statistic of the network");
    assert_eq!(saved.count(), weights.params.count() + weights.statistics.count());
    assert_eq!(metadata["client"], export["clients"][7]["name"].as_str().expect("a name"));
    let network: serde_json::Value = serde_json::from_str(&metadata["network"]).expect("the network as data");
    assert_eq!(network["task"], export["task"]);
    let scaling: serde_json::Value = serde_json::from_str(&metadata["scaling"]).expect("how inputs are scaled");
    assert_eq!(scaling, export["scaling"]);
    let personal = export["personal"].as_array().expect("a list");
    assert!(!personal.is_empty() && personal.len() < weights.params.iter().count());
    let (error, _) = refused(&["export", "done", "--out", "models"]);
    assert_eq!(error, "`models` is not empty");
}

#[test]
fn a_projected_cell_stays_in_its_ball() {
    let folder = TempDir::new().expect("a folder");
    let settings = [
        "model=deq-mlp",
        "model.hidden=32",
        "training.learning_rate=0.5",
        "data.unseen={ count = 0 }",
        "training.warm_start=off",
    ];
    let largest_row_sum = |out: &str, more: &[&str]| {
        run(&folder, out, &[&settings[..], more].concat());
        let state =
            fs::read_dir(folder.path().join(out).join("clients")).expect("a folder").next().expect("a state").expect("readable");
        let (params, _) = fedeq_core::Params::from_bytes(&fs::read(state.path()).expect("readable")).expect("sound");
        let stored = &params.get("own/params/cell.b.weight").expect("a matrix").values;
        // Stored as [input, output]: what produces output unit `row` stands in a column.
        let sum = |row: usize| stored.iter().skip(row).step_by(32).map(|value| f64::from(value.abs())).sum::<f64>();
        (0..32).map(sum).fold(0.0, f64::max)
    };
    assert!(largest_row_sum("free", &[]) > 2.0);
    let held = largest_row_sum("held", &["training.projection={ ball = 0.5 }"]);
    assert!((0.49..0.5001).contains(&held), "{held}");
}

#[test]
fn one_client_can_be_exported_alone() {
    stdout(&["export", "done", "--client", "client-03", "--out", "alone"]);
    let names: Vec<_> = fs::read_dir(finished().path().join("alone")).expect("a folder").flatten().collect();
    assert_eq!(names.len(), 2);
    let (error, hint) = refused(&["export", "done", "--client", "client-3", "--out", "other"]);
    assert_eq!(error, "there is no client `client-3` in this run");
    assert!(hint.starts_with("did you mean `client-"), "{hint}");
}

#[test]
fn answers_are_probabilities_and_say_what_was_expected() {
    let lines = stdout(&["predict", "done", "--client", "client-00", "--samples", "0..12", "--json"]);
    let answers: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(answers.len(), 12);
    for answer in &answers {
        let all: Vec<f64> = answer["probabilities"].as_array().expect("a list").iter().filter_map(Value::as_f64).collect();
        let largest = all.iter().copied().fold(0.0, f64::max);
        assert!((all.iter().sum::<f64>() - 1.0).abs() < 1e-5 && answer["probability"] == largest);
        assert_eq!(answer["class"], all.iter().position(|value| *value == largest).expect("one is").to_string());
    }
    // The first ten samples of the set are the digits in order.
    let expected: Vec<&str> = answers.iter().take(10).filter_map(|answer| answer["expected"].as_str()).collect();
    assert_eq!(expected, ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"]);
}

#[test]
fn a_picture_and_its_pixels_in_a_table_get_the_same_answer() {
    let folder = finished().path();
    // 8 x 8 pixels of 0 or full ink: the same number whether 255 or 16 stands for 1.
    let ink = |at: u32| at % 8 == 3 || at % 8 == 4;
    let picture = image::GrayImage::from_fn(8, 8, |x, _| image::Luma([if ink(x) { 255 } else { 0 }]));
    picture.save(folder.join("one.png")).expect("written");
    let cells = |cell: &dyn Fn(u32) -> String| (0..64).map(cell).collect::<Vec<_>>().join(",");
    let table = format!("{}\n{}\n", cells(&|at| format!("p{at}")), cells(&|at| if ink(at) { "16" } else { "0" }.into()));
    fs::write(folder.join("one.csv"), table).expect("written");
    let answer = |file: &str| {
        let line = stdout(&["predict", "done", "--client", "client-00", "--input", file, "--json"]);
        serde_json::from_str::<Value>(&line).expect("JSON")["probabilities"].clone()
    };
    assert_eq!(answer("one.png"), answer("one.csv"));
}

#[test]
fn inputs_that_do_not_fit_are_refused() {
    fs::write(finished().path().join("narrow.csv"), "a,b\n1,2\n").expect("written");
    let ask = |more: &[&str]| refused(&[&["predict", "done", "--client", "client-00"], more].concat());
    assert_eq!(ask(&["--input", "narrow.csv"]).0, "`narrow.csv` has `2` columns of numbers, and the model takes 64");
    assert!(ask(&["--input", "nowhere.png"]).0.contains("nowhere.png"));
    assert!(ask(&["--samples", "5"]).0.contains("`5` is not a range of samples"));
    assert_eq!(ask(&["--samples", "0..4000000000"]).0, "`0..4000000000` goes beyond the 1797 samples of `digits`");
}

#[test]
fn tables_are_answered_row_by_row() {
    let folder = TempDir::new().expect("a folder");
    let row = |index: u32| {
        let (client, high) = (if index < 30 { "here" } else { "there" }, index % 2 == 1);
        let (value, label) = if high { (4.0, "high") } else { (-4.0, "low") };
        format!("{client},{},{label}\n", value + f64::from(index % 7) / 10.0)
    };
    let table: String = (0..60).map(row).collect();
    fs::write(folder.path().join("data.csv"), format!("client,value,label\n{table}")).expect("written");
    let settings = ["data=csv", "data.folder=data.csv", "data.unseen={ count = 0 }", "model=mlp", "plan.sampling.fraction=1"];
    run(&folder, "run", &[&settings[..], &["training.learning_rate=0.1", "training.epochs=5"]].concat());
    fs::write(folder.path().join("new.csv"), "value\n-5\n5\n").expect("written");
    let output = succeed(fedeq(&folder).args(["predict", "run", "--client", "there", "--input", "new.csv"])).stdout;
    let text = String::from_utf8(output).expect("UTF-8");
    let classes: Vec<Option<&str>> = text.lines().skip(1).map(|line| line.split_whitespace().nth(1)).collect();
    assert_eq!(classes, [Some("low"), Some("high")], "{text}");
}

#[test]
fn columns_of_a_table_are_found_by_their_names() {
    let folder = TempDir::new().expect("a folder");
    let row = |index: u32| {
        let (ward, sign) = (if index < 30 { "here" } else { "there" }, if index % 2 == 1 { 1.0 } else { -1.0 });
        format!("{ward},{},{},{}\n", 4.0 * sign, f64::from(index % 7) / 10.0, if sign > 0.0 { "high" } else { "low" })
    };
    let table: String = (0..60).map(row).collect();
    fs::write(folder.path().join("data.csv"), format!("ward,level,noise,outcome\n{table}")).expect("written");
    let settings = ["data=csv", "data.folder=data.csv", "data.source.client=ward", "data.source.label=outcome", "model=mlp"];
    let training = ["data.unseen={ count = 0 }", "plan.sampling.fraction=1", "training.learning_rate=0.1", "training.epochs=5"];
    run(&folder, "run", &[&settings[..], &training[..]].concat());
    let ask = |content: &str| {
        fs::write(folder.path().join("new.csv"), content).expect("written");
        let mut command = fedeq(&folder);
        command.args(["predict", "run", "--client", "there", "--input", "new.csv"]);
        command
    };
    let answers = |content: &str| String::from_utf8(succeed(&mut ask(content)).stdout).expect("UTF-8");
    let in_order = answers("level,noise\n-4,0.3\n4,0.3\n");
    assert!(in_order.contains("low") && in_order.contains("high"), "{in_order}");
    assert_eq!(in_order, answers("outcome,noise,id,level,ward\n?,0.3,1,-4,here\n?,0.3,2,4,here\n"));
    let (error, _) = refusal(&mut ask("level,nois\n-4,0.3\n"), 2);
    assert_eq!(error, "`new.csv` has no column `noise`, and the model learned from one");
}

#[test]
fn text_is_answered_with_what_comes_next() {
    let folder = TempDir::new().expect("a folder");
    let line = |client: &str| format!("{{\"client\": \"{client}\", \"text\": \"{}\"}}\n", "to be or not to be ".repeat(8));
    fs::write(folder.path().join("lines.jsonl"), line("anna") + &line("ben")).expect("written");
    let settings = ["data=text", "data.folder=lines.jsonl", "data.unseen={ count = 0 }", "model=transformer-4"];
    run(&folder, "run", &[&settings[..], &["plan.rounds=1", "plan.sampling.fraction=1"]].concat());
    fs::write(folder.path().join("ask.jsonl"), "{\"text\": \"to b\"}\n\n{\"text\": \"to\"}\n").expect("written");
    let output = succeed(fedeq(&folder).args(["predict", "run", "--client", "ben", "--input", "ask.jsonl", "--json"])).stdout;
    let text = String::from_utf8(output).expect("UTF-8");
    let answers: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!((answers[0]["input"].as_str(), answers[1]["input"].as_str()), (Some("ask.jsonl:1"), Some("ask.jsonl:3")));
    assert!(answers.iter().all(|answer| answer["probabilities"].as_array().map(Vec::len) == Some(90)));
}
