//! Figures of results.
use std::collections::BTreeMap;
use std::path::Path;

use fedeq_core::Result;

use super::cell::ExperimentCell;
use super::metric::Metric;
use super::results::Results;
use super::spec::{Direction, FigureSpec, Kind, PART, Spec, SpecPart};
use crate::figure::{Axis, BarSeries, Bars, Figure, Mark, Panel, Plot, Series};
use fedeq_run::statistics::Sample;
use fedeq_viewer::{LineSettings, orders};

/// Draws every figure of which there is something to show, as SVG and PNG; returns their names without endings.
pub(super) fn write_figures(spec: &Spec, cells: &[ExperimentCell], results: &Results, folder: &Path) -> Result<Vec<String>> {
    let figures = figures(spec, cells, results)?;
    for figure in &figures {
        figure.save(folder)?;
    }
    Ok(figures.into_iter().map(|figure| figure.name).collect())
}

/// Panels of the same name stand side by side in one figure, in the order of the parts.
fn figures(spec: &Spec, cells: &[ExperimentCell], results: &Results) -> Result<Vec<Figure>> {
    let mut figures: Vec<Figure> = Vec::new();
    for (part, figure) in spec.part.iter().flat_map(|part| part.figure.iter().map(move |figure| (part, figure))) {
        let chart = Chart { part, figure, results, cells: shown(part, figure, cells, results) };
        if chart.cells.is_empty() {
            continue;
        }
        let name = format!("{}-{}", figure.name, results.scale);
        match figures.iter_mut().find(|known| known.name == name) {
            Some(known) => known.panels.push(chart.panel()?),
            None => {
                let title = figure.title.as_ref().unwrap_or(&spec.title);
                figures.push(Figure::new(name, title, vec![chart.panel()?]).with_note(note(spec, results)));
            }
        }
    }
    Ok(figures)
}

fn note(spec: &Spec, results: &Results) -> String {
    let seeds = results.seeds();
    let spread = if seeds > 1 { format!("mean and standard deviation over {seeds} seeds") } else { "one seed".into() };
    [format!("scale {}, {spread}", results.scale)].into_iter().chain(spec.notes.iter().cloned()).collect::<Vec<_>>().join("; ")
}

/// The cells of a part that were run and that the figure wants.
fn shown<'a>(part: &SpecPart, figure: &FigureSpec, cells: &'a [ExperimentCell], results: &Results) -> Vec<&'a ExperimentCell> {
    let is_wanted = |cell: &&ExperimentCell| {
        let is_chosen = figure.only.as_ref().is_none_or(|condition| condition.holds(&cell.choices));
        cell.choices.get(PART) == Some(&part.name) && is_chosen && results.cells.contains_key(&cell.name)
    };
    cells.iter().filter(is_wanted).collect()
}

/// The method of all of some cells.
fn method(cells: &[&ExperimentCell]) -> Option<String> {
    let mut names = cells.iter().map(|cell| cell.experiment.method.name());
    let first = names.next()?;
    names.all(|name| name == first).then(|| first.to_owned())
}

/// Series, each with the first of its cells, with the numbers by which those of one method are put in order: by settings, as in reports and on the page.
fn in_order(series: Vec<(&ExperimentCell, Series)>) -> Result<Vec<Series>> {
    let settings: Vec<BTreeMap<String, String>> =
        series.iter().map(|(cell, _)| cell.experiment.settings()).collect::<Result<_>>()?;
    let lines: Vec<LineSettings<'_>> =
        series.iter().zip(&settings).map(|((cell, _), settings)| (cell.experiment.method.name(), settings)).collect();
    let orders = orders(&lines);
    Ok(series.into_iter().zip(orders).map(|((_, series), order)| series.in_order(order)).collect())
}

/// A choice as it is named in a figure: a number does not say what it is of.
fn spoken(axis: &str, choice: &str) -> String {
    if choice.parse::<f64>().is_ok() { format!("{axis} = {choice}") } else { choice.to_owned() }
}

struct Chart<'a> {
    part: &'a SpecPart,
    figure: &'a FigureSpec,
    results: &'a Results,
    cells: Vec<&'a ExperimentCell>,
}

