//! The experiments of a grid.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};

use super::axis::Axis;
use crate::experiment::{Experiment, Override};

/// One experiment of a sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The value on every axis, in their order.
    pub values: Vec<String>,
    /// What to carry out.
    pub experiment: Experiment,
    /// The folder of its run.
    pub folder: PathBuf,
}

/// Every combination of the axes' values with every seed; seeds of one combination follow each other. Without seeds, each
/// combination has the seed that its experiment names.
pub fn cells(file: Option<&Path>, wishes: &[Override], axes: &[Axis], seeds: &[u64], out: &Path) -> Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for values in combinations(axes) {
        let all: Vec<Override> = wishes.iter().cloned().chain(values.iter().map(|value| (*value).clone())).collect();
        let experiment = Experiment::read(file, &all)?;
        let own = [experiment.seed];
        for &seed in if seeds.is_empty() { &own } else { seeds } {
            cells.push(Cell::of(&values, Experiment { seed, ..experiment.clone() }, out)?);
        }
    }
    ensure_distinct(&cells)?;
    Ok(cells)
}

impl Cell {
    fn of(values: &[&Override], experiment: Experiment, out: &Path) -> Result<Self> {
        let identity = experiment.identity()?;
        let [method, data] = [experiment.method.name(), experiment.data.source.name()];
        let folder = out.join(format!("{method}-{data}-{}-{}", experiment.seed, &identity[..8.min(identity.len())]));
        let text = |wish: &&Override| wish.value.as_str().map_or_else(|| wish.value.to_string(), str::to_owned);
        Ok(Self { values: values.iter().map(text).collect(), experiment, folder })
    }
}

/// One value of every axis, the last axis varying fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<&Override>> {
    axes.iter().fold(vec![Vec::new()], |begun, axis| {
        begun.iter().flat_map(|values| axis.values.iter().map(move |value| [values.as_slice(), &[value]].concat())).collect()
    })
}

fn ensure_distinct(cells: &[Cell]) -> Result<()> {
    let mut seen = BTreeSet::new();
    match cells.iter().find(|cell| !seen.insert(&cell.folder)) {
        None => Ok(()),
        Some(cell) => {
            let values: String = cell.values.iter().map(|value| format!("`{value}`, ")).collect();
            let problem = format!("the sweep names the same experiment twice: {values}seed `{}`", cell.experiment.seed);
            Err(Error::invalid(problem, "name every value and every seed once"))
        }
    }
}
