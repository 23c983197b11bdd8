//! Data that a program hands over: from a file of arrays, and from memory.
mod run_support;

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use fedeq_data::source::Source;
use fedeq_data::source::arrays::{GivenArray, GivenClients, GivenLabels, GivenPart, GivenValues, write};
use fedeq_data::{Dataset, Samples};
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::predict::{PredictionInputs, classes, held, logits};
use fedeq_run::run::{FromMemory, Run, RunFolder, Silent, Trained, Which};
use run_support::{fedeq, json, refusal, succeed};
use serde_json::Value;
use tempfile::TempDir;

const SETTINGS: [&str; 6] = [
    "plan.rounds=2",
    "plan.sampling.fraction=1",
    "training.epochs=1",
    "training.personal_epochs=1",
    "plan.evaluate_every=1",
    "engine.workers=1",
];

/// Clients whose rows are far apart by class, each with three features of very different sizes.
fn rows(shift: f32) -> Dataset {
    let mut clients = GivenClients::default();
    for client in 0..4_usize {
        let values = (0..20).flat_map(|row| {
            let side = if row % 2 == 0 { 1.0 } else { -1.0 };
            [side * 1000.0 + (row * (client + 3)) as f32, side + shift, 7.0]
        });
        let x = GivenArray { shape: vec![20, 3], values: GivenValues::Floats(values.collect()) };
        let y = GivenLabels::Names((0..20).map(|row| if row % 2 == 0 { "oak" } else { "elm" }.into()).collect());
        clients.add(&format!("site {client}"), GivenPart::Train, x, y).expect("sound");
    }
    clients.into_dataset().expect("sound")
}

fn experiment(settings: &[&str], source: &str) -> Experiment {
    let data = format!("data={source}");
    let settings: Vec<Override> =
        SETTINGS.iter().chain(settings).chain([&data.as_str()]).map(|text| text.parse().expect("a setting")).collect();
    Experiment::read(None, &settings).expect("sound")
}

fn file(folder: &TempDir, name: &str, dataset: &Dataset) {
    write(dataset, &folder.path().join(name)).expect("written");
}

fn memory(dataset: Dataset) -> FromMemory {
    FromMemory { data: Some(dataset), network: None }
}

fn trained(folder: &Path) -> Trained {
    Trained::open(&RunFolder::open(folder).expect("a run"), |_| ()).expect("finished")
}

#[test]
fn a_run_learns_from_a_file_of_arrays_and_from_no_other_file_later() {
    let folder = TempDir::new().expect("a folder");
    file(&folder, "mine.safetensors", &rows(0.0));
    let mut command = fedeq(&folder);
    command.args(["run", "--data", "mine.safetensors", "--out", "first", "--set", "model=mlp", "--set", "method=fedavg"]);
    for setting in SETTINGS {
        command.args(["--set", setting]);
    }
    succeed(&mut command);
    let toml = fs::read_to_string(folder.path().join("first/experiment.toml")).expect("there");
    assert!(toml.contains("vector-arrays") && toml.contains("sha256 = "), "{toml}");
    let found: Value =
        serde_json::from_slice(&succeed(fedeq(&folder).args(["evaluate", "first", "--json"])).stdout).expect("JSON");
    assert_eq!(found["agrees"], true);
    let answers = succeed(fedeq(&folder).args(["predict", "first", "--client", "site 1", "--json"])).stdout;
    assert!(String::from_utf8(answers).expect("UTF-8").contains("\"oak\""));
    succeed(fedeq(&folder).args(["export", "first", "--out", "models"]));
    let export = json(&folder.path().join("models/export.json"));
    assert_eq!((export["classes"].as_array().map(Vec::len), export["clients"].as_array().map(Vec::len)), (Some(2), Some(4)));
    succeed(fedeq(&folder).args(["data", "inspect", "mine.safetensors"]));

    // Other data under the same name is another experiment.
    fs::rename(folder.path().join("mine.safetensors"), folder.path().join("moved.safetensors")).expect("moved");
    succeed(fedeq(&folder).args(["evaluate", "first", "--data", "moved.safetensors"]));
    file(&folder, "mine.safetensors", &rows(0.5));
    let (error, hint) = refusal(fedeq(&folder).args(["evaluate", "first"]), 2);
    assert!(error.contains("mine.safetensors") && error.contains("not the data of the experiment"), "{error}");
    assert!(hint.contains("data.source.sha256"), "{hint}");
}

