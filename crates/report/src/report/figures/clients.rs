//! How accuracy is spread over clients, and what one of them takes for what.
use fedeq_core::View;

use crate::figure::{Axis, Figure, Heat, HeatCell, Plot, Series};
use crate::report::closeup::{Closeup, Confusion};
use crate::report::line::Line;
use crate::report::{Record, Report};
use fedeq_run::number::counted;

/// More confusions than this are no comparison any more.
const MOST_CONFUSIONS: usize = 8;

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let confusions = report
        .lines
        .iter()
        .zip(&report.closeups)
        .enumerate()
        .filter_map(|(place, (line, closeup))| confusion(place, line, closeup.seen()?));
    std::iter::once(spread(report)).chain(confusions.take(MOST_CONFUSIONS)).collect()
}

/// The accuracies of all clients of a line's runs.
fn accuracies(line: &Line, runs: &[Record], view: View) -> Vec<f64> {
    let members = line.pool(runs).map(|pool| pool.members).unwrap_or_default();
    members.iter().flat_map(|member| member.evaluation.quality(view).clients.clone()).flatten().collect()
}

/// A histogram of one line, sorted clients of several: overlapping histograms cannot be read.
fn spread(report: &Report) -> Figure {
    match &report.lines[..] {
        [line] => histogram(&accuracies(line, &report.runs, report.view), report.view),
        lines => sorted(lines, &report.runs, report.view),
    }
}

fn histogram(accuracies: &[f64], view: View) -> Figure {
    const BINS: usize = 20;
    let bin = |accuracy: f64| ((accuracy * BINS as f64) as usize).min(BINS - 1);
    let count = |place: usize| accuracies.iter().filter(|accuracy| bin(**accuracy) == place).count();
    let middle = |place: usize| (place as f64 + 0.5) / BINS as f64;
    let points = (0..BINS).map(|place| (middle(place), count(place) as f64)).collect();
    let series = vec![Series::bars("clients", 1.0 / BINS as f64, points)];
    let plot = Plot { title: String::new(), x: Axis::percent(label(view)).between(0.0, 1.0), y: Axis::count("clients"), series };
    Figure::new("clients", "Accuracy of clients", vec![plot.into()])
}

fn label(view: View) -> String {
    format!("accuracy, {}", view.name())
}

fn sorted(lines: &[Line], runs: &[Record], view: View) -> Figure {
    let curve = |line: &Line| {
        let mut accuracies = accuracies(line, runs, view);
        accuracies.sort_by(f64::total_cmp);
        let share = |place: usize| (place as f64 + 0.5) / accuracies.len() as f64;
        Series::line(&line.name, accuracies.iter().enumerate().map(|(place, accuracy)| (share(place), *accuracy)).collect())
    };
    let x = Axis::percent("clients, from the worst to the best").between(0.0, 1.0);
    let series = lines.iter().map(curve).collect();
    let plot = Plot { title: String::new(), x, y: Axis::percent(label(view)).between(0.0, 1.0), series };
    Figure::new("clients", "Accuracy of clients, sorted", vec![plot.into()])
}

fn confusion(place: usize, line: &Line, closeup: &Closeup) -> Option<Figure> {
    let (chosen, Confusion { classes, answers, counts }) = (closeup.chosen.as_ref()?, closeup.confusion.seen()?);
    let cells = counts.iter().map(|row| shaded(row)).collect();
    let (x, y) = ("taken for".into(), "is".into());
    let heat = Heat { title: String::new(), x, y, columns: answers.clone(), rows: classes.clone(), cells };
    let title = format!("{}: what {} takes for what", line.name, chosen.name);
    let note = format!("On {} of run {}; shades are shares of a row.", counted(chosen.test, "test sample"), closeup.run);
    Some(Figure::new(format!("confusion-{}", place + 1), title, vec![heat.into()]).with_note(note))
}

fn shaded(row: &[usize]) -> Vec<HeatCell> {
    let whole = row.iter().sum::<usize>().max(1);
    let text = |count: usize| if count == 0 { String::new() } else { fedeq_run::number::count(count) };
    row.iter().map(|count| HeatCell { shade: *count as f64 / whole as f64, text: text(*count) }).collect()
}
