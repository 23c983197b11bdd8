//! From a file and settings to an experiment in which everything is explicit, and back to one value a key.
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Method, Result};
use fedeq_data::partition::Partition;
use fedeq_data::source::{Source, catalog};
use fedeq_equilibrium::WarmStart;
use fedeq_models::ModelConfig;
use toml::{Table, Value};

use super::layers::{SettingsLayer, lay, leaves, put};
use super::refusal::{Refusal, out_of_bounds, refuse, unknown_name};
use super::registry::setting_at;
use super::setting::Override;
use super::{Experiment, equilibrium_models};
use crate::present::{found_at, require_files};
use crate::preset::Preset;

/// Where data sets are kept where nothing else is said.
pub const USUAL_FOLDER: &str = "data";

impl Experiment {
    /// What a file says, if one is given, under what the overrides say, over what the preset says.
    ///
    /// The order of the overrides means nothing, but that of a key given twice the last value counts. Whatever is given is used or
    /// refused by name: a setting of a method, a model, a data set or a partition that another one was chosen for does not get lost.
    ///
    /// Where no data set is named, it is found out from what lies at `data.folder`, if that is given.
    pub fn read(file: Option<&Path>, overrides: &[Override]) -> Result<Self> {
        Self::attempt(file, overrides).map_err(Error::from)
    }

    /// The same, where what a file would say is already there as a table.
    pub fn read_table(table: Table, overrides: &[Override]) -> Result<Self> {
        Ok(Self::from_layers(SettingsLayer::of_file(table), &[SettingsLayer::of(overrides)?])?)
    }

    /// As [`read`](Self::read), with a refusal that knows which key it is about.
    pub(crate) fn attempt(file: Option<&Path>, overrides: &[Override]) -> std::result::Result<Self, Refusal> {
        let file = file.map(table_of).transpose()?.map(SettingsLayer::of_file).unwrap_or_default();
        Self::from_layers(file, &[SettingsLayer::of(overrides)?])
    }

    /// What several origins say one after the other, each going over those before it, over what the preset says.
    pub fn layered<'a>(origins: impl IntoIterator<Item = &'a [Override]>) -> Result<Self> {
        let layers = origins.into_iter().map(SettingsLayer::of).collect::<Result<Vec<_>>>()?;
        Self::from_layers(SettingsLayer::default(), &layers).map_err(Error::from)
    }

    fn from_layers(mut all: SettingsLayer, layers: &[SettingsLayer]) -> std::result::Result<Self, Refusal> {
        // A file that a run wrote names the usual folder, needed or not.
        let is_told = |layer: &SettingsLayer| layer.get(&FOLDER).is_some();
        let is_folder_given =
            layers.iter().any(is_told) || all.get(&FOLDER).is_some_and(|folder| folder.as_str() != Some(USUAL_FOLDER));
        let in_file = all.paths();
        layers.iter().try_for_each(|layer| layer.over(&mut all))?;
        let mut settings = all.table();
        name_source(&mut settings, all.get(&FOLDER))?;
        let mut experiment = resolve(&settings).map_err(|refusal| {
            let is_left_over = |unknown: &[String]| {
                let is_meant = |path: &[String]| path.starts_with(unknown);
                in_file.iter().any(|path| is_meant(path))
                    && !layers.iter().any(|layer| layer.paths().iter().any(|path| is_meant(path)))
            };
            if refusal.unknown().is_some_and(is_left_over) { refusal.about_file() } else { refusal }
        })?;
        if all.paths().iter().any(|path| path.iter().take(2).eq(&WARM_START)) {
            require_fixed_point(&experiment)?;
        }
        if is_folder_given {
            require_files(&experiment.data.source, &experiment.data.folder)?;
            experiment.data.source = experiment.data.source.pinned(&experiment.data.folder)?;
        }
        Ok(experiment)
    }
}

const FOLDER: [&str; 2] = ["data", "folder"];
const WARM_START: [&str; 2] = ["training", "warm_start"];

/// Refuses to begin where an earlier solve ended if nothing is solved.
fn require_fixed_point(experiment: &Experiment) -> Result<()> {
    let model = experiment.model.name();
    if experiment.training.warm_start == WarmStart::Off || experiment.model.is_equilibrium() {
        return Ok(());
    }
    let problem = format!("`training.warm_start` does not go with `{model}`, which solves for no fixed point");
    Err(Error::invalid(problem, format!("leave it out, or choose {}", equilibrium_models())))
}

/// Finds out which data set is meant where only its place is given.
fn name_source(settings: &mut Table, folder: Option<&Value>) -> Result<()> {
    let is_named = named(settings, &["data", "source", "name"]).is_some();
    let Some(folder) = folder.and_then(Value::as_str).filter(|_| !is_named) else { return Ok(()) };
    let found = found_at(Path::new(folder))?;
    let path = ["data", "source", "name"].map(str::to_owned);
    put(settings, &path, &Value::String(found.name().into()));
    Ok(())
}

/// Fills in what a table leaves out.
fn resolve(settings: &Table) -> std::result::Result<Experiment, Refusal> {
    let defaults = table_of_defaults(settings)?;
    let experiment = completed(&defaults, settings).map_err(|error| {
        let attempt = |settings: &Table| completed(&defaults, settings).err();
        refuse(error.message(), settings, &defaults, attempt, kinds_with)
    })?;
    require_bounds(settings, &experiment)?;
    Ok(experiment)
}