impl Chart<'_> {
    fn panel(&self) -> Result<Panel> {
        Ok(match self.figure.kind {
            Kind::Curves => self.plot(self.curves()?).into(),
            Kind::Lines => self.plot(self.lines()?).into(),
            Kind::Points => self.plot(self.points()?).into(),
            Kind::Bars => self.bars().into(),
        })
    }

    fn plot(&self, series: Vec<Series>) -> Plot {
        let across =
            self.figure.across().map_or_else(|| self.figure.x.clone().unwrap_or_default(), |metric| metric.title().into());
        Plot {
            title: self.part.title.clone(),
            x: self.axis(across, Direction::X),
            y: self.axis(self.figure.y.title().into(), Direction::Y),
            series,
        }
    }

    fn axis(&self, label: String, direction: Direction) -> Axis {
        if self.figure.log.contains(&direction) {
            return Axis::log(label);
        }
        // Shares are written in percent; none is below nothing or above the whole.
        if label.ends_with('%') { Axis::new(label).within(0.0, 100.0) } else { Axis::new(label) }
    }

    /// A line a cell, over evaluations.
    fn curves(&self) -> Result<Vec<Series>> {
        let curve = |cell: &ExperimentCell| {
            let across = self.course(cell, self.figure.across()?)?;
            let up = self.course(cell, self.figure.y)?;
            let points = across.iter().zip(&up).map(|(x, y)| (x.mean, y.mean)).collect();
            let series = Series::line(self.name(cell), points).with_spread(up.iter().map(|y| y.deviation).collect());
            Some(Series { method: method(&[cell]), ..series })
        };
        in_order(self.cells.iter().filter_map(|cell| Some((*cell, curve(cell)?))).collect())
    }

    /// A metric at each evaluation, over seeds, as far as all of them went.
    fn course(&self, cell: &ExperimentCell, metric: Metric) -> Option<Vec<Sample>> {
        let runs = &self.results.cells.get(&cell.name)?.runs;
        let curves: Vec<&Vec<f64>> = runs.iter().map(|run| run.curves.get(&metric)).collect::<Option<_>>()?;
        let length = curves.iter().map(|curve| curve.len()).min()?;
        Some((0..length).map(|index| Sample::of(curves.iter().map(|curve| curve[index]))).collect())
    }

    /// A line a choice on the series' axis, over the values of another axis.
    fn lines(&self) -> Result<Vec<Series>> {
        let x = |cell: &ExperimentCell| self.figure.x.as_ref().and_then(|axis| cell.values.get(axis).copied());
        let groups = self.groups().into_iter();
        in_order(groups.map(|(name, cells)| (cells[0], self.series(name, &cells, &x).dotted())).collect())
    }

    /// A point a cell, over another metric.
    fn points(&self) -> Result<Vec<Series>> {
        let x = |cell: &ExperimentCell| self.results.sample(&cell.name, self.figure.across()?).map(|sample| sample.mean);
        let labelled = |name: String, cells: &[&ExperimentCell]| {
            let labels = cells.iter().map(|cell| self.rest_of_name(cell)).collect();
            Series { mark: Mark::Points, ..self.series(name, cells, &x).with_labels(labels) }
        };
        in_order(self.groups().into_iter().map(|(name, cells)| (cells[0], labelled(name, &cells))).collect())
    }

    fn series(&self, name: String, cells: &[&ExperimentCell], x: &dyn Fn(&ExperimentCell) -> Option<f64>) -> Series {
        let point = |cell: &&ExperimentCell| Some((x(cell)?, self.results.sample(&cell.name, self.figure.y)?));
        let points: Vec<(f64, Sample)> = cells.iter().filter_map(point).collect();
        let spread = points.iter().map(|(_, y)| y.deviation).collect();
        Series {
            method: method(cells),
            ..Series::line(name, points.iter().map(|(x, y)| (*x, y.mean)).collect()).with_spread(spread)
        }
    }

    fn bars(&self) -> Bars {
        let value = |cell: &&ExperimentCell| self.results.sample(&cell.name, self.figure.y).unwrap_or_default();
        let values: Vec<Sample> = self.cells.iter().map(value).collect();
        let spread = Some(values.iter().map(|value| value.deviation).collect());
        let series = BarSeries { spread, ..BarSeries::new("", values.iter().map(|value| value.mean).collect()) };
        Bars {
            title: self.part.title.clone(),
            value: Axis::new(self.figure.y.title()).starting_at(0.0),
            categories: self.cells.iter().map(|cell| self.name(cell)).collect(),
            series: vec![series],
            stacked: false,
        }
    }

    /// The cells by their choice on the series' axis, in the order in which they come.
    fn groups(&self) -> Vec<(String, Vec<&ExperimentCell>)> {
        let mut groups: Vec<(String, Vec<&ExperimentCell>)> = Vec::new();
        for cell in &self.cells {
            let choice = self.figure.series.as_ref().and_then(|axis| Some(spoken(axis, cell.choices.get(axis)?)));
            let name = choice.unwrap_or_default();
            match groups.iter_mut().find(|(known, _)| *known == name) {
                Some((_, members)) => members.push(cell),
                None => groups.push((name, vec![cell])),
            }
        }
        groups
    }

    fn name(&self, cell: &ExperimentCell) -> String {
        self.name_without(cell, None)
    }

    /// What a cell is called beside others of its series.
    fn rest_of_name(&self, cell: &ExperimentCell) -> String {
        self.name_without(cell, self.figure.series.as_deref())
    }

    fn name_without(&self, cell: &ExperimentCell, left_out: Option<&str>) -> String {
        let choices = self.part.axis.iter().zip(&cell.labels).filter(|(axis, _)| Some(axis.name.as_str()) != left_out);
        choices.map(|(axis, choice)| spoken(&axis.name, choice)).collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::reproduce::{NAMES, find};

    #[test]
    fn numbers_are_named_by_what_they_are_of_and_words_are_not() {
        assert_eq!(
            ["0.001", "softplus", "top-k 5 %"].map(|choice| spoken("rho", choice)),
            ["rho = 0.001", "softplus", "top-k 5 %"]
        );
    }

    #[test]
    fn where_an_experiment_has_several_figures_each_has_a_title_of_its_own() {
        for name in NAMES {
            let spec = find(name).expect("a specification");
            let mut titles: BTreeMap<&str, &str> = BTreeMap::new();
            for figure in spec.part.iter().flat_map(|part| &part.figure) {
                titles.entry(&figure.name).or_insert_with(|| figure.title.as_deref().unwrap_or(&spec.title));
            }
            let distinct: BTreeSet<&str> = titles.values().copied().collect();
            assert_eq!(distinct.len(), titles.len(), "{name}: {titles:?}");
        }
    }
}
