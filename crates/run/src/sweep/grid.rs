//! The experiments of a grid, from the axes and seeds as a person types them: `key=value,value` and `0..3`.
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use fedeq_core::{Error, Result};

use crate::experiment::{Experiment, Override, Refusal};
use crate::number::counted;

/// A key and the values it takes in turn.
///
/// ```
/// use fedeq_run::sweep::SweepAxis;
/// let axis: SweepAxis = "training.learning_rate=0.05,0.1".parse()?;
/// assert_eq!((axis.key.as_str(), axis.values.len()), ("training.learning_rate", 2));
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct SweepAxis {
    /// The dotted path of a setting.
    pub key: String,
    /// The setting, with each value in turn.
    pub values: Vec<Override>,
    /// The axis that it goes together with, value by value, where it does not vary on its own.
    pub with: Option<String>,
}

impl SweepAxis {
    /// Lets it go together with another axis: the one that is named before a colon (`method:model=..`), or else the only one with as many values.
    pub fn going_with(text: &str, others: &[Self]) -> Result<Self> {
        let (key, _) = text.split_once('=').unwrap_or((text, ""));
        let named = key.split_once(':').map(|(with, _)| with.trim());
        let mut axis: Self = text[named.map_or(0, |_| key.find(':').map_or(0, |at| at + 1))..].parse()?;
        let leaders: Vec<&Self> = others
            .iter()
            .filter(|other| {
                other.with.is_none() && named.map_or(other.values.len() == axis.values.len(), |named| other.key == named)
            })
            .collect();
        let problem = match leaders.as_slice() {
            [leader] if leader.values.len() == axis.values.len() => {
                axis.with = Some(leader.key.clone());
                return Ok(axis);
            }
            [leader] => {
                let values = counted(axis.values.len(), "value");
                format!("`{}` has {values} and `{}` has {}", axis.key, leader.key, leader.values.len())
            }
            [] => match named {
                Some(named) => format!("there is no axis `{named}` for `{}` to go with", axis.key),
                None => format!("no axis has {} for `{}` to go with", counted(axis.values.len(), "value"), axis.key),
            },
            several => {
                let keys: Vec<String> = several.iter().map(|leader| format!("`{}`", leader.key)).collect();
                format!("`{}` can go with {}", axis.key, keys.join(" or with "))
            }
        };
        Err(Error::invalid(
            problem,
            "give as many values as its axis has, and name that axis where there are several: `--with method:model=..`",
        ))
    }
}

impl FromStr for SweepAxis {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            Error::invalid(format!("`{text}` is not an axis of a grid"), "write `key=value,value`, such as `method=fedeq,fedrep`")
        };
        let (key, values) = text.split_once('=').ok_or_else(malformed)?;
        let values = split(values);
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(malformed());
        }
        let values = values.iter().map(|value| format!("{key}={value}").parse()).collect::<Result<_>>()?;
        Ok(Self { key: key.trim().to_owned(), values, with: None })
    }
}

