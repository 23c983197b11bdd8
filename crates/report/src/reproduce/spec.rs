//! What an experiment file says.
use std::collections::BTreeMap;
use std::fmt;

use fedeq_core::{Error, Method, Result};
use serde::{Deserialize, Serialize};
use toml::Value;

use super::cell::{combinations, label, named_choices};
use super::metric::Metric;

/// Settings by their dotted paths, as `fedeq run --set` takes them.
pub(super) type Settings = BTreeMap<String, Value>;

/// An experiment: what is run, what is drawn, and what the paper found.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spec {
    /// Its name, which is also that of its folder.
    #[serde(skip)]
    pub name: String,
    /// What it is, in a line.
    pub title: String,
    /// Where it stands in the paper, or that it is our own.
    pub source: String,
    /// What the paper says comes out, or what we wanted to know.
    pub expected: String,
    /// What must be said beside its figures.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Methods whose cells are run before all others, in this order.
    #[serde(default)]
    first: Vec<String>,
    /// What each scale has of its own.
    pub(super) scale: BTreeMap<ScaleName, SpecScale>,
    /// The grids, in the order in which they are shown.
    pub(super) part: Vec<SpecPart>,
}

/// How much of the paper's effort is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ScaleName {
    /// A reduced version, with fewer clients and rounds: minutes on two cores.
    Small,
    /// The paper's clients, rounds and models.
    Full,
}

impl ScaleName {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Small, Self::Full];
}

impl fmt::Display for ScaleName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Small => "small",
            Self::Full => "full",
        })
    }
}

/// What a scale has of its own.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecScale {
    /// How it compares with the paper's runs.
    pub(super) about: String,
    /// Seeds of every cell: 0 and so on.
    pub(super) seeds: u64,
    /// Cells that have fewer.
    #[serde(default)]
    pub(super) fewer: Vec<FewerSeeds>,
    /// Below what parts and axes set.
    #[serde(default)]
    pub(super) set: Settings,
    /// Over what parts and axes set, where a condition holds.
    #[serde(default)]
    pub(super) adjust: Vec<Adjustment>,
    /// Cells that are not run at this scale.
    #[serde(default)]
    pub(super) leave_out: Vec<Condition>,
}

/// Settings for some cells.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Adjustment {
    #[serde(rename = "where")]
    pub(super) condition: Condition,
    pub(super) set: Settings,
}

/// Seeds of some cells.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FewerSeeds {
    #[serde(rename = "where")]
    pub(super) condition: Condition,
    pub(super) seeds: u64,
}

/// A grid of cells and what is shown of it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecPart {
    /// Short, for files.
    pub(super) name: String,
    /// What its tables and figures are called.
    pub(super) title: String,
    /// Settings of all its cells.
    #[serde(default)]
    pub(super) set: Settings,
    /// What varies.
    pub(super) axis: Vec<SpecAxis>,
    /// What is tabulated.
    pub(super) table: TableSpec,
    /// What is drawn.
    #[serde(default)]
    pub(super) figure: Vec<FigureSpec>,
    /// What the paper has, by metric and by the choice on the rows' axis: a number for each choice on the columns' axis.
    #[serde(default)]
    pub(super) paper: BTreeMap<Metric, BTreeMap<String, Vec<f64>>>,
}

/// What varies: choices with names, or a key with values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpecAxis {
    pub(super) name: String,
    #[serde(default)]
    choice: Vec<Choice>,
    key: Option<String>,
    #[serde(default)]
    values: Vec<Value>,
}

/// One of an axis's choices.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Choice {
    pub(super) name: String,
    /// Where it stands on a numerical axis.
    pub(super) value: Option<f64>,
    #[serde(default)]
    pub(super) set: Settings,
}

impl SpecAxis {
    /// Its choices, in order.
    pub(super) fn choices(&self) -> Vec<Choice> {
        let Some(key) = &self.key else { return self.choice.clone() };
        self.values.iter().map(|value| Choice::of(key, value)).collect()
    }
}

