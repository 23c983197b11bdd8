//! From what Python gives to an experiment.
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};
use fedeq_python_macros::sheltered;
use fedeq_run::closest::closest;
use fedeq_run::experiment::{Experiment, ExternalModel, Override, SHORT_FORMS, SettingInfo};
use fedeq_run::place::settle;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use toml::{Table, Value};

use crate::error::refused;
use crate::value::{shown, table_of, value_of};

/// Arguments that are settings, beside those that the command line has short forms of.
const OTHERS: [(&str, &str); 2] = [("device", "engine.device"), ("preset", "preset")];

/// What an experiment is made of.
pub(crate) struct Request<'py> {
    /// A dictionary, or the path of a TOML file.
    pub(crate) config: Option<Bound<'py, PyAny>>,
    /// Arguments that stand for settings.
    pub(crate) keywords: Bound<'py, PyDict>,
    /// Settings by their dotted paths.
    pub(crate) settings: Bound<'py, PyDict>,
    /// The data set that reads the arrays that are given, if some are.
    pub(crate) source: Option<&'static str>,
}

impl Request<'_> {
    /// The experiment; whatever is given is used or refused by name.
    pub(crate) fn experiment(&self, network: Option<&ExternalModel>) -> Result<Experiment> {
        let table = self.config.as_ref().and_then(|config| config.cast::<PyDict>().ok());
        let file = table.map(File::of).transpose()?;
        let mut overrides = file.as_ref().map(|file| file.dotted.clone()).unwrap_or_default();
        overrides.extend(self.overrides()?);
        overrides.extend(self.source.map(|source| Override::new("data", source)));
        if let Some(network) = network {
            overrides = network.over(&overrides)?;
        }
        let mut experiment = match (file, &self.config) {
            (Some(file), _) => Experiment::read_table(file.table, &overrides)?,
            (None, Some(config)) => Experiment::read(Some(&path_of(config)?), &overrides)?,
            (None, None) => Experiment::read(None, &overrides)?,
        };
        settle(&mut experiment, &overrides);
        Ok(experiment)
    }

    fn overrides(&self) -> Result<Vec<Override>> {
        let mut overrides = Vec::new();
        for (key, value) in self.settings.iter() {
            let Ok(key) = key.extract::<String>() else {
                let problem = format!("`settings` has a key that is no text: {}", shown(&key));
                return Err(Error::invalid(problem, "write dotted paths, such as `{\"plan.rounds\": 20}`"));
            };
            let value = value_of(&key, &value)?;
            overrides.push(Override::new(&key, value));
        }
        let settings = overrides.len();
        for (name, value) in self.keywords.iter() {
            let name = name.to_string();
            let setting = keyword(&name, &value)?;
            let written = || format!("{name}={}", in_python(&setting));
            setting.require_alone(&overrides[..settings], written, |other| {
                format!("settings={{\"{}\": {}}}", other.path.join("."), in_python(other))
            })?;
            overrides.push(setting);
        }
        Ok(overrides)
    }
}

/// A dictionary that stands for the file of an experiment.
struct File {
    table: Table,
    /// What it says by dotted paths, such as `{"plan.rounds": 20}`, which go over the rest.
    dotted: Vec<Override>,
}

impl File {
    fn of(given: &Bound<'_, PyDict>) -> Result<Self> {
        let (dotted, table): (Table, Table) = table_of("", given)?.into_iter().partition(|(key, _)| key.contains('.'));
        let dotted: Vec<Override> = dotted.into_iter().map(|(key, value)| Override::new(&key, value)).collect();
        match dotted.iter().find(|setting| says(&table, &setting.path)) {
            Some(twice) => {
                let key = twice.path.join(".");
                Err(Error::invalid(
                    format!("the dictionary says `{key}` twice, by its dotted path and in a table"),
                    "leave one of them out",
                ))
            }
            None => Ok(Self { table, dotted }),
        }
    }
}

/// Whether a table has a value at a path.
fn says(table: &Table, path: &[String]) -> bool {
    path.split_first().is_some_and(|(first, rest)| match table.get(first) {
        Some(Value::Table(inner)) if !rest.is_empty() => says(inner, rest),
        found => found.is_some() && rest.is_empty(),
    })
}