/// Parts between commas; a comma inside brackets, braces or quotes separates nothing.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut is_quoted) = (Vec::new(), 0, 0i32, false);
    for (at, character) in text.char_indices() {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' | '{' if !is_quoted => depth += 1,
            ']' | '}' if !is_quoted => depth -= 1,
            ',' if !is_quoted && depth == 0 => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

/// A list of seeds, single ones and ranges.
///
/// ```
/// use fedeq_run::sweep::Seeds;
/// assert_eq!("0..3".parse::<Seeds>()?, Seeds(vec![0, 1, 2]));
/// assert_eq!("7,0..=2".parse::<Seeds>()?, Seeds(vec![7, 0, 1, 2]));
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seeds(pub Vec<u64>);

/// More seeds than this are a slip.
const MOST: u64 = 10_000;

impl FromStr for Seeds {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let malformed = || {
            let problem = format!("`{text}` are no seeds");
            Error::invalid(
                problem,
                "write `0,1,2`, or `0..3` for the same (the end is not included), or `0..=2`, for at most 10,000 of them",
            )
        };
        let seeds: Vec<u64> = text
            .split(',')
            .map(|part| range(part).ok_or_else(malformed))
            .collect::<Result<Vec<_>>>()?
            .into_iter()
            .flatten()
            .collect();
        // Seeds are written as TOML, which knows no larger numbers.
        let is_sound = seeds.len() as u64 <= MOST && seeds.iter().all(|&seed| i64::try_from(seed).is_ok());
        if is_sound { Ok(Self(seeds)) } else { Err(malformed()) }
    }
}

/// The seeds of one part: a number, or a range that is not empty.
fn range(text: &str) -> Option<Vec<u64>> {
    let number = |text: &str| text.trim().parse::<u64>().ok();
    let (from, to) = match (text.split_once("..="), text.split_once("..")) {
        (Some((from, last)), _) => (number(from)?, number(last)?.checked_add(1)?),
        (None, Some((from, to))) => (number(from)?, number(to)?),
        (None, None) => (number(text)?, number(text)?.checked_add(1)?),
    };
    (from < to && to - from <= MOST).then(|| (from..to).collect())
}

/// One experiment of a sweep.
#[derive(Clone, Debug)]
pub struct SweepCell {
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
pub struct SweepGrid {
    /// Seeds of one combination follow each other.
    pub cells: Vec<SweepCell>,
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
/// left out there, and what is then the same is carried out once. One that means nothing to any combination is refused, and so is a setting.
pub fn cells(file: Option<&Path>, overrides: &[Override], axes: &[SweepAxis], seeds: &[u64], out: &Path) -> Result<SweepGrid> {
    ensure_different(axes, overrides)?;
    ensure_few(axes, seeds)?;
    let (combinations, notes) = meaningful(file, overrides, axes)?;
    let mut cells = Vec::new();
    for Combination { values, experiment } in &combinations {
        let own = [experiment.seed];
        for &seed in if seeds.is_empty() { &own } else { seeds } {
            cells.push(SweepCell::of(values, Experiment { seed, ..experiment.clone() }, out)?);
        }
    }
    ensure_distinct(&cells)?;
    Ok(SweepGrid { cells, notes })
}

/// All combinations, each once, and what is to be said about those that miss something.
fn meaningful<'a>(
    file: Option<&Path>,
    overrides: &[Override],
    axes: &'a [SweepAxis],
) -> Result<(Vec<Combination<'a>>, Vec<String>)> {
    let (mut found, mut notes): (Vec<Combination<'a>>, Vec<String>) = (Vec::new(), Vec::new());
    let mut refusal = None;
    for values in combinations(axes) {
        let (combination, why) = reduced(file, overrides, axes, values)?;
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
    overrides: &[Override],
    axes: &[SweepAxis],
    values: Vec<&'a Override>,
) -> Result<(Combination<'a>, Option<Refusal>)> {
    let mut values: Vec<Option<&Override>> = values.into_iter().map(Some).collect();
    let mut why = None;
    loop {
        let all: Vec<Override> = overrides.iter().chain(values.iter().flatten().copied()).cloned().collect();
        let refusal = match Experiment::attempt(file, &all) {
            Ok(experiment) => return Ok((Combination { values, experiment }, why)),
            Err(refusal) => refusal,
        };
        match values.iter().position(|value| value.is_some_and(|value| refusal.is_about(&value.path))) {
            // A single axis has nothing else to depend on.
            Some(axis) if axes.len() > 1 => values[axis] = None,
            _ => return Err(explained(refusal, overrides, axes)),
        }
        why = why.or(Some(refusal));
    }
}

/// A setting that only some cells can use is better given to those alone.
fn explained(refusal: Refusal, overrides: &[Override], axes: &[SweepAxis]) -> Error {
    let unused = refusal.unknown().and_then(|unknown| overrides.iter().find(|setting| setting.path == unknown)).cloned();
    let error = Error::from(refusal);
    let Some(setting) = unused else { return error };
    let (Some(section), Some(key)) = (setting.path.first(), setting.path.get(1)) else { return error };
    let is_chosen = axes.iter().any(|axis| axis.key == *section);
    if !is_chosen || setting.path.len() != 2 {
        return error;
    }
    let value = &setting.value;
    let hint = format!(
        "give it only where it applies: `--grid '{section}={{ name = \"NAME\", {key} = {value} }},OTHER'` instead of `--set {setting}`"
    );
    Error::invalid(error.to_string(), hint)
}

fn note(axes: &[SweepAxis], values: &[Option<&Override>]) -> Option<String> {
    let kept: Vec<String> = values.iter().flatten().map(|value| format!("`{value}`")).collect();
    let missing: Vec<String> =
        axes.iter().zip(values).filter(|(_, value)| value.is_none()).map(|(axis, _)| format!("`{}`", axis.key)).collect();
    (!missing.is_empty())
        .then(|| format!("{} does not apply to {}: carried out once, without it", missing.join(" and "), kept.join(" and ")))
}

impl SweepCell {
    fn of(values: &[Option<&Override>], experiment: Experiment, out: &Path) -> Result<Self> {
        let identity = experiment.identity()?;
        let [method, data] = [experiment.method.name(), experiment.data.source.name()];
        let folder = out.join(format!("{method}-{data}-{}-{}", experiment.seed, &identity[..8.min(identity.len())]));
        let text = |setting: &Override| setting.value.as_str().map_or_else(|| setting.value.to_string(), str::to_owned);
        let values = values.iter().map(|value| value.map_or_else(|| NOTHING.to_owned(), text)).collect();
        Ok(Self { values, experiment, folder })
    }
}

/// One value of every axis, the last axis varying fastest; those that go together have the values of the same place.
fn combinations(axes: &[SweepAxis]) -> Vec<Vec<&Override>> {
    let leaders: Vec<&SweepAxis> = axes.iter().filter(|axis| axis.with.is_none()).collect();
    let places = leaders.iter().fold(vec![Vec::new()], |begun: Vec<Vec<usize>>, axis| {
        begun.iter().flat_map(|places| (0..axis.values.len()).map(move |place| [places.as_slice(), &[place]].concat())).collect()
    });
    let leader_of = |axis: &SweepAxis| {
        let key = axis.with.as_ref().unwrap_or(&axis.key);
        leaders.iter().position(|leader| leader.key == *key)
    };
    let value = |axis: &'_ SweepAxis, places: &[usize]| leader_of(axis).map(|leader| places[leader]);
    let combination = |places: &Vec<usize>| axes.iter().filter_map(|axis| axis.values.get(value(axis, places)?)).collect();
    places.iter().map(combination).collect()
}

/// More runs than this are a slip.
const MOST_RUNS: usize = 100_000;

/// Refuses a grid of more runs than anybody carries out, before it is laid out.
fn ensure_few(axes: &[SweepAxis], seeds: &[u64]) -> Result<()> {
    let lengths = axes.iter().filter(|axis| axis.with.is_none()).map(|axis| axis.values.len()).chain([seeds.len().max(1)]);
    let runs = lengths.fold(1usize, usize::saturating_mul);
    if runs <= MOST_RUNS {
        return Ok(());
    }
    let problem = format!("all values of `{}` axes with `{}` seeds are `{runs}` runs", axes.len(), seeds.len().max(1));
    Err(Error::invalid(problem, format!("give fewer values or seeds, for at most {MOST_RUNS} runs")))
}

/// Refuses an axis that is there twice, or whose key is set to one value as well: of a key given twice the last value would count.
fn ensure_different(axes: &[SweepAxis], overrides: &[Override]) -> Result<()> {
    let mut keys: BTreeSet<&str> = BTreeSet::new();
    if let Some(axis) = axes.iter().find(|axis| !keys.insert(&axis.key)) {
        return Err(Error::invalid(format!("there are two axes `{}`", axis.key), "name all values of a key in one `--grid`"));
    }
    match overrides.iter().find(|setting| keys.contains(setting.path.join(".").as_str())) {
        None => Ok(()),
        Some(setting) => {
            let problem = format!("`{setting}` is set, and `{}` is an axis of the grid as well", setting.path.join("."));
            Err(Error::invalid(problem, "leave one of them out"))
        }
    }
}

fn ensure_distinct(cells: &[SweepCell]) -> Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commas_inside_brackets_separate_nothing() {
        assert_eq!(split("1,[2,3],{ a = 4, b = 5 },\"6,7\""), ["1", "[2,3]", "{ a = 4, b = 5 }", "\"6,7\""]);
    }

    #[test]
    fn what_is_no_axis_is_refused() {
        assert!(["method", "method=", "plan.rounds=1,,2", "=1"].iter().all(|text| text.parse::<SweepAxis>().is_err()));
    }

    #[test]
    fn a_grid_of_more_runs_than_anybody_carries_out_is_refused() {
        let axis =
            |key: &str| format!("{key}={}", (1..=10).map(|n| n.to_string()).collect::<Vec<_>>().join(",")).parse::<SweepAxis>();
        let keys = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u"];
        let axes = keys.map(|key| axis(key).expect("an axis"));
        assert!(ensure_few(&axes[..5], &[]).is_ok() && ensure_few(&axes[..4], &[1; 10]).is_ok());
        for (axes, seeds) in [(&axes[..6], &[][..]), (&axes[..5], &[1, 2]), (&axes, &[])] {
            let error = cells(None, &[], axes, seeds, Path::new("nowhere")).expect_err("too many").to_string();
            assert!(error.contains("runs"), "{error}");
        }
    }

    #[test]
    fn the_end_of_a_range_is_left_out_unless_it_is_asked_for() {
        let seeds = |text: &str| text.parse::<Seeds>().expect("seeds").0;
        assert_eq!(seeds("0..3"), [0, 1, 2]);
        assert_eq!(seeds("0..=3"), [0, 1, 2, 3]);
        assert_eq!(seeds(" 5 , 1..2"), [5, 1]);
    }

    #[test]
    fn what_are_no_seeds_is_refused() {
        for text in
            ["", "a", "3..3", "3..1", "0..", "..3", "-1", "0..18446744073709551615", "18446744073709551615", "1,,2", "0..3..5"]
        {
            assert!(text.parse::<Seeds>().is_err(), "{text}");
        }
    }
}
