//! No number in an experiment, however absurd, ends the program otherwise than with a sentence.
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use fedeq_core::Method;
use fedeq_run::experiment::{Experiment, Override};
use fedeq_run::run::{Silent, launch};
use tempfile::TempDir;
use toml::{Table, Value};

const INTEGERS: [i64; 7] = [0, 1, -1, 1 << 31, 1 << 53, i64::MAX, i64::MIN];
const FLOATS: [f64; 7] = [1e308, -1e308, 1e-308, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

/// Settings that are left out by default, each with an ordinary number.
const OPTIONAL: [&str; 43] = [
    "data.copies=1",
    "data.limit.train=4",
    "data.limit.validation=4",
    "data.limit.test=4",
    "data.unseen.count=1",
    "data.unseen.fraction=0.1",
    "data.split.test=0.5",
    "training.personal_learning_rate=0.1",
    "training.projection.ball=0.9",
    "training.projection.sphere=0.9",
    "training.warm_start.by-sample.capacity=100",
    "training.watch_fixed_points.samples=5",
    "training.watch_fixed_points.starts=3",
    "plan.aggregation.rule.trimmed-mean.share=0.1",
    "plan.aggregation.rule.geometric-median.smoothing=0.001",
    "plan.aggregation.rule.geometric-median.iterations=5",
    "plan.aggregation.rule.multi-krum.liars=0.1",
    "plan.aggregation.clip.fixed=1",
    "plan.aggregation.clip.adaptive.quantile=0.5",
    "plan.aggregation.clip.adaptive.rate=0.2",
    "plan.aggregation.clip.adaptive.initial=1",
    "plan.aggregation.cap=0.5",
    "engine.workers=1",
    "plan.compression.up.top-k=0.1",
    "plan.compression.down.low-rank=2",
    "plan.secure_aggregation.clip=0.5",
    "plan.secure_aggregation.precision_bits=12",
    "method.dual.constant=0.1",
    "method.dual.uniform=0.1",
    "method.balance.ratio=10",
    "method.balance.factor=2",
    "plan.privacy.epsilon=8",
    "plan.privacy.noise_multiplier=1",
    "model.hidden=8",
    "model.equilibrium.solver.fixed-point.damping=0.1",
    "model.equilibrium.solver.anderson.ridge.absolute=0.1",
    "model.equilibrium.solver.anderson.restart=3",
    "model.equilibrium.solver.broyden.memory=3",
    "model.equilibrium.adjoint.phantom.steps=3",
    "model.equilibrium.adjoint.phantom.damping=0.1",
    "model.equilibrium.adjoint.implicit.solver.gmres.memory=3",
    "model.equilibrium.adjoint.implicit.solver.broyden.memory=3",
    "model.equilibrium.adjoint.implicit.stop.max_steps=3",
];

/// Little of everything, so that what is accepted can be carried out.
const SMALL: [&str; 8] = [
    "model=deq-mlp",
    "model.hidden=8",
    "model.dense=8",
    "data.limit={ train = 4, test = 2 }",
    "plan.rounds=1",
    "training.epochs=1",
    "training.personal_epochs=1",
    "engine.workers=1",
];

fn wishes(settings: &[&str]) -> Vec<Override> {
    settings.iter().map(|text| text.parse().expect("a setting")).collect()
}

fn read(settings: &[&str]) -> Experiment {
    Experiment::read(None, &wishes(settings)).unwrap_or_else(|error| panic!("{settings:?}: {error}"))
}

/// The paths of all numbers below some section; those in lists are in the place of the whole list.
fn numbers(table: &Table, prefix: &str) -> Vec<String> {
    let below = |(key, value): (&String, &Value)| {
        let path = if prefix.is_empty() { key.clone() } else { format!("{prefix}.{key}") };
        match value {
            Value::Table(inner) => numbers(inner, &path),
            Value::Integer(_) | Value::Float(_) => vec![path],
            _ => Vec::new(),
        }
    };
    table.iter().flat_map(below).collect()
}

fn every_value() -> impl Iterator<Item = Value> {
    INTEGERS.into_iter().map(Value::Integer).chain(FLOATS.into_iter().map(Value::Float))
}

/// Prepares an experiment with one number replaced, and carries it out if it is accepted and the number is large: it must come to an end, good or bad.
fn attempt(settings: &[&str], key: &str, value: &Value, folder: &Path) {
    let attempted = || {
        let all = [wishes(settings), vec![Override::new(key, value.clone())]].concat();
        let Ok(experiment) = Experiment::read(None, &all) else { return };
        let is_large = value.as_integer().is_some_and(|value| value > 1);
        if experiment.prepare().is_ok() && is_large {
            let out = folder.join("run");
            let _ = launch(&experiment, &out, &mut Silent, &|| false);
            let _ = fs::remove_dir_all(out);
        }
    };
    assert!(catch_unwind(AssertUnwindSafe(attempted)).is_ok(), "{settings:?} with `{key}={value}` panicked");
}

/// Tries every value for all numbers of an experiment whose paths begin with a section.
fn walk(settings: &[&str], sections: &[&str]) {
    let folder = TempDir::new().expect("a folder");
    let table = Table::try_from(read(settings)).expect("a table");
    let keys: Vec<String> =
        numbers(&table, "").into_iter().filter(|key| sections.iter().any(|section| key.starts_with(section))).collect();
    assert!(!keys.is_empty() || sections != ["data."], "{settings:?} has numbers");
    for key in &keys {
        every_value().for_each(|value| attempt(settings, key, &value, folder.path()));
    }
}

/// What two clients said.
fn text_in(folder: &Path) -> std::path::PathBuf {
    let file = folder.join("mine.jsonl");
    let line = |client: &str, text: &str| format!("{{\"client\": \"{client}\", \"text\": \"{text}\"}}\n");
    fs::write(&file, line("a", "to be or not to be") + &line("b", "that is the question")).expect("written");
    file
}

#[test]
fn every_number_of_an_ordinary_experiment() {
    walk(&SMALL, &["seed", "plan.", "training.", "engine.", "data.", "method.", "model."]);
}

#[test]
fn every_number_that_is_left_out_by_default() {
    let folder = TempDir::new().expect("a folder");
    for setting in OPTIONAL {
        let (key, _) = setting.split_once('=').expect("a value");
        let is_other = |small: &&str| {
            let known = small.split_once('=').expect("a value").0;
            known == "model" || (known != key && !key.starts_with(&format!("{known}.")))
        };
        let kept: Vec<&str> = SMALL.iter().copied().filter(is_other).collect();
        read(&[&kept[..], &[setting]].concat());
        every_value().for_each(|value| attempt(&kept, key, &value, folder.path()));
    }
    let asynchronous = [&SMALL[..], &["method.server_step=consensus", "plan.asynchronous={}"]].concat();
    for key in ["plan.asynchronous.slowest", "plan.asynchronous.max_staleness"] {
        every_value().for_each(|value| attempt(&asynchronous, key, &value, folder.path()));
    }
    let compressed = [&SMALL[..], &["plan.compression.down=int4"]].concat();
    every_value().for_each(|value| attempt(&compressed, "plan.compression.keep_rounds", &value, folder.path()));
}

#[test]
fn every_number_of_every_method() {
    for method in Method::NAMES {
        let choice = format!("method={method}");
        let mut settings = SMALL.to_vec();
        settings.push(&choice);
        walk(&settings, &["method."]);
    }
    let folder = TempDir::new().expect("a folder");
    let tuned = [&SMALL[..], &["method=fedavg-ft"]].concat();
    for key in ["method.tuning.from-share", "method.tuning.after.epochs"] {
        every_value().for_each(|value| attempt(&tuned, key, &value, folder.path()));
    }
}

#[test]
fn every_number_of_every_kind_of_model() {
    let folder = TempDir::new().expect("a folder");
    let text = format!("data.folder={}", text_in(folder.path()).display());
    let (all, limit) = ("plan.sampling.fraction=0.5", "data.limit={ train = 1, test = 1 }");
    // One of every family: the others have the same settings.
    for model in [
        "linear",
        "mlp",
        "deq-mlp",
        "deq-resnet-xs",
        "tied-resnet-xs",
        "untied-resnet-xs",
        "resnet-xs",
        "deq-transformer",
        "transformer-4",
    ] {
        let choice = format!("model={model}");
        let data = if model.contains("transformer") { text.as_str() } else { "data=digits" };
        walk(&[data, &choice, all, limit, "plan.rounds=1", "training.epochs=1", "training.personal_epochs=1"], &["model."]);
    }
    let error = |settings: &[&str]| read(settings).prepare().err().map(|error| error.to_string()).unwrap_or_default();
    let wide = format!("model.hidden={:?}", [16_384; 64]);
    assert!(error(&["model=mlp", &wide]).contains("parameters"), "64 GB are not asked for");
    assert!(error(&["model=deq-mlp", "model.hidden=16384"]).contains("parameters"));
}

#[test]
fn every_number_of_every_source_and_partition() {
    let folder = TempDir::new().expect("a folder");
    let (table, text) = (folder.path().join("mine.csv"), text_in(folder.path()));
    let row = |index: usize| format!("c{},{},{index},{}\n", index % 3, index % 2, index * 7 % 11);
    fs::write(&table, format!("client,label,a,b\n{}", (0..40).map(row).collect::<String>())).expect("written");
    let (table, text) = (format!("data.folder={}", table.display()), format!("data.folder={}", text.display()));
    let all = "plan.sampling.fraction=1";
    walk(&[&table, "model=mlp", "model.hidden=[8]", all], &["data."]);
    walk(&[&text, "model=transformer-4", all], &["data."]);
    walk(&["data=synthetic", "model=mlp", "model.hidden=[8]"], &["data."]);
    walk(&["data=images"], &["data."]);
    for rule in ["natural", "label-shards", "distinct-labels", "dirichlet", "iid", "own"] {
        let (source, rule) = (if rule == "natural" { "data=synthetic" } else { "data=digits" }, format!("data.partition={rule}"));
        walk(
            &[source, &rule, "model=mlp", "model.hidden=[8]", "data.limit={ train = 4, test = 2 }", "plan.rounds=1"],
            &["data.partition."],
        );
    }
}