/// An experiment as words of the command line: a dictionary as the text of a file, and what goes over it as options.
#[sheltered]
#[pyfunction]
pub(crate) fn words(
    py: Python<'_>,
    config: Option<Bound<'_, PyDict>>,
    keywords: Bound<'_, PyDict>,
    settings: Bound<'_, PyDict>,
) -> PyResult<(Option<String>, Vec<String>)> {
    let read = || -> Result<(Option<String>, Vec<String>)> {
        let file = config.as_ref().map(File::of).transpose()?;
        let (text, mut overrides) = file.map_or((None, Vec::new()), |file| (Some(file.table.to_string()), file.dotted));
        // Settings come first, and arguments after them.
        let first = overrides.len() + settings.len();
        overrides.extend(Request { config: None, keywords, settings, source: None }.overrides()?);
        let words = overrides.iter().enumerate().flat_map(|(place, setting)| typed(setting, place >= first)).collect();
        Ok((text, words))
    };
    read().map_err(|error| refused(py, &error))
}

/// Values that a setting takes in turn, as they are typed.
#[sheltered]
#[pyfunction]
pub(crate) fn in_turn(py: Python<'_>, key: &str, values: Vec<Bound<'_, PyAny>>) -> PyResult<String> {
    let texts = values.iter().map(|value| Ok(value_of(key, value)?.to_string())).collect::<Result<Vec<String>>>();
    Ok(texts.map_err(|error| refused(py, &error))?.join(","))
}

/// A setting as it is typed. Of what is an argument, place and device have options of their own, which count for runs that are continued too.
fn typed(setting: &Override, is_argument: bool) -> [String; 2] {
    const OPTIONS: [(&str, [&str; 2]); 2] = [("--data", ["data", "folder"]), ("--device", ["engine", "device"])];
    let option = OPTIONS.iter().find(|(_, path)| is_argument && setting.path == path[..]);
    match (option, setting.value.as_str()) {
        (Some((option, _)), Some(word)) => [(*option).to_owned(), word.to_owned()],
        _ => ["--set".to_owned(), setting.to_string()],
    }
}

fn in_python(setting: &Override) -> String {
    setting.value.to_string()
}

/// The setting that an argument stands for.
fn keyword(name: &str, value: &Bound<'_, PyAny>) -> Result<Override> {
    if name == "data" {
        return data(value);
    }
    let Some((_, key)) = SHORT_FORMS.iter().chain(&OTHERS).find(|(known, _)| *known == name) else {
        return Err(unknown(name));
    };
    Ok(Override::new(key, value_of(name, value)?))
}

/// A data set by its name, or the path of one's own data.
fn data(given: &Bound<'_, PyAny>) -> Result<Override> {
    let value = value_of("data", given)?;
    let name = given.extract::<String>().ok();
    let is_known = |name: &str| fedeq_data::source::catalog().any(|entry| entry.name == name);
    match (name, value.as_str()) {
        (Some(name), _) if is_known(&name) || !Path::new(&name).exists() => Ok(Override::new("data", name)),
        (_, Some(path)) => Ok(Override::new("data.folder", path)),
        (_, None) => Ok(Override::new("data", value)),
    }
}

fn unknown(name: &str) -> Error {
    let problem = format!("there is no argument `{name}`");
    let known = SHORT_FORMS.iter().chain(&OTHERS).map(|(known, _)| *known).chain([
        "data",
        "network",
        "out",
        "settings",
        "callbacks",
        "progress",
    ]);
    let settings = SettingInfo::elsewhere(name);
    let is_exact = settings.first().is_some_and(|key| key.rsplit('.').next() == Some(name));
    let hint = match (closest(name, known), settings.first()) {
        (Some(near), _) if !is_exact => format!("did you mean `{near}`?"),
        (_, Some(key)) => format!("give it as a setting: `settings={{\"{key}\": ..}}`"),
        (_, None) => {
            "give settings by their dotted paths, as in `settings={\"plan.rounds\": 20}`; `fedeq settings` lists them".into()
        }
    };
    Error::invalid(problem, hint)
}

fn path_of(config: &Bound<'_, PyAny>) -> Result<PathBuf> {
    config.extract::<PathBuf>().map_err(|_| {
        let problem = format!("the experiment cannot be {}", shown(config));
        Error::invalid(problem, "give a dictionary, or the path of a TOML file")
    })
}
