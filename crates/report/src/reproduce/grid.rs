//! A part of an experiment as rows and columns of numbers.
use fedeq_core::View;

use super::cell::{ExperimentCell, combinations, label, name_of, named_choices};
use super::metric::{Metric, Preference};
use super::results::Results;
use super::spec::{Choice, Spec, SpecAxis, SpecPart, SpecScale};
use fedeq_run::statistics::{BySeed, Difference, Sample, best_beyond_scatter, compare};

/// Rows and columns of what came out beside what the paper has.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ResultGrid {
    pub(super) title: String,
    /// What stands over the names of the rows.
    pub(super) corner: String,
    pub(super) columns: Vec<String>,
    pub(super) rows: Vec<(String, Vec<GridEntry>)>,
    /// Whether the paper has any of these numbers.
    pub(super) has_paper: bool,
    /// Whether all rows learn from the same data, so that their seeds can be paired.
    same_data: bool,
}

/// One number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct GridEntry {
    pub(super) metric: Metric,
    pub(super) ours: Ours,
    /// The number of each seed.
    pub(super) by_seed: BySeed,
    /// By which of a client's models it is, where that depends on the method.
    pub(super) view: Option<View>,
    /// The rounds after which runs ended before their plan did: the first and the last of them.
    pub(super) ended: Option<[u64; 2]>,
    pub(super) paper: Option<f64>,
    /// The best of its column, or not to be told from it.
    pub(super) is_best: bool,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Ours {
    Measured(Sample),
    /// How far it is from the row it is compared with.
    Apart(Difference),
    /// It was run, but does not give this number.
    Nothing,
    NotRun,
    /// Not part of this scale.
    LeftOut,
}

/// The grids of a part.
pub(super) fn grids(
    spec: &Spec,
    scale: &SpecScale,
    part: &SpecPart,
    cells: &[ExperimentCell],
    results: &Results,
) -> Vec<ResultGrid> {
    let source = GridSource { spec, scale, part, cells, results };
    let mut grids = match (&part.table.rows, &part.table.columns) {
        (Some(rows), Some(columns)) => part.table.metrics.iter().map(|&metric| source.matrix(rows, columns, metric)).collect(),
        _ => vec![source.list()],
    };
    grids.iter_mut().for_each(ResultGrid::mark_best);
    let with_differences = |grid: ResultGrid| {
        // Of one seed there is nothing to say.
        let differences = grid.differences(&part.table.differences).filter(ResultGrid::has_differences);
        [Some(grid), differences].into_iter().flatten()
    };
    grids.into_iter().flat_map(with_differences).collect()
}

struct GridSource<'a> {
    spec: &'a Spec,
    scale: &'a SpecScale,
    part: &'a SpecPart,
    cells: &'a [ExperimentCell],
    results: &'a Results,
}

