//! The experiments of a grid.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};

use super::axis::Axis;
use crate::experiment::{Experiment, Override, Refusal};

/// One experiment of a sweep.
#[derive(Clone, Debug)]
pub struct Cell {
    /// The value on every axis, in their order; [`NOTHING`] on one that means nothing here.
    pub values: Vec<String>,
    /// What to carry out.
    pub experiment: Experiment,
    /// The folder of its run.
    pub folder: PathBuf,
}

/// Stands for the value on an axis that means nothing to an experiment: FedRep has no `method.rho`.
pub const NOTHING: &str = "-";

/// The experiments of a sweep.
#[derive(Clone, Debug, Default)]
pub struct Grid {
    /// Seeds of one combination follow each other.
    pub cells: Vec<Cell>,
    /// What is to be said about them beforehand.
    pub notes: Vec<String>,
}

/// One value of every axis, as far as it means something to the experiment.
struct Combination<'a> {
    values: Vec<Option<&'a Override>>,
    experiment: Experiment,
}

/// Every combination of the axes' values with every seed, whatever the order of the axes. Without seeds, each combination has the seed that
/// its experiment names.
///
/// An axis that means nothing to some of the combinations, since another axis chooses a method, model or data set without such a setting, is
/// left out there, and what is then the same is carried out once. One that means nothing to any combination is refused, and so is a wish.
pub fn cells(file: Option<&Path>, wishes: &[Override], axes: &[Axis], seeds: &[u64], out: &Path) -> Result<Grid> {
    ensure_different(axes, wishes)?;
    let (combinations, notes) = meaningful(file, wishes, axes)?;
    let mut cells = Vec::new();
    for Combination { values, experiment } in &combinations {
        let own = [experiment.seed];
        for &seed in if seeds.is_empty() { &own } else { seeds } {
            cells.push(Cell::of(values, Experiment { seed, ..experiment.clone() }, out)?);
        }
    }
    ensure_distinct(&cells)?;
    Ok(Grid { cells, notes })
}

/// All combinations, each once, and what is to be said about those that miss something.
fn meaningful<'a>(file: Option<&Path>, wishes: &[Override], axes: &'a [Axis]) -> Result<(Vec<Combination<'a>>, Vec<String>)> {
    let (mut found, mut notes): (Vec<Combination<'a>>, Vec<String>) = (Vec::new(), Vec::new());
    let mut refusal = None;
    for values in combinations(axes) {
        let (combination, why) = reduced(file, wishes, axes, values)?;
        refusal = refusal.or(why);
        let is_reduced = combination.values.contains(&None);
        if !is_reduced || found.iter().all(|other| other.values != combination.values) {
            notes.extend(note(axes, &combination.values));
            found.push(combination);
        }
    }
    let is_never_used = |axis: usize| found.iter().all(|combination| combination.values[axis].is_none());
    match refusal.filter(|_| (0..axes.len()).any(is_never_used)) {
        Some(refusal) => Err(refusal.into()),
        None => Ok((found, notes)),
    }
}

/// The experiment of a combination, without the values that mean nothing to it, and why they do not.
fn reduced<'a>(
    file: Option<&Path>,
    wishes: &[Override],
    axes: &[Axis],
    values: Vec<&'a Override>,
) -> Result<(Combination<'a>, Option<Refusal>)> {
    let mut values: Vec<Option<&Override>> = values.into_iter().map(Some).collect();
    let mut why = None;
    loop {
        let all: Vec<Override> = wishes.iter().chain(values.iter().flatten().copied()).cloned().collect();
        let refusal = match Experiment::attempt(file, &all) {
            Ok(experiment) => return Ok((Combination { values, experiment }, why)),
            Err(refusal) => refusal,
        };
        match values.iter().position(|value| value.is_some_and(|value| refusal.is_about(&value.path))) {
            // A single axis has nothing else to depend on.
            Some(axis) if axes.len() > 1 => values[axis] = None,
            _ => return Err(explained(refusal, wishes, axes)),
        }
        why = why.or(Some(refusal));
    }
}

/// A wish that only some cells can use is better given to those alone.
fn explained(refusal: Refusal, wishes: &[Override], axes: &[Axis]) -> Error {
    let unused = refusal.unknown().and_then(|unknown| wishes.iter().find(|wish| wish.path == unknown)).cloned();
    let error = Error::from(refusal);
    let Some(wish) = unused else { return error };
    let (Some(section), Some(key)) = (wish.path.first(), wish.path.get(1)) else { return error };
    let is_chosen = axes.iter().any(|axis| axis.key == *section);
    if !is_chosen || wish.path.len() != 2 {
        return error;
    }
    let value = &wish.value;
    let hint = format!(
        "give it only where it applies: `--grid '{section}={{ name = \"NAME\", {key} = {value} }},OTHER'` instead of `--set {wish}`"
    );
    Error::invalid(error.to_string(), hint)
}

fn note(axes: &[Axis], values: &[Option<&Override>]) -> Option<String> {
    let kept: Vec<String> = values.iter().flatten().map(|value| format!("`{value}`")).collect();
    let missing: Vec<String> =
        axes.iter().zip(values).filter(|(_, value)| value.is_none()).map(|(axis, _)| format!("`{}`", axis.key)).collect();
    (!missing.is_empty())
        .then(|| format!("{} means nothing with {}: carried out once, without it", missing.join(" and "), kept.join(" and ")))
}

impl Cell {
    fn of(values: &[Option<&Override>], experiment: Experiment, out: &Path) -> Result<Self> {
        let identity = experiment.identity()?;
        let [method, data] = [experiment.method.name(), experiment.data.source.name()];
        let folder = out.join(format!("{method}-{data}-{}-{}", experiment.seed, &identity[..8.min(identity.len())]));
        let text = |wish: &Override| wish.value.as_str().map_or_else(|| wish.value.to_string(), str::to_owned);
        let values = values.iter().map(|value| value.map_or_else(|| NOTHING.to_owned(), text)).collect();
        Ok(Self { values, experiment, folder })
    }
}

/// One value of every axis, the last axis varying fastest.
fn combinations(axes: &[Axis]) -> Vec<Vec<&Override>> {
    axes.iter().fold(vec![Vec::new()], |begun, axis| {
        begun.iter().flat_map(|values| axis.values.iter().map(move |value| [values.as_slice(), &[value]].concat())).collect()
    })
}

/// Refuses an axis that is there twice, or whose key is set to one value as well: of a key given twice the last value would count.
fn ensure_different(axes: &[Axis], wishes: &[Override]) -> Result<()> {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    if let Some(axis) = axes.iter().find(|axis| !keys.insert(&axis.key)) {
        return Err(Error::invalid(format!("there are two axes `{}`", axis.key), "name all values of a key in one `--grid`"));
    }
    match wishes.iter().find(|wish| keys.contains(wish.path.join(".").as_str())) {
        None => Ok(()),
        Some(wish) => {
            let problem = format!("`{wish}` is set, and `{}` is an axis of the grid as well", wish.path.join("."));
            Err(Error::invalid(problem, "leave one of them out"))
        }
    }
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