#[test]
fn the_file_is_part_of_what_an_experiment_is() {
    let folder = TempDir::new().expect("a folder");
    let identity = |name: &str, dataset: &Dataset| {
        file(&folder, name, dataset);
        let place = Override::new("data.folder", folder.path().join(name).display().to_string());
        Experiment::read(None, &[place]).and_then(|experiment| experiment.identity()).expect("an identity")
    };
    let first = identity("one.safetensors", &rows(0.0));
    assert_eq!(identity("two.safetensors", &rows(0.0)), first);
    assert_ne!(identity("three.safetensors", &rows(0.5)), first);
}

#[test]
fn data_from_memory_is_kept_in_the_run_folder_and_found_wherever_that_goes() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("run");
    let experiment = experiment(&["model=mlp", "method=fedavg", "engine.checkpoint_every=1"], "vector-arrays");
    let run = Run::create_from(&experiment, &path, memory(rows(0.0))).expect("ready");
    let summary = run.train(&mut Silent, &|| false).expect("trained");
    drop(run);
    // The same from a file gives the same.
    file(&folder, "mine.safetensors", &rows(0.0));
    let place = folder.path().join("mine.safetensors");
    let mut from_file = experiment.clone();
    from_file.data.folder = place;
    let again =
        Run::create(&from_file, &folder.path().join("again")).expect("ready").train(&mut Silent, &|| false).expect("trained");
    assert_eq!(again.evaluation, summary.evaluation);

    let moved = folder.path().join("elsewhere/run");
    fs::create_dir(folder.path().join("elsewhere")).expect("writable");
    fs::rename(&path, &moved).expect("moved");
    let trained = trained(&moved);
    assert!(trained.evaluate().expect("evaluated").agrees);
    assert!(Run::resume(&RunFolder::open(&moved).expect("a run"), Which::Latest, None, |_| ()).is_ok());
}

#[test]
fn a_run_on_data_from_memory_that_was_stopped_continues_with_the_same_bytes() {
    let folder = TempDir::new().expect("a folder");
    let experiment = experiment(&["model=mlp", "method=fedrep", "engine.checkpoint_every=1"], "vector-arrays");
    let begin = |name: &str| Run::create_from(&experiment, &folder.path().join(name), memory(rows(0.0))).expect("ready");
    begin("whole").train(&mut Silent, &|| false).expect("trained");
    // Asked before every client: in the second round it is enough.
    let asked = AtomicUsize::new(0);
    let stopped = begin("stopped").train(&mut Silent, &|| asked.fetch_add(1, Ordering::Relaxed) >= 14);
    assert!(matches!(stopped, Err(fedeq_core::Error::Interrupted)), "after {asked:?} questions");
    let stopped = RunFolder::open(&folder.path().join("stopped")).expect("a run");
    assert!(stopped.summary().expect("readable").is_none());
    Run::resume(&stopped, Which::Latest, None, |_| ()).expect("ready").train(&mut Silent, &|| false).expect("trained");
    for journal in ["rounds.jsonl", "evaluations.jsonl", "metrics.csv", "scaling.json", "data.safetensors"] {
        let read = |name: &str| fs::read(folder.path().join(name).join(journal)).expect("there");
        assert_eq!(read("whole"), read("stopped"), "{journal}");
    }
}

#[test]
fn what_is_refused_leaves_no_folder_behind() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("run");
    let refused = |settings: &[&str], source: &str| {
        let error = Run::create_from(&experiment(settings, source), &path, memory(rows(0.0))).err().expect("refused");
        assert!(!path.exists());
        error.to_string()
    };
    assert!(refused(&[], "image-arrays").contains("`vector-arrays`"));
    assert!(refused(&["model=resnet-20"], "vector-arrays").contains("resnet-20"));
    assert!(refused(&["data.unseen.count=4"], "vector-arrays").contains("`4`"));
}

