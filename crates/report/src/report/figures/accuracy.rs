//! Accuracy over rounds and over megabytes.
use fedeq_core::View;

use super::{about_bands, curve};
use crate::figure::{Axis, Figure, Panel, Plot, Series};
use crate::report::Report;
use crate::report::line::{Line, megabytes};

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let mut figures = vec![figure("accuracy-over-rounds", "Accuracy over rounds", over_rounds(report))];
    if report.runs.iter().filter_map(|run| run.last()).any(|evaluation| evaluation.traffic.total() > 0) {
        figures.push(figure("accuracy-over-megabytes", "Accuracy over megabytes sent", over_megabytes(report)));
    }
    figures
}

fn figure(name: &str, title: &str, plots: Vec<Plot>) -> Figure {
    let note = about_bands(&plots.iter().flat_map(|plot| plot.series.clone()).collect::<Vec<_>>());
    Figure::new(name, title, plots.into_iter().map(Panel::from).collect()).with_note(note)
}

/// What a view is called above a panel.
fn called(view: View) -> &'static str {
    match view {
        View::Local => "local: clients' own models",
        View::Shared => "shared: the server's model with clients' heads",
    }
}

fn plot(title: &str, x: Axis, series: Vec<Series>) -> Plot {
    Plot { title: title.into(), x, y: Axis::percent("accuracy, mean over clients"), series }
}

/// A panel a view with a curve a line; a single line has a curve a view.
fn over_rounds(report: &Report) -> Vec<Plot> {
    let curve_of = |name: &str, line: &Line, view: View| {
        let points = line.over_evaluations(&report.runs, |evaluation| Some(evaluation.quality(view).mean));
        curve(name, points.into_iter().map(|(round, sample)| (round as f64, sample)))
    };
    if let [line] = &report.lines[..] {
        let shares = report.runs.iter().filter_map(|run| run.last()).any(|evaluation| evaluation.shared.is_some());
        let views = View::ALL.into_iter().filter(|view| *view == View::Local || shares);
        return vec![plot("", Axis::count("rounds"), views.map(|view| curve_of(called(view), line, view)).collect())];
    }
    let panel = |view: View| {
        let series = report.lines.iter().map(|line| curve_of(&line.name, line, view)).collect();
        plot(called(view), Axis::count("rounds"), series)
    };
    View::ALL.map(panel).to_vec()
}

/// By the view in which lines are compared.
fn over_megabytes(report: &Report) -> Vec<Plot> {
    let sent_and_reached = |line: &Line| {
        let sent = line.over_evaluations(&report.runs, |evaluation| Some(megabytes(evaluation)));
        let reached = line.over_evaluations(&report.runs, |evaluation| Some(evaluation.quality(report.view).mean));
        curve(&line.name, sent.into_values().map(|sample| sample.mean).zip(reached.into_values()))
    };
    let axis = Axis::new("megabytes sent in both directions, so far").starting_at(0.0);
    vec![plot(called(report.view), axis, report.lines.iter().map(sent_and_reached).collect())]
}