impl Choice {
    fn of(key: &str, value: &Value) -> Self {
        let name = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let number = value.as_float().or_else(|| value.as_integer().map(|whole| whole as f64));
        Self { name, value: number, set: Settings::from([(key.to_owned(), value.clone())]) }
    }
}

/// How a part is tabulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TableSpec {
    /// The axis of the rows; every cell is a row if left out.
    pub(super) rows: Option<String>,
    /// The axis of the columns; the columns are the metrics if left out.
    pub(super) columns: Option<String>,
    /// What is shown: a table each, or a column each.
    pub(super) metrics: Vec<Metric>,
    /// Pairs of rows that are compared seed by seed: tables with the accuracy of the first less that of the second follow.
    #[serde(default)]
    pub(super) differences: Vec<[String; 2]>,
}

/// A figure of a part.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FigureSpec {
    /// Short, for files.
    pub(super) name: String,
    /// Written above it; the title of the experiment if left out.
    pub(super) title: Option<String>,
    pub(super) kind: Kind,
    /// The horizontal axis: a metric, or for [`Kind::Lines`] the name of an axis of the grid.
    pub(super) x: Option<String>,
    /// The vertical axis.
    pub(super) y: Metric,
    /// The axis whose choices are told apart by colour; every cell by itself if left out.
    pub(super) series: Option<String>,
    /// Whether an axis is logarithmic.
    #[serde(default)]
    pub(super) log: Vec<Direction>,
    /// Only these cells, all if left out.
    pub(super) only: Option<Condition>,
}

/// What kind of figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Kind {
    /// A metric as it develops, a line a cell.
    Curves,
    /// What came out at the end over the values of an axis, a line a choice on the series' axis.
    Lines,
    /// What came out at the end over another metric, a point a cell.
    Points,
    /// What came out at the end, a bar a cell.
    Bars,
}

/// An axis of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Direction {
    X,
    Y,
}

impl Spec {
    /// Reads a specification.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let fault =
            |error: toml::de::Error| Error::invalid(format!("the experiment `{name}`: {error}"), "correct its `spec.toml`");
        let spec: Self = toml::from_str(text).map_err(fault)?;
        Ok(Self { name: name.to_owned(), ..spec })
    }

    /// What a scale has of its own.
    pub(super) fn scale(&self, name: ScaleName) -> Result<&SpecScale> {
        let missing = || Error::invalid(format!("`{}` has no scale `{name}`", self.name), "choose the other one");
        self.scale.get(&name).ok_or_else(missing)
    }

    /// Refuses names of axes, choices and metrics that mean nothing, and numbers of the paper that have no place in their table.
    pub fn check(&self, scale: ScaleName) -> Result<()> {
        let unknown = self.first.iter().filter(|name| !Method::NAMES.contains(&name.as_str()));
        let unknown = unknown.map(|name| format!("there is no method `{name}` to run first"));
        let faults = self.part.iter().flat_map(SpecPart::faults).chain(self.scale(scale)?.faults(&self.part)).chain(unknown);
        match faults.into_iter().next() {
            None => Ok(()),
            Some(fault) => Err(Error::invalid(format!("the experiment `{}`: {fault}", self.name), "correct its `spec.toml`")),
        }
    }

    /// How early the cells of a method are run: those named as first, then all others alike, of whatever experiment.
    pub fn rank(&self, method: &str) -> usize {
        self.first.iter().position(|first| first == method).unwrap_or(usize::MAX)
    }

    /// The metrics whose development is drawn, and so kept.
    pub(super) fn drawn(&self) -> Vec<Metric> {
        let curves = self.part.iter().flat_map(|part| &part.figure).filter(|figure| figure.kind == Kind::Curves);
        let mut metrics: Vec<Metric> = curves.flat_map(|figure| [figure.across(), Some(figure.y)]).flatten().collect();
        metrics.sort_unstable();
        metrics.dedup();
        metrics
    }
}

