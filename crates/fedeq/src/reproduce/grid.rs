//! A part of an experiment as rows and columns of numbers.
use super::cell::{combinations, name_of, named_choices};
use super::metric::{Metric, Preference};
use super::results::Results;
use super::spec::{Choice, Part, Scale, Spec};
use crate::statistics::Sample;

/// Rows and columns of what came out beside what the paper has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Grid {
    pub(super) title: String,
    /// What stands over the names of the rows.
    pub(super) corner: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<Entry>)>,
    /// Whether the paper has any of these numbers.
    pub(super) has_paper: bool,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub(super) metric: Metric,
    pub(super) ours: Ours,
    pub(super) paper: Option<f64>,
    pub(super) is_best: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ours {
    Measured(Sample),
    /// It was run, but does not give this number.
    Nothing,
    NotRun,
    /// Not part of this scale.
    LeftOut,
}

/// The grids of a part.
pub(super) fn grids(spec: &Spec, scale: &Scale, part: &Part, results: &Results) -> Vec<Grid> {
    let source = Source { spec, scale, part, results };
    let mut grids = match (&part.table.rows, &part.table.columns) {
        (Some(rows), Some(columns)) => part.table.metrics.iter().map(|&metric| source.matrix(rows, columns, metric)).collect(),
        _ => vec![source.list()],
    };
    grids.iter_mut().for_each(Grid::mark_best);
    grids
}

struct Source<'a> {
    spec: &'a Spec,
    scale: &'a Scale,
    part: &'a Part,
    results: &'a Results,
}

impl Source<'_> {
    /// One metric over two axes.
    fn matrix(&self, rows: &str, columns: &str, metric: Metric) -> Grid {
        let cells = combinations(self.part);
        let at = |row: &Choice, column: &Choice| {
            let is_there = |cell: &&Vec<Choice>| self.is(cell, rows, row) && self.is(cell, columns, column);
            cells.iter().find(is_there).map_or(Ours::LeftOut, |cell| self.ours(cell, metric))
        };
        let (row_choices, column_choices) = (self.choices(rows), self.choices(columns));
        let entries = |row: &Choice| {
            let entry = |(index, column): (usize, &Choice)| Entry {
                metric,
                ours: at(row, column),
                paper: self.paper(metric, &row.name, index),
                is_best: false,
            };
            column_choices.iter().enumerate().map(entry).collect()
        };
        Grid {
            title: format!("{}: {}", self.part.title, metric.title()),
            corner: rows.to_owned(),
            columns: column_choices.iter().map(|choice| choice.name.clone()).collect(),
            rows: row_choices.iter().map(|row| (row.name.clone(), entries(row))).collect(),
            has_paper: self.part.paper.contains_key(&metric),
        }
    }

    /// A row a cell and a column a metric.
    fn list(&self) -> Grid {
        let metrics = &self.part.table.metrics;
        let entry =
            |cell: &[Choice], metric: Metric| Entry { metric, ours: self.ours(cell, metric), paper: None, is_best: false };
        let label = |cell: &[Choice]| cell.iter().map(|choice| choice.name.as_str()).collect::<Vec<_>>().join(", ");
        let row = |cell: Vec<Choice>| (label(&cell), metrics.iter().map(|&metric| entry(&cell, metric)).collect());
        let axes: Vec<&str> = self.part.axis.iter().map(|axis| axis.name.as_str()).collect();
        Grid {
            title: self.part.title.clone(),
            corner: axes.join(", "),
            columns: metrics.iter().map(|metric| metric.title().to_owned()).collect(),
            rows: combinations(self.part).into_iter().map(row).collect(),
            has_paper: false,
        }
    }

    fn choices(&self, axis: &str) -> Vec<Choice> {
        self.part.axis.iter().find(|known| known.name == axis).map(|axis| axis.choices()).unwrap_or_default()
    }

    fn is(&self, cell: &[Choice], axis: &str, wanted: &Choice) -> bool {
        self.part.axis.iter().zip(cell).any(|(known, choice)| known.name == axis && choice == wanted)
    }

    fn ours(&self, cell: &[Choice], metric: Metric) -> Ours {
        let choices = named_choices(self.part, cell);
        if self.scale.leave_out.iter().any(|condition| condition.holds(&choices)) {
            return Ours::LeftOut;
        }
        let name = name_of(self.spec, self.part, cell);
        match self.results.sample(&name, metric) {
            Some(sample) => Ours::Measured(sample),
            None if self.results.cells.contains_key(&name) => Ours::Nothing,
            None => Ours::NotRun,
        }
    }

    fn paper(&self, metric: Metric, row: &str, column: usize) -> Option<f64> {
        self.part.paper.get(&metric)?.get(row)?.get(column).copied()
    }
}

impl Grid {
    /// Whether nothing of it is run at this scale.
    pub(super) fn is_left_out(&self) -> bool {
        self.rows.iter().flat_map(|(_, entries)| entries).all(|entry| entry.ours == Ours::LeftOut)
    }

    /// Marks the best of every column that has several numbers.
    fn mark_best(&mut self) {
        for column in 0..self.columns.len() {
            if let Some(best) = self.best(column) {
                self.rows[best].1[column].is_best = true;
            }
        }
    }

    fn best(&self, column: usize) -> Option<usize> {
        let measured: Vec<(usize, f64)> = self
            .rows
            .iter()
            .enumerate()
            .filter_map(|(row, (_, entries))| {
                let entry = entries.get(column)?;
                let sign = if entry.metric.preference()? == Preference::Higher { 1.0 } else { -1.0 };
                if let Ours::Measured(sample) = entry.ours { Some((row, sign * sample.mean)) } else { None }
            })
            .collect();
        let best = measured.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
        (measured.len() > 1).then_some(best.0)
    }
}
