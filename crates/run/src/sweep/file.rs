//! A grid as a file.
use std::fs;
use std::path::Path;

use fedeq_core::{Error, Result};
use serde::Deserialize;
use toml::{Table, Value};

use super::grid::{Seeds, SweepAxis};
use super::search::SearchAxis;
use crate::experiment::Override;

/// What a sweep is over, as TOML.
///
/// ```toml
/// seeds = "0..3"
///
/// [grid]                                    # every combination
/// "training.learning_rate" = [0.01, 0.1]    # for a search also a range: "log:0.001..0.1"
///
/// [[together]]                              # one step after the other, all at once
/// method = ["fedeq", "fedrep"]
/// model = ["deq-resnet-xs", "resnet-xs"]
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GridFile {
    /// All axes: lists, and ranges for a search.
    pub axes: Vec<SearchAxis>,
    /// The seeds, where it says them.
    pub seeds: Option<Vec<u64>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GridFileContent {
    seeds: Option<WrittenSeeds>,
    #[serde(default)]
    grid: Table,
    #[serde(default)]
    together: Vec<Table>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum WrittenSeeds {
    Range(String),
    List(Vec<u64>),
}

impl GridFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).map_err(Error::io(path, "read it"))?;
        let refused = |problem: String| Error::invalid(format!("`{}`: {problem}", path.display()), FORM);
        let written: GridFileContent = toml::from_str(&text).map_err(|error| refused(error.message().to_owned()))?;
        let seeds = match written.seeds {
            None => None,
            Some(WrittenSeeds::List(seeds)) => Some(seeds),
            Some(WrittenSeeds::Range(text)) => Some(text.parse::<Seeds>()?.0),
        };
        let mut axes = Vec::new();
        for (key, values) in keys(&written.grid) {
            axes.push(match values.as_str() {
                Some(range) => {
                    range_of(&key, range).ok_or_else(|| refused(format!("`{key}` is no list of values and no range")))?
                }
                None => axis(&key, &values, None).ok_or_else(|| refused(format!("`{key}` is no list of values")))?.into(),
            });
        }
        for steps in &written.together {
            let mut leader: Option<(String, usize)> = None;
            for (key, values) in keys(steps) {
                let with = leader.as_ref().map(|(leader, _)| leader.clone());
                let axis = axis(&key, &values, with).ok_or_else(|| refused(format!("`{key}` is no list of values")))?;
                if let Some((leader, steps)) = leader.as_ref().filter(|(_, steps)| *steps != axis.values.len()) {
                    let problem =
                        format!("`{leader}` has {steps} values and `{key}` has {}, which are to go together", axis.values.len());
                    return Err(refused(problem));
                }
                leader.get_or_insert((key, axis.values.len()));
                axes.push(axis.into());
            }
        }
        Ok(Self { axes, seeds })
    }
}

const FORM: &str = "write `seeds = \"0..3\"`, and below `[grid]` or `[[together]]` lists of values: `\"training.learning_rate\" = [0.01, 0.1]`; for a search, below `[grid]` also ranges: `\"log:0.01..0.1\"`";

/// Dotted keys and what stands there, whether the file writes them in quotes or as sections.
fn keys(table: &Table) -> Vec<(String, Value)> {
    let below = |(key, value): (&String, &Value)| match value {
        Value::Table(inner) => keys(inner).into_iter().map(|(rest, value)| (format!("{key}.{rest}"), value)).collect(),
        other => vec![(key.clone(), other.clone())],
    };
    table.iter().flat_map(below).collect()
}

/// A range to draw from, as `--grid` takes it.
fn range_of(key: &str, range: &str) -> Option<SearchAxis> {
    format!("{key}={range}").parse().ok().filter(SearchAxis::is_range)
}

fn axis(key: &str, values: &Value, with: Option<String>) -> Option<SweepAxis> {
    let values = values.as_array().filter(|values| !values.is_empty())?;
    Some(SweepAxis { key: key.to_owned(), values: values.iter().map(|value| Override::new(key, value.clone())).collect(), with })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<GridFile> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("grid.toml");
        fs::write(&path, text).expect("written");
        GridFile::read(&path)
    }

    #[test]
    fn a_grid_file_names_axes_that_vary_alone_and_together() {
        let file = read("seeds = '0..2'\n[grid]\n'plan.rounds' = [2, 3]\ntraining.epochs = [1]\n[[together]]\nmethod = ['fedeq', 'fedrep']\nmodel = ['deq-mlp', 'mlp']")
            .expect("sound");
        assert_eq!(file.seeds, Some(vec![0, 1]));
        let lists: Vec<SweepAxis> = file.axes.iter().filter_map(SearchAxis::list).collect();
        let axes: Vec<(&str, Option<&str>)> = lists.iter().map(|axis| (axis.key.as_str(), axis.with.as_deref())).collect();
        assert_eq!(axes, [("plan.rounds", None), ("training.epochs", None), ("method", None), ("model", Some("method"))]);
    }

    #[test]
    fn a_grid_file_may_have_ranges_to_draw_from() {
        let file = read("[grid]\n'training.learning_rate' = 'log:0.01..0.1'").expect("sound");
        assert!(file.axes[0].is_range() && file.axes[0].list().is_none());
    }

    #[test]
    fn a_grid_file_that_does_not_fit_is_refused() {
        for text in [
            "grids = 1",
            "[grid]\nmethod = 'fedeq'",
            "[grid]\nmethod = []",
            "[[together]]\nmethod = ['a', 'b']\nmodel = ['c']",
            "seeds = 'x'",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