/// For every client: the classes that its model gives for its test samples are right as often as the run's last evaluation says.
fn assert_predictions_are_those_of_the_evaluation(folder: &Path) {
    let trained = trained(folder);
    let (prepared, summary) = (trained.prepared(), trained.summary());
    let view = prepared.experiment.method.algorithm().default_view();
    let accuracies = &summary.evaluation.quality(view).clients;
    assert_eq!(accuracies.len(), 4);
    for (client, accuracy) in accuracies.iter().enumerate() {
        let [.., test] = held(prepared, client).expect("its samples");
        let array = match test.samples {
            Samples::Images(images) => {
                let [height, width, channels] = images.shape;
                GivenArray { shape: vec![test.count, height, width, channels], values: GivenValues::Bytes(images.pixels) }
            }
            Samples::Vectors(vectors) => {
                GivenArray { shape: vec![test.count, vectors.width], values: GivenValues::Floats(vectors.values) }
            }
            Samples::Sequences(sequences) => {
                GivenArray { shape: vec![test.count, sequences.length], values: GivenValues::Bytes(sequences.symbols) }
            }
        };
        let model = trained.model(client).expect("a model");
        let questions = PredictionInputs::from_array(prepared, array).expect("like those of the run");
        let found = classes(prepared, &model, &questions).expect("answers");
        let (right, counted) = match &test.labels {
            fedeq_data::Labels::Classes { values, .. } => {
                (found.iter().zip(values).filter(|(found, value)| found == value).count(), values.len())
            }
            fedeq_data::Labels::NextSymbols(next) => {
                let counted = found.iter().zip(next).filter(|(_, next)| **next != 0);
                (counted.clone().filter(|(found, next)| **found == u16::from(**next)).count(), counted.count())
            }
        };
        assert_eq!(Some(right as f64 / counted as f64), *accuracy, "client {client}");
        let classes = prepared.network.graph().task.classes;
        assert_eq!(logits(prepared, &model, &questions).expect("numbers").len(), classes * found.len());
    }
}

#[test]
fn models_say_to_arrays_what_they_said_when_they_were_evaluated() {
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let train = |name: &str, settings: &[&str], dataset: Dataset| {
        let source = Source::of_arrays_like(&dataset.samples).name();
        let run = Run::create_from(&experiment(settings, source), &path(name), memory(dataset)).expect("ready");
        run.train(&mut Silent, &|| false).expect("trained");
        drop(run);
        assert_predictions_are_those_of_the_evaluation(&path(name));
    };
    train("rows", &["model=deq-mlp"], rows(0.0));
    train("voting", &["method=knn-per", "model=mlp"], rows(0.0));
    let mut clients = GivenClients::default();
    for client in 0..4_usize {
        let pixels = (0..20 * 36).map(|at| (at * 7 % 90 + at / 36 % 2 * 150 + client) as u8).collect();
        let x = GivenArray { shape: vec![20, 6, 6], values: GivenValues::Bytes(pixels) };
        let y = GivenArray { shape: vec![20], values: GivenValues::Integers((0..20).map(|row| row % 2 + 3).collect()) };
        clients.add(&format!("c{client}"), GivenPart::Train, x, GivenLabels::Numbers(y)).expect("sound");
    }
    train("pictures", &["model=mlp", "method=fedrep"], clients.into_dataset().expect("sound"));
    let mut clients = GivenClients::default();
    for client in 0..4_i64 {
        for part in [GivenPart::Train, GivenPart::Test] {
            let tokens = |shift: i64| (0..60).map(|at| (at + shift + client) % 5 + 1).collect();
            let [x, y] = [0, 1].map(|shift| GivenArray { shape: vec![10, 6], values: GivenValues::Integers(tokens(shift)) });
            clients.add(&format!("c{client}"), part, x, GivenLabels::Numbers(y)).expect("sound");
        }
    }
    train("tokens", &["model=transformer-4", "method=fedavg"], clients.into_dataset().expect("sound"));
    let (error, hint) = {
        fs::write(path("a.jsonl"), "{\"text\": \"a\"}\n").expect("writable");
        refusal(fedeq(&folder).args(["predict", "tokens", "--client", "c0", "--input", "a.jsonl"]), 2)
    };
    assert!(error.contains("tokens") && hint.contains("predict(x)"), "{error}: {hint}");
}
