//! Numbers of a table reach a model in one scale, in training and ever after.
mod run_support;

use std::fs;
use std::path::Path;

use fedeq_data::Samples;
use fedeq_run::experiment::{Experiment, Override};
use run_support::{assert_same_files, fedeq, half_done_of, json, refusal, run, run_command, succeed};
use tempfile::TempDir;

/// Four features: two that tell the class, one of another unit, and one that is always the same.
fn table(rows: usize) -> String {
    let row = |index: usize| {
        let class = index / 3 % 2;
        let (noise, other) = (index * 37 % 41, index * 53 % 97);
        format!(
            "ward-{},{},{},{},{},255\n",
            index % 3,
            ["well", "ill"][class],
            class * 200 + noise,
            255 - class * 180 - noise,
            other * 1000
        )
    };
    format!("client,label,a,b,c,d\n{}", (0..rows).map(row).collect::<String>())
}

const SETTINGS: [&str; 3] = ["plan.sampling.fraction=1", "data.unseen={ count = 1 }", "plan.rounds=6"];

fn folder() -> TempDir {
    let folder = TempDir::new().expect("a folder");
    fs::write(folder.path().join("mine.csv"), table(150)).expect("written");
    folder
}

/// Trains, and gives what was said meanwhile.
fn train(folder: &TempDir, out: &str, settings: &[&str]) -> String {
    let mut command = run_command(folder, out, &[&SETTINGS[..], settings].concat());
    let output = succeed(command.args(["--data", "mine.csv"]));
    String::from_utf8(output.stderr).expect("UTF-8")
}

#[test]
fn features_are_standardised_and_their_ranges_told() {
    let folder = folder();
    let said = train(&folder, "own", &["training.learning_rate=0.05", "training.epochs=5"]);
    let scaling = json(&folder.path().join("own/scaling.json"));
    assert!(
        said.contains("4 features between 0 and 96000; standardised with the mean and deviation of 80 training samples"),
        "{said}"
    );
    assert_eq!((&scaling["mean"][3], &scaling["deviation"][3]), (&255.0.into(), &1.0.into()), "a constant column becomes 0");
    let accuracy = json(&folder.path().join("own/summary.json"))["evaluation"]["local"]["mean"].as_f64().expect("a number");
    assert!(accuracy > 0.9, "{accuracy}");
}

#[test]
fn the_statistics_are_those_of_the_training_samples_of_those_who_take_part() {
    let folder = folder();
    let read = |settings: &[&str]| {
        let path = folder.path().join("mine.csv");
        let wishes: Vec<Override> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        let wishes = [wishes, vec![Override::new("data.folder", path.display().to_string())]].concat();
        Experiment::read(None, &wishes).expect("sound").prepare().expect("sound")
    };
    let settings = ["plan.sampling.fraction=1", "data.unseen={ count = 1 }"];
    let (scaled, raw) = (read(&settings), read(&[&settings[..], &["data.source.scale=none"]].concat()));
    let (Samples::Vectors(scaled_rows), Samples::Vectors(rows)) = (&scaled.dataset.samples, &raw.dataset.samples) else {
        panic!("vectors")
    };
    let trained: Vec<usize> =
        raw.splits.clients.iter().flat_map(|client| client.train.iter().map(|&index| index as usize)).collect();
    for column in 0..3 {
        let of = |values: &[f32]| trained.iter().map(|row| f64::from(values[row * 4 + column])).collect::<Vec<f64>>();
        let mean = of(&rows.values).iter().sum::<f64>() / trained.len() as f64;
        let deviation = (of(&rows.values).iter().map(|value| (value - mean).powi(2)).sum::<f64>() / trained.len() as f64).sqrt();
        for (scaled, raw) in scaled_rows.values.iter().skip(column).step_by(4).zip(rows.values.iter().skip(column).step_by(4)) {
            let expected = (f64::from(*raw) - mean) / deviation;
            assert!((f64::from(*scaled) - expected).abs() < 1e-4, "{scaled} {expected}");
        }
    }
    assert!(scaled_rows.values.iter().skip(3).step_by(4).all(|&value| value == 0.0));
    assert!(raw.scaling.is_none() && scaled.scaling.is_some());
}

#[test]
fn scaling_can_be_switched_off_and_is_warned_about() {
    let folder = folder();
    let said =
        train(&folder, "raw", &["data.source.scale=none", "training.learning_rate=1e-20", "method=fedrep", "model=linear"]);
    assert!(said.contains("4 features between 0 and 96000; used as they are, which is far from 1"), "{said}");
    assert!(!folder.path().join("raw/scaling.json").exists());
    let (error, _) = refusal(&mut run_command(&folder, "digits", &["data.source.scale=none"]), 2);
    assert_eq!(error, "there is no key `data.source.scale` where `data.source` is `digits`");
}

