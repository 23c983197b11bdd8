//! What equilibrium solves take.
use super::consensus::{figure, over_rounds};
use crate::figure::{Axis, Figure};
use crate::report::Report;

pub(super) fn figures(report: &Report) -> Vec<Figure> {
    let mean = |part: usize| over_rounds(report, move |round| round.solves.means().map(|means| means[part]));
    let steps = figure("solver-steps", "Solver steps", Axis::new("steps a sample").starting_at(0.0), mean(0));
    let residual = figure("solver-residual", "Relative residual", Axis::log("mean over samples, after the solve"), mean(1));
    let unconverged = figure("solver-unconverged", "Samples that did not converge", Axis::percent("share of samples"), mean(2));
    let warm = over_rounds(report, |round| round.solves.warm_share());
    let warm = figure("solver-warm", "Solves that started warm", Axis::percent("share of samples"), warm);
    [steps, residual, unconverged, warm].into_iter().flatten().collect()
}