/// Refuses what is given and lies outside of its bounds.
fn require_bounds(settings: &Table, experiment: &Experiment) -> Result<()> {
    let whole = Table::try_from(experiment).map_err(|error| Error::invalid(error.to_string(), super::TOO_LARGE))?;
    let outside = |(path, value): &(Vec<String>, Value)| {
        setting_at(path, &whole)
            .filter(|setting| !setting.accepts.includes(value))
            .map(|setting| out_of_bounds(path, value, &setting.accepts))
    };
    leaves(settings).iter().find_map(outside).map_or(Ok(()), Err)
}

fn completed(defaults: &Table, settings: &Table) -> std::result::Result<Experiment, toml::de::Error> {
    let mut complete = defaults.clone();
    lay(&mut complete, settings);
    complete.try_into()
}

fn table_of_defaults(settings: &Table) -> Result<Table> {
    Table::try_from(defaults_for(settings)?)
        .map_err(|error| Error::invalid(format!("the defaults cannot be written: {error}"), "report this as a bug"))
}

fn table_of(file: &Path) -> Result<Table> {
    let text = fs::read_to_string(file).map_err(Error::io(file, "read it"))?;
    text.parse::<Table>().map_err(|error| {
        let line = error.span().map_or(1, |span| text[..span.start.min(text.len())].lines().count().max(1));
        let problem = format!("`{}` on line {line}: {}", file.display(), error.message());
        Error::invalid(problem, "write it as TOML: `key = value`, with `[section]` lines between")
    })
}

/// The defaults that go with the names a table gives.
fn defaults_for(settings: &Table) -> Result<Experiment> {
    let preset = chosen(settings, &["preset"], &Preset::NAMES)?.and_then(Preset::named).unwrap_or_default();
    let source = chosen(settings, &["data", "source", "name"], &sources())?.map(Source::named).transpose()?.unwrap_or_default();
    let method = chosen(settings, &["method", "name"], &Method::NAMES)?.unwrap_or("fedeq");
    let is_external = named(settings, &["model", "name"]).and_then(Value::as_str) == Some(ModelConfig::EXTERNAL);
    let model =
        if is_external { Some(ModelConfig::EXTERNAL) } else { chosen(settings, &["model", "name"], &ModelConfig::NAMES)? };
    let rule = chosen(settings, &["data", "partition", "rule"], &Partition::rules())?;
    let mut defaults = Experiment::defaults(preset, method, source, model)?;
    if let Some(partition) = rule.and_then(|rule| Partition::named(rule, &defaults.data.source.entry().partition)) {
        defaults.data.partition = partition;
    }
    Ok(defaults)
}

fn sources() -> Vec<&'static str> {
    catalog().map(|entry| entry.name).collect()
}

/// The kinds of whatever a key is part of that have such a key, as settings that choose them: `method=fedeq`.
fn kinds_with(path: &[String], value: &Value) -> Vec<String> {
    let sections: [(&[&str], &str, Vec<&str>); 4] = [
        (&["method"], "name", Method::NAMES.to_vec()),
        (&["model"], "name", ModelConfig::NAMES.to_vec()),
        (&["data", "partition"], "rule", Partition::rules()),
        (&["data", "source"], "name", sources()),
    ];
    let is_part = |section: &[&str]| path.len() > section.len() && path.iter().zip(section).all(|(key, known)| key == known);
    let Some((section, tag, kinds)) = sections.into_iter().find(|(section, ..)| is_part(section)) else { return Vec::new() };
    let has_it = |kind: &&str| {
        let mut alone = Table::new();
        let choice: Vec<String> = section.iter().chain([&tag]).map(|key| (*key).to_owned()).collect();
        put(&mut alone, &choice, &Value::String((*kind).into()));
        put(&mut alone, path, value);
        // A value that does not suit the key is another matter.
        let is_known = |error: toml::de::Error| !error.message().starts_with("unknown field");
        table_of_defaults(&alone).is_ok_and(|defaults| completed(&defaults, &alone).map_or_else(is_known, |_| true))
    };
    // `data.source=csv` is usually written `data=csv`.
    let short = section.join(".").replace("data.source", "data");
    kinds.into_iter().filter(has_it).map(|kind| format!("{short}={kind}")).collect()
}

/// What stands at a path.
fn named<'a>(settings: &'a Table, path: &[&str]) -> Option<&'a Value> {
    let (last, way) = path.split_last()?;
    way.iter().try_fold(settings, |table, key| table.get(*key).and_then(Value::as_table))?.get(*last)
}

/// The name at a path, one of those known; nothing if none is given there.
fn chosen<'a>(settings: &'a Table, path: &[&str], known: &[&str]) -> Result<Option<&'a str>> {
    match named(settings, path) {
        Some(Value::String(name)) if known.contains(&name.as_str()) => Ok(Some(name)),
        Some(other) => Err(unknown_name(&path.join("."), other, known)),
        None => Ok(None),
    }
}

impl Experiment {
    /// Every setting that changes results, but the seed, by its dotted path.
    pub fn settings(&self) -> Result<BTreeMap<String, String>> {
        let table = Table::try_from(self).map_err(|error| Error::invalid(error.to_string(), super::TOO_LARGE))?;
        let settings = leaves(&table).into_iter().map(|(path, value)| (path.join("."), value.to_string()));
        let is_essential = |key: &str| key != "seed" && key != "data.folder" && !key.starts_with("engine.");
        let device = ("engine.device".to_owned(), Value::from(self.devices()).to_string());
        Ok(settings.filter(|(key, _)| is_essential(key)).chain([device]).collect())
    }
}
