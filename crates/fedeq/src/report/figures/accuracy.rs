//! Accuracy over rounds and over megabytes.
use fedeq_core::View;

use super::{about_bands, curve};
use crate::figure::{Axis, Figure, Plot, Series};
use crate::report::Report;
use crate::report::line::{Line, accuracy, megabytes};

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let (rounds, bytes) = (over_rounds(report), over_megabytes(report));
    let mut figures = vec![figure("accuracy-over-rounds", "Accuracy over rounds", Axis::count("rounds"), rounds)];
    if bytes.iter().flat_map(|series| &series.points).any(|(sent, _)| *sent > 0.0) {
        let axis = Axis::new("megabytes sent in both directions, so far").starting_at(0.0);
        figures.push(figure("accuracy-over-megabytes", "Accuracy over megabytes sent", axis, bytes));
    }
    figures
}

fn figure(name: &str, title: &str, x: Axis, series: Vec<Series>) -> Figure {
    let note = about_bands(&series);
    let plot = Plot { title: String::new(), x, y: Axis::percent("accuracy, mean over clients"), series };
    Figure::new(name, title, vec![plot.into()]).with_note(note)
}

/// A curve a line by the model it is judged by; a single line has one for each of its models.
fn over_rounds(report: &Report) -> Vec<Series> {
    let [line] = &report.lines[..] else { return report.lines.iter().map(|line| judged(report, line)).collect() };
    let views = [("with theta_i and w_i", View::Local), ("with theta and w_i", View::Shared)];
    let view = |(name, view): (&str, View)| {
        let points = line.over_evaluations(&report.runs, |_, evaluation| accuracy(evaluation, view, false));
        curve(name, points.into_iter().map(|(round, sample)| (round as f64, sample)))
    };
    views.into_iter().map(view).filter(|series| !series.points.is_empty()).collect()
}

fn judged(report: &Report, line: &Line) -> Series {
    let points = line.over_evaluations(&report.runs, |run, evaluation| Some(run.quality(evaluation).mean));
    curve(&line.name, points.into_iter().map(|(round, sample)| (round as f64, sample)))
}

fn over_megabytes(report: &Report) -> Vec<Series> {
    let sent_and_reached = |line: &Line| {
        let sent = line.over_evaluations(&report.runs, |_, evaluation| Some(megabytes(evaluation)));
        let reached = line.over_evaluations(&report.runs, |run, evaluation| Some(run.quality(evaluation).mean));
        curve(&line.name, sent.into_values().map(|sample| sample.mean).zip(reached.into_values()))
    };
    report.lines.iter().map(sent_and_reached).collect()
}