#[test]
fn a_run_keeps_its_scale_when_its_data_changes() {
    let folder = folder();
    train(&folder, "own", &[]);
    let predict = |input: &str| {
        let output = succeed(fedeq(&folder).args(["predict", "own", "--client", "ward-1", "--json", "--input", input]));
        String::from_utf8(output.stdout).expect("UTF-8")
    };
    fs::write(folder.path().join("asked.csv"), table(9)).expect("written");
    let before = predict("asked.csv");
    // The first samples of the run's own data, brought as a file, are answered like these samples.
    let own = succeed(fedeq(&folder).args(["predict", "own", "--client", "ward-1", "--json", "--samples", "0..9"]));
    let probabilities = |lines: &str| -> Vec<serde_json::Value> {
        lines
            .lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["probabilities"].clone())
            .collect()
    };
    assert_eq!(probabilities(&before), probabilities(&String::from_utf8(own.stdout).expect("UTF-8")));
    // The same rows in other units would give other statistics; the run goes on with its own.
    let doubled = table(150).replace(",255\n", ",510\n");
    fs::write(folder.path().join("mine.csv"), doubled).expect("written");
    assert_eq!(predict("asked.csv"), before);
    succeed(fedeq(&folder).args(["export", "own", "--out", "models"]));
    let (export, scaling) = (json(&folder.path().join("models/export.json")), json(&folder.path().join("own/scaling.json")));
    assert_eq!(export["scaling"]["white"], 1);
    let first = |value: &serde_json::Value| value["mean"][0].as_f64().expect("a number");
    assert!((first(&export["scaling"]) - first(&scaling)).abs() < 1e-3);
}

#[test]
fn a_resumed_run_ends_with_the_same_bytes_and_one_without_its_scale_is_refused() {
    let folder = folder();
    let settings = [&SETTINGS[..], &["plan.rounds=40", "data.folder=mine.csv"]].concat();
    let whole = run(&folder, "whole", &settings);
    let half = half_done_of(&folder, "half", &settings);
    succeed(fedeq(&folder).args(["resume", "half"]));
    assert_same_files(&whole, &half, "resumed");
    fs::remove_file(half.join("scaling.json")).expect("removed");
    let (error, _) = refusal(fedeq(&folder).args(["evaluate", "half"]), 2);
    assert!(error.contains("scaling.json"), "{error}");
}

#[test]
fn a_run_from_before_there_was_scaling_is_used_without() {
    let folder = folder();
    train(&folder, "old", &["data.source.scale=none", "training.learning_rate=1e-20", "method=fedrep", "model=linear"]);
    let file = folder.path().join("old/experiment.toml");
    let text = fs::read_to_string(&file).expect("readable");
    fs::write(&file, text.replace("scale = \"none\"\n", "")).expect("written");
    let experiment = Experiment::from_resolved(&fs::read_to_string(&file).expect("readable")).expect("an experiment of then");
    assert!(experiment.to_toml().expect("writable").contains("scale = \"none\""));
}

#[test]
fn devices_with_their_own_rows_scale_by_the_example() {
    let folder = folder();
    let settings =
        ["data.partition.rule=own", "data.partition.clients=2", "plan.sampling.fraction=1", "method=fedrep", "model=mlp"];
    let init = |example: &Path, out: &str| {
        let mut command = fedeq(&folder);
        command.args(["init-federation", "--out", out, "--data"]).arg(example);
        settings.iter().for_each(|setting| {
            command.args(["--set", setting]);
        });
        command
    };
    let example = folder.path().join("example.csv");
    fs::write(&example, "label,a,b\nwell,0,3\nill,10,3\n").expect("written");
    let (error, hint) = refusal(&mut init(&example, "app"), 2);
    assert!(
        error.contains("feature `2` is the same in every row of the example") && hint.contains("data.source.scale=none"),
        "{error}"
    );
    assert!(!folder.path().join("app").exists());
    fs::write(&example, "label,a,b\nwell,0,1\nill,10,3\n").expect("written");
    succeed(&mut init(&example, "app"));
    let experiment = fs::read_to_string(folder.path().join("app/experiment.toml")).expect("readable");
    let device = Experiment::from_resolved(&experiment).expect("resolved");
    fs::write(folder.path().join("device.csv"), "label,a,b\nwell,100,2\nill,5,2\nwell,15,2\nill,5,2\n").expect("written");
    let prepared = device.on_another_machine(folder.path().join("device.csv")).at_client(1).prepare().expect("sound");
    let Samples::Vectors(vectors) = &prepared.dataset.samples else { panic!("vectors") };
    assert_eq!(vectors.values, [19.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0], "(a - 5) / 5 and (b - 2) / 1");
}