impl SpecScale {
    /// How many seeds a cell has, given as its choice by axis.
    pub(super) fn seeds_of(&self, choices: &BTreeMap<String, String>) -> u64 {
        let said = self.fewer.iter().filter(|fewer| fewer.condition.holds(choices)).map(|fewer| fewer.seeds);
        said.min().unwrap_or(self.seeds)
    }

    /// Conditions that hold nowhere, and fewer seeds that are not fewer.
    fn faults(&self, parts: &[SpecPart]) -> Vec<String> {
        let wrong = self.fewer.iter().filter(|fewer| !(1..self.seeds).contains(&fewer.seeds));
        let wrong = wrong.map(|fewer| format!("`{}` seeds are not fewer than `{}`", fewer.seeds, self.seeds));
        self.idle(parts).into_iter().chain(wrong).collect()
    }

    fn idle(&self, parts: &[SpecPart]) -> Vec<String> {
        let fewer = self.fewer.iter().map(|fewer| &fewer.condition);
        let conditions = self.adjust.iter().map(|adjustment| &adjustment.condition).chain(&self.leave_out).chain(fewer);
        let cells: Vec<_> =
            parts.iter().flat_map(|part| combinations(part).into_iter().map(|cell| named_choices(part, &cell))).collect();
        let is_idle = |condition: &&Condition| !condition.is_met_entirely(&cells);
        conditions.filter(is_idle).map(|condition| format!("no cell is as `{condition:?}` says")).collect()
    }
}

impl SpecPart {
    fn faults(&self) -> Vec<String> {
        let is_axis = |name: &String| self.axis.iter().any(|axis| axis.name == *name);
        let mut names: Vec<&String> = self.table.rows.iter().chain(&self.table.columns).collect();
        for figure in &self.figure {
            names.extend(&figure.series);
            names.extend(figure.x.iter().filter(|name| Metric::named(name).is_none()));
        }
        let unknown = names.into_iter().filter(|name| !is_axis(name));
        unknown.map(|name| format!("there is no axis `{name}`")).chain(self.misplaced()).chain(self.unpaired()).collect()
    }

    /// Rows to compare that are not there.
    fn unpaired(&self) -> Vec<String> {
        let rows: Vec<String> = match (&self.table.rows, &self.table.columns) {
            (Some(rows), Some(_)) => self.choices(rows).into_iter().map(|choice| choice.name).collect(),
            _ => combinations(self).iter().map(|cell| label(cell)).collect(),
        };
        let named = self.table.differences.iter().flatten().filter(|name| !rows.contains(name));
        named.map(|name| format!("there is no row `{name}` to compare")).collect()
    }

    /// The choices of an axis; none if there is no such axis.
    pub(super) fn choices(&self, axis: &str) -> Vec<Choice> {
        self.axis.iter().find(|known| known.name == axis).map(SpecAxis::choices).unwrap_or_default()
    }

    /// Numbers of the paper in rows that are not there, or too few or too many of them.
    fn misplaced(&self) -> Vec<String> {
        let choices = |name: &Option<String>| name.as_ref().map(|name| self.choices(name)).unwrap_or_default();
        let rows = choices(&self.table.rows);
        let columns = choices(&self.table.columns).len();
        let fits =
            |(row, numbers): &(&String, &Vec<f64>)| rows.iter().any(|choice| choice.name == **row) && numbers.len() == columns;
        let all = self.paper.values().flatten();
        all.filter(|line| !fits(line)).map(|(row, _)| format!("the paper's numbers of `{row}` have no place")).collect()
    }
}

impl FigureSpec {
    /// The metric on the horizontal axis, where there is one: rounds if nothing else is said.
    pub(super) fn across(&self) -> Option<Metric> {
        match &self.x {
            Some(name) => Metric::named(name),
            None => Some(Metric::Round),
        }
    }
}