impl GridSource<'_> {
    /// One metric over two axes.
    fn matrix(&self, rows: &str, columns: &str, metric: Metric) -> ResultGrid {
        let cells = combinations(self.part);
        let at = |row: &Choice, column: &Choice| {
            let is_there = |cell: &&Vec<Choice>| self.is(cell, rows, row) && self.is(cell, columns, column);
            cells.iter().find(is_there)
        };
        let (row_choices, column_choices) = (self.part.choices(rows), self.part.choices(columns));
        let entries = |row: &Choice| {
            let entry = |(index, column): (usize, &Choice)| GridEntry {
                paper: self.paper(metric, &row.name, index),
                ..self.entry(at(row, column), metric)
            };
            column_choices.iter().enumerate().map(entry).collect()
        };
        ResultGrid {
            title: format!("{}: {}", self.part.title, metric.title()),
            corner: rows.to_owned(),
            columns: column_choices.iter().map(|choice| choice.name.clone()).collect(),
            rows: row_choices.iter().map(|row| (row.name.clone(), entries(row))).collect(),
            has_paper: self.part.paper.contains_key(&metric),
            same_data: self.part.axis.iter().filter(|axis| axis.name == rows).all(leaves_data_alone),
        }
    }

    /// A row a cell and a column a metric.
    fn list(&self) -> ResultGrid {
        let metrics = &self.part.table.metrics;
        let row = |cell: Vec<Choice>| (label(&cell), metrics.iter().map(|&metric| self.entry(Some(&cell), metric)).collect());
        let axes: Vec<&str> = self.part.axis.iter().map(|axis| axis.name.as_str()).collect();
        ResultGrid {
            title: self.part.title.clone(),
            corner: axes.join(", "),
            columns: metrics.iter().map(|metric| metric.title().to_owned()).collect(),
            rows: combinations(self.part).into_iter().map(row).collect(),
            has_paper: false,
            same_data: self.part.axis.iter().all(leaves_data_alone),
        }
    }

    /// What came out of a cell, if it is part of the experiment.
    fn entry(&self, cell: Option<&Vec<Choice>>, metric: Metric) -> GridEntry {
        let ours = cell.map_or(Ours::LeftOut, |cell| self.ours(cell, metric));
        let name = cell.map(|cell| name_of(self.spec, self.part, cell)).unwrap_or_default();
        let known = self.cells.iter().find(|known| known.name == name && metric.depends_on_method());
        GridEntry {
            metric,
            ours,
            by_seed: self.results.by_seed(&name, metric),
            view: known.map(|known| known.experiment.method.algorithm().default_view()),
            ended: self.results.ended_early(&name),
            paper: None,
            is_best: false,
        }
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

impl ResultGrid {
    /// Whether nothing of it is run at this scale.
    pub(super) fn is_left_out(&self) -> bool {
        self.rows.iter().flat_map(|(_, entries)| entries).all(|entry| entry.ours == Ours::LeftOut)
    }

    /// The same without the rows and the columns of which nothing was run; whether there were any.
    pub(super) fn without_missing(mut self) -> (Self, bool) {
        let is_there = |entry: &GridEntry| !matches!(entry.ours, Ours::NotRun | Ours::LeftOut);
        let all = (self.rows.len(), self.columns.len());
        self.rows.retain(|(_, entries)| entries.iter().any(is_there));
        let kept: Vec<bool> =
            (0..all.1).map(|column| self.rows.iter().any(|(_, entries)| entries.get(column).is_some_and(is_there))).collect();
        let mut keep = kept.iter();
        self.columns.retain(|_| keep.next().is_some_and(|kept| *kept));
        for (_, entries) in &mut self.rows {
            let mut keep = kept.iter();
            entries.retain(|_| keep.next().is_some_and(|kept| *kept));
        }
        let is_less = (self.rows.len(), self.columns.len()) != all;
        (self, is_less)
    }

    /// Whether it shows differences.
    pub(super) fn has_differences(&self) -> bool {
        self.rows.iter().flat_map(|(_, entries)| entries).any(|entry| matches!(entry.ours, Ours::Apart(_)))
    }

    /// The accuracies of some rows less those of others, over common seeds; nothing where no rows are compared, or by no accuracies.
    fn differences(&self, pairs: &[[String; 2]]) -> Option<Self> {
        let row = |name: &String| self.rows.iter().find(|(known, _)| known == name).map(|(_, entries)| entries);
        let is_accuracy = |column: &usize| self.rows.iter().all(|(_, entries)| entries[*column].metric.is_accuracy());
        let columns: Vec<usize> = (0..self.columns.len()).filter(is_accuracy).collect();
        let line = |[one, other]: &[String; 2]| {
            let (first, second) = (row(one)?, row(other)?);
            let entries = columns.iter().map(|&column| self.apart(&first[column], &second[column]));
            Some((format!("{one} less {other}"), entries.collect()))
        };
        let rows: Vec<(String, Vec<GridEntry>)> = pairs.iter().filter_map(line).collect();
        (!rows.is_empty() && !columns.is_empty()).then(|| Self {
            title: format!("{}: differences", self.title),
            corner: self.corner.clone(),
            columns: columns.iter().map(|&column| self.columns[column].clone()).collect(),
            rows,
            has_paper: false,
            same_data: self.same_data,
        })
    }

    fn apart(&self, first: &GridEntry, second: &GridEntry) -> GridEntry {
        let ours = match (first.ours, second.ours) {
            // Of different models no difference is taken.
            (Ours::Measured(_), Ours::Measured(_)) if first.view != second.view => Ours::Nothing,
            (Ours::Measured(_), Ours::Measured(_)) => {
                compare(&first.by_seed, &second.by_seed, self.same_data).map_or(Ours::Nothing, Ours::Apart)
            }
            (Ours::Measured(_), missing) | (missing, _) => missing,
        };
        GridEntry { ours, by_seed: BySeed::new(), view: None, ended: None, paper: None, is_best: false, ..first.clone() }
    }

    /// Whether rows are evaluated by different models of the clients, so that nothing of them is compared.
    pub(super) fn has_several_views(&self) -> bool {
        let mut views = self.rows.iter().flat_map(|(_, entries)| entries).filter_map(|entry| entry.view);
        views.next().is_some_and(|first| views.any(|view| view != first))
    }

    /// Marks the best of every column beyond the scatter of seeds, where all rows are evaluated by the same model of the clients.
    fn mark_best(&mut self) {
        let views = |column: usize| self.rows.iter().filter_map(move |(_, entries)| entries.get(column)?.view);
        let is_fair = |column: &usize| views(*column).all(|view| Some(view) == views(*column).next());
        for column in (0..self.columns.len()).filter(is_fair).collect::<Vec<_>>() {
            for row in self.best(column) {
                self.rows[row].1[column].is_best = true;
            }
        }
    }

    fn best(&self, column: usize) -> Vec<usize> {
        let scores: Vec<BySeed> =
            self.rows.iter().map(|(_, entries)| entries.get(column).map_or_else(BySeed::new, signed)).collect();
        best_beyond_scatter(&scores, |_, _| self.same_data)
    }
}

/// An entry's numbers so that more is better; nothing where that cannot be said, or where the cell is not part of this scale.
fn signed(entry: &GridEntry) -> BySeed {
    let sign = match (entry.ours, entry.metric.preference()) {
        (Ours::Measured(_), Some(Preference::Higher)) => 1.0,
        (Ours::Measured(_), Some(Preference::Lower)) => -1.0,
        _ => return BySeed::new(),
    };
    entry.by_seed.iter().map(|(seed, number)| (*seed, sign * number)).collect()
}

/// Whether the choices of an axis change nothing of the data and its division.
fn leaves_data_alone(axis: &SpecAxis) -> bool {
    axis.choices().iter().all(|choice| choice.set.keys().all(|key| key != "data" && !key.starts_with("data.")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid(metric: Metric, rows: &[&[f64]]) -> ResultGrid {
        let entry = |numbers: &[f64]| {
            let by_seed: BySeed = (0..).zip(numbers.iter().copied()).collect();
            let ours = Ours::Measured(Sample::of(numbers.iter().copied()));
            vec![GridEntry { metric, ours, by_seed, view: None, ended: None, paper: None, is_best: false }]
        };
        let rows = rows.iter().map(|numbers| (String::new(), entry(numbers))).collect();
        let (title, corner, columns) = (String::new(), String::new(), vec![String::new()]);
        let mut grid = ResultGrid { title, corner, columns, rows, has_paper: false, same_data: true };
        grid.mark_best();
        grid
    }

    fn marks(grid: &ResultGrid) -> Vec<bool> {
        grid.rows.iter().map(|(_, entries)| entries[0].is_best).collect()
    }

    #[test]
    fn differences_are_those_of_common_seeds() {
        let mut rows = grid(Metric::Local, &[&[70.0, 75.0, 72.0], &[71.0, 77.0, 75.0], &[60.0]]);
        ["a", "b", "c"].into_iter().zip(&mut rows.rows).for_each(|(name, row)| row.0 = name.into());
        let pairs = [["b", "a"], ["c", "a"]].map(|pair| pair.map(str::to_owned));
        let differences = rows.differences(&pairs).expect("accuracies");
        assert_eq!(differences.rows.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["b less a", "c less a"]);
        let Ours::Apart(difference) = differences.rows[0].1[0].ours else { panic!("a difference") };
        let [low, high] = difference.interval();
        // 1, 2 and 3 points: 2 +- 4.303 / sqrt(3).
        assert!((difference.means - 2.0).abs() < 1e-12 && (low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3);
        assert_eq!(differences.rows[1].1[0].ours, Ours::Nothing, "one seed has no interval");
        let gaps = grid(Metric::Gap, &[&[1.0, 2.0]]);
        assert!(gaps.differences(&[[String::new(), String::new()]]).is_none(), "no gap is better than another");
    }

    #[test]
    fn rows_that_are_evaluated_by_different_models_are_not_compared() {
        let rows: [&[f64]; 2] = [&[70.0, 75.0, 72.0], &[60.0, 64.0, 63.0]];
        let mut mixed = grid(Metric::Accuracy, &rows);
        assert_eq!(marks(&mixed), [true, false]);
        mixed.rows.iter_mut().zip(["a", "b"]).for_each(|(row, name)| row.0 = name.into());
        let pair = [["a", "b"].map(str::to_owned)];
        assert!(mixed.differences(&pair).is_some_and(|differences| differences.has_differences()));
        for ((_, entries), view) in mixed.rows.iter_mut().zip(View::ALL) {
            entries[0] = GridEntry { view: Some(view), is_best: false, ..entries[0].clone() };
        }
        mixed.mark_best();
        assert!(mixed.has_several_views() && marks(&mixed) == [false, false]);
        assert!(mixed.differences(&pair).is_some_and(|differences| !differences.has_differences()));
    }

    #[test]
    fn only_what_is_best_beyond_the_scatter_of_seeds_is_marked() {
        let rows: [&[f64]; 3] = [&[70.0, 75.0, 72.0], &[71.0, 73.0, 73.0], &[60.0, 64.0, 63.0]];
        assert_eq!(marks(&grid(Metric::Local, &rows)), [true, true, false]);
        assert_eq!(marks(&grid(Metric::Megabytes, &[&[5.0, 5.0], &[7.0, 7.0]])), [true, false], "less is better");
        assert_eq!(marks(&grid(Metric::Local, &[&[70.0], &[60.0]])), [false, false], "one seed says nothing");
        assert_eq!(marks(&grid(Metric::Gap, &rows)), [false; 3], "no gap is better than another");
    }
}
