//! Every picture of a report. Each is there only where there is something to be seen on it.
mod accuracy;
mod clients;
mod consensus;
mod cost;
mod solver;

use super::Report;
use super::line::Point;
use crate::figure::{Figure, Series};

/// All of them, in the order of the page.
pub(super) fn all(report: &Report) -> Vec<Figure> {
    [
        accuracy::figures(report),
        clients::figures(report),
        consensus::figures(report),
        solver::figures(report),
        cost::figures(report),
    ]
    .concat()
}

/// The pictures of one part of the page.
pub(super) fn part(report: &Report, part: Part) -> Vec<Figure> {
    match part {
        Part::Accuracy => accuracy::figures(report),
        Part::Clients => clients::figures(report),
        Part::Consensus => consensus::figures(report),
        Part::Solver => solver::figures(report),
        Part::Cost => cost::figures(report),
    }
}

/// A part of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Accuracy,
    Clients,
    Consensus,
    Solver,
    Cost,
}

/// A curve over seeds, with a band where there are several.
fn curve(name: &str, points: impl IntoIterator<Item = Point>) -> Series {
    let points: Vec<Point> = points.into_iter().collect();
    let series = Series::line(name, points.iter().map(|(x, sample)| (*x, sample.mean)).collect());
    if points.iter().all(|(_, sample)| sample.count < 2) {
        return series;
    }
    series.with_spread(points.iter().map(|(_, sample)| sample.deviation).collect())
}

/// Whether there is anything to be seen: a value that is not zero.
fn says_something(series: &[Series]) -> bool {
    series.iter().flat_map(|series| &series.points).any(|(_, y)| y.is_finite() && *y != 0.0)
}

/// What a band around a curve means, if there is one.
fn about_bands(series: &[Series]) -> &'static str {
    if series.iter().any(|series| series.spread.is_some()) { "Bands: one standard deviation over seeds." } else { "" }
}
