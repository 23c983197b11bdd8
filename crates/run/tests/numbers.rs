//! No number in an experiment, however absurd, ends the program otherwise than with a sentence.
mod support;

use std::collections::BTreeSet;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Mutex;

use fedeq_core::Method;
use fedeq_models::ModelConfig;
use fedeq_run::experiment::{Accepts, Experiment, Override, SettingInfo};
use fedeq_run::run::{Silent, launch};
use tempfile::TempDir;
use toml::{Table, Value};

use support::{context, overrides};

const INTEGERS: [i64; 7] = [0, 1, -1, 1 << 31, 1 << 53, i64::MAX, i64::MIN];
const FLOATS: [f64; 7] = [1e308, -1e308, 1e-308, 0.5, f64::NAN, f64::INFINITY, f64::NEG_INFINITY];

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

fn read(settings: &[&str]) -> Experiment {
    Experiment::read(None, &overrides(settings)).unwrap_or_else(|error| panic!("{settings:?}: {error}"))
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
        let all = [overrides(settings), vec![Override::new(key, value.clone())]].concat();
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

/// The least number that a setting takes, where it is one of them.
fn least(setting: &SettingInfo) -> Option<Value> {
    match setting.accepts {
        Accepts::Whole(range) => range.least.map(|bound| Value::Integer(bound.value as i64)),
        Accepts::Number(range) => range.least.filter(|bound| bound.included).map(|bound| Value::Float(bound.value)),
        _ => None,
    }
}

/// What stands around a setting: what it needs, and little of everything else.
fn surroundings(setting: &SettingInfo) -> Vec<String> {
    let mut said = context(setting);
    let key = |text: &str| text.split('=').next().unwrap_or_default().to_owned();
    let all = |said: &[String], section: &str| said.iter().any(|other| key(other).split('.').next() == Some(section));
    let (has_model, has_data) = (all(&said, "model"), all(&said, "data"));
    let fits = |text: &&str| {
        let known = key(text);
        let is_setting = known == setting.key || setting.key.starts_with(&format!("{known}."));
        !(is_setting || has_model && known.starts_with("model") || has_data && known.starts_with("data"))
    };
    let more: Vec<String> = SMALL.iter().copied().filter(fits).map(str::to_owned).collect();
    said.extend(more.into_iter().filter(|text| !context(setting).iter().any(|other| key(other) == key(text))));
    said
}

/// Tries every value for a setting; says whether one of them was taken.
fn try_every_value(setting: &SettingInfo) -> bool {
    let folder = TempDir::new().expect("a folder");
    let said = surroundings(setting);
    let said: Vec<&str> = said.iter().map(String::as_str).collect();
    let is_read = |value: &Value| {
        Experiment::read(None, &[overrides(&said), vec![Override::new(&setting.key, value.clone())]].concat()).is_ok()
    };
    let values: Vec<Value> = every_value().chain(least(setting)).collect();
    values.iter().for_each(|value| attempt(&said, &setting.key, value, folder.path()));
    values.iter().any(is_read)
}

#[test]
fn every_number_there_is() {
    let has_numbers = |setting: &&SettingInfo| matches!(setting.accepts, Accepts::Whole(_) | Accepts::Number(_));
    let settings = Mutex::new(SettingInfo::all().iter().filter(has_numbers));
    let next = || settings.lock().expect("no test panics with it").next();
    let never = || std::iter::from_fn(next).filter(|setting| !try_every_value(setting)).map(|setting| setting.key.as_str());
    let never: Vec<&str> = std::thread::scope(|scope| {
        let threads = [(); 2].map(|()| scope.spawn(|| never().collect::<Vec<_>>()));
        threads.into_iter().flat_map(|thread| thread.join().expect("no number panics")).collect()
    });
    assert!(never.is_empty(), "no value at all is taken for {never:?}, so nothing was tried");
}

#[test]
fn every_number_of_every_method() {
    for method in Method::NAMES {
        let choice = format!("method={method}");
        let mut settings = SMALL.to_vec();
        settings.push(&choice);
        walk(&settings, &["method."]);
    }
}

/// One network of every family: the others have the same settings.
fn families() -> Vec<&'static str> {
    let settings = |name: &str| -> BTreeSet<&str> {
        let has = |setting: &&SettingInfo| {
            setting
                .only_with
                .iter()
                .any(|condition| condition.key == "model" && condition.values.iter().any(|known| known == name))
        };
        SettingInfo::all().iter().filter(has).map(|setting| setting.key.as_str()).collect()
    };
    let mut seen = BTreeSet::new();
    ModelConfig::NAMES.into_iter().filter(|name| seen.insert(settings(name))).collect()
}

#[test]
fn every_number_of_every_kind_of_model() {
    let folder = TempDir::new().expect("a folder");
    let text = format!("data.folder={}", text_in(folder.path()).display());
    let (all, limit) = ("plan.sampling.fraction=0.5", "data.limit={ train = 1, test = 1 }");
    for model in families() {
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
    let rules = SettingInfo::named("data.partition").next().expect("a setting").accepts.names();
    assert!(rules.len() > 6, "{rules:?}");
    for rule in rules {
        for source in ["data=synthetic", "data=digits"] {
            let rule = format!("data.partition={rule}");
            walk(
                &[source, &rule, "model=mlp", "model.hidden=[8]", "data.limit={ train = 4, test = 2 }", "plan.rounds=1"],
                &["data.partition."],
            );
        }
    }
}