/// Holds where the cell's choice on every named axis is one of those named; `part` stands for the name of the part.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Condition(pub(super) BTreeMap<String, OneOrMore>);

/// A name or several.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMore {
    One(String),
    More(Vec<String>),
}

/// Stands for the name of the part.
pub(super) const PART: &str = "part";

impl Condition {
    /// Whether it holds for a cell, given as its choice by axis. An axis that the cell does not have is never met.
    pub(super) fn holds(&self, choices: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|(axis, wanted)| choices.get(axis).is_some_and(|choice| wanted.contains(choice)))
    }
}

impl Condition {
    /// Whether every name in it is that of some cell, and it holds for at least one.
    pub(super) fn is_met_entirely(&self, cells: &[BTreeMap<String, String>]) -> bool {
        let is_known = |axis: &str, name: &str| cells.iter().any(|cell| cell.get(axis).is_some_and(|choice| choice == name));
        let are_known = self.0.iter().all(|(axis, wanted)| wanted.names().iter().all(|name| is_known(axis, name)));
        are_known && cells.iter().any(|cell| self.holds(cell))
    }
}

impl OneOrMore {
    fn names(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }

    fn contains(&self, name: &str) -> bool {
        self.names().iter().any(|one| one == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_that_are_compared_must_be_there() {
        let text = |other: &str| {
            format!(
                "title = ''\nsource = ''\nexpected = ''\n[scale.small]\nabout = ''\nseeds = 2\n[[part]]\nname = 'a'\ntitle = ''\n\
                 table = {{ metrics = ['local'], differences = [['1', '{other}']] }}\n\
                 axis = [{{ name = 'rho', key = 'method.rho', values = [1, 2] }}]"
            )
        };
        let check = |other: &str| Spec::parse("tiny", &text(other)).expect("a specification").check(ScaleName::Small);
        assert!(check("2").is_ok());
        assert!(check("3").expect_err("no such row").to_string().contains("there is no row `3` to compare"));
    }

    #[test]
    fn some_cells_may_have_fewer_seeds_than_others() {
        let text = |seeds: u64| {
            format!(
                "title = ''\nsource = ''\nexpected = ''\n[scale.small]\nabout = ''\nseeds = 3\n\
                 fewer = [{{ where = {{ method = ['Local'] }}, seeds = {seeds} }}]\n[[part]]\nname = 'a'\ntitle = ''\n\
                 table = {{ metrics = ['local'] }}\n[[part.axis]]\nname = 'method'\n\
                 choice = [{{ name = 'Local', set = {{ method = 'local' }} }}, {{ name = 'FeDEQ' }}]"
            )
        };
        let spec = Spec::parse("tiny", &text(1)).expect("a specification");
        spec.check(ScaleName::Small).expect("sound");
        let cells = crate::reproduce::cells(&spec, ScaleName::Small, &[]).expect("cells");
        let seeds: Vec<(&str, u64)> = cells.iter().map(|cell| (cell.name.as_str(), cell.seeds)).collect();
        assert_eq!(seeds, [("local", 1), ("fedeq", 3)]);
        for wrong in [0, 3] {
            let refused = Spec::parse("tiny", &text(wrong)).expect("a specification").check(ScaleName::Small);
            assert!(refused.expect_err("not fewer").to_string().contains("seeds are not fewer than `3`"));
        }
    }

    #[test]
    fn every_named_axis_must_agree() {
        let condition: Condition = toml::from_str("method = 'FeDEQ'\ndata = ['digits', 'femnist']").expect("a condition");
        let cell = |method: &str, data: &str| {
            BTreeMap::from([("method".to_owned(), method.to_owned()), ("data".to_owned(), data.to_owned())])
        };
        assert!(condition.holds(&cell("FeDEQ", "femnist")));
        assert!(!condition.holds(&cell("FedRep", "femnist")) && !condition.holds(&cell("FeDEQ", "cifar10")));
        assert!(Condition::default().holds(&BTreeMap::new()));
    }
}
