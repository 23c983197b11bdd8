//! From a file and wishes to an experiment in which everything is explicit.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Method, Result};
use fedeq_data::source::{Source, catalog};
use fedeq_models::ModelConfig;
use toml::{Table, Value};

use super::overlay::{expand, lay, put};
use super::refusal::{refuse, unknown_name};
use super::wish::Override;
use super::{Experiment, partition};
use crate::preset::Preset;

const RULES: [&str; 6] = ["natural", "label-shards", "distinct-labels", "dirichlet", "iid", "own"];

impl Experiment {
    /// What a file says, if one is given, under what the overrides say, over what the preset says.
    pub fn read(file: Option<&Path>, overrides: &[Override]) -> Result<Self> {
        let mut wishes = file.map(table_of).transpose()?.unwrap_or_default();
        expand(&mut wishes);
        for wish in overrides {
            put(&mut wishes, &wish.path, &wish.value);
            expand(&mut wishes);
        }
        Self::resolve(&wishes)
    }

    /// Fills in what a table leaves out.
    fn resolve(wishes: &Table) -> Result<Self> {
        let defaults = Table::try_from(defaults_for(wishes)?)
            .map_err(|error| Error::invalid(format!("the defaults cannot be written: {error}"), "report this as a bug"))?;
        let complete = |wishes: &Table| {
            let mut complete = defaults.clone();
            lay(&mut complete, wishes);
            complete.try_into::<Self>()
        };
        complete(wishes).map_err(|error| refuse(error.message(), wishes, |wishes| complete(wishes).err()))
    }
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
fn defaults_for(wishes: &Table) -> Result<Experiment> {
    let preset = chosen(wishes, &["preset"], &Preset::NAMES)?.and_then(Preset::named).unwrap_or_default();
    let sources: Vec<&str> = catalog().map(|entry| entry.name).collect();
    let source = chosen(wishes, &["data", "source", "name"], &sources)?.map(Source::named).transpose()?.unwrap_or_default();
    let method = chosen(wishes, &["method", "name"], &Method::NAMES)?.unwrap_or("fedeq");
    let model = chosen(wishes, &["model", "name"], &ModelConfig::NAMES)?;
    let rule = chosen(wishes, &["data", "partition", "rule"], &RULES)?;
    let mut defaults = Experiment::defaults(preset, method, source, model)?;
    if let Some(partition) = rule.and_then(|rule| partition::by_rule(rule, &defaults.data.source)) {
        defaults.data.partition = partition;
    }
    Ok(defaults)
}

/// The name at a path, one of those known; nothing if none is given there.
fn chosen<'a>(wishes: &'a Table, path: &[&str], known: &[&str]) -> Result<Option<&'a str>> {
    let Some((last, way)) = path.split_last() else { return Ok(None) };
    let below = way.iter().try_fold(wishes, |table, key| table.get(*key).and_then(Value::as_table));
    match below.and_then(|table| table.get(*last)) {
        Some(Value::String(name)) if known.contains(&name.as_str()) => Ok(Some(name)),
        Some(other) => Err(unknown_name(&path.join("."), other, known)),
        None => Ok(None),
    }
}
