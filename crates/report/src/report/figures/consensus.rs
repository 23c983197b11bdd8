//! How training goes: loss, consensus and, where it was measured, theory.
use fedeq_core::{Evaluation, Round, TheorySums};

use super::{about_bands, curve, says_something};
use crate::figure::{Axis, Figure, Plot, Series};
use crate::report::Report;

/// A picture over evaluations: name, title, axis and measure.
type Measured = (&'static str, &'static str, fn() -> Axis, fn(&Evaluation) -> Option<f64>);

const OVER_EVALUATIONS: [Measured; 5] = [
    ("consensus-gap", "Consensus gap", || Axis::new("mean of ‖theta_i − theta‖"), |evaluation| Some(evaluation.gap)),
    ("dual-norm", "Dual norm", || Axis::new("mean of ‖lambda_i‖"), |evaluation| Some(evaluation.dual_norm)),
    (
        "lagrangian",
        "Augmented Lagrangian",
        || Axis::new("sum over clients"),
        |evaluation| theory(evaluation, |sums| sums.lagrangian),
    ),
    ("stationarity", "Stationarity", || Axis::log("squared norm"), |evaluation| theory(evaluation, |sums| sums.stationarity)),
    (
        "head-gradient",
        "Gradient of the heads",
        || Axis::log("squared norm"),
        |evaluation| theory(evaluation, |sums| sums.head_gradient),
    ),
];

fn theory(evaluation: &Evaluation, part: fn(&TheorySums) -> f64) -> Option<f64> {
    evaluation.theory.as_ref().map(part)
}

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let over_evaluations = OVER_EVALUATIONS.into_iter().map(|(name, title, axis, measure)| {
        let series = report.lines.iter().map(|line| {
            let points = line.over_evaluations(&report.runs, measure);
            curve(&line.name, points.into_iter().map(|(round, sample)| (round as f64, sample)))
        });
        figure(name, title, axis(), series.collect())
    });
    let loss = figure(
        "training-loss",
        "Training loss",
        Axis::new("mean over the round's clients"),
        over_rounds(report, |round| Some(round.loss)),
    );
    std::iter::once(loss).chain(over_evaluations).flatten().collect()
}

/// A curve a line over rounds.
pub(super) fn over_rounds(report: &Report, measure: impl Fn(&Round) -> Option<f64>) -> Vec<Series> {
    report.lines.iter().map(|line| curve(&line.name, line.over_rounds(&report.runs, &measure))).collect()
}

/// A picture over rounds; nothing if there is nothing to be seen. Lines that do not have it keep their colour but are not named.
pub(super) fn figure(name: &str, title: &str, y: Axis, series: Vec<Series>) -> Option<Figure> {
    let coloured = series.into_iter().enumerate().map(|(place, series)| series.coloured(place));
    let series: Vec<Series> = coloured.filter(|series| says_something(std::slice::from_ref(series))).collect();
    let note = about_bands(&series);
    let is_empty = series.is_empty();
    let plot = Plot { title: String::new(), x: Axis::count("rounds"), y, series };
    (!is_empty).then(|| Figure::new(name, title, vec![plot.into()]).with_note(note))
}
