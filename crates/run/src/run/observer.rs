//! Who watches a run.
//!
//! | | watches |
//! |---|---|
//! | [`Observer`] of core | what the server of any federation does |
//! | [`SimulationObserver`] | the same where clients are simulated, whose states it may keep |
//! | [`FederationObserver`] | the same where clients are elsewhere |
//! | [`ClientObserver`](fedeq_core::ClientObserver) of core | simulated clients at work, from their side |
//!
//! [`Warnings`] is what a person who watches should know meanwhile.
use std::ops::ControlFlow;

use fedeq_core::{Evaluation, Event, InProcess, Observer, Result, SolveTally, StoodStill};

use super::federated::Remote;
use crate::number::{count, counted, percent};

/// An [`Observer`] of a run whose clients are simulated.
pub type SimulationObserver<'a> = dyn for<'t> Observer<InProcess<'t>> + 'a;

/// An [`Observer`] of a run whose clients are elsewhere.
pub type FederationObserver<'a> = dyn for<'t> Observer<Remote<'t>> + 'a;

/// Takes note of nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl<T: ?Sized> Observer<T> for Silent {
    fn observe(&mut self, _: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        Ok(ControlFlow::Continue(()))
    }
}

/// Remembers the last evaluation.
#[derive(Debug, Default)]
pub(super) struct LastEvaluation(pub(super) Option<Evaluation>);

impl<T: ?Sized> Observer<T> for LastEvaluation {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Evaluation { evaluation, .. } = event {
            self.0 = Some((*evaluation).clone());
        }
        Ok(ControlFlow::Continue(()))
    }
}

/// More than this share of a round's solves without convergence is worth a word.
const MANY: f64 = 0.5;

/// Warns about solves that fail: once for each way of failing. How many there were in all stands in the summary.
#[derive(Debug, Default)]
pub struct Warnings {
    not_finite: bool,
    unconverged: bool,
}

impl Warnings {
    /// What there is to say about an event that has not been said yet.
    pub fn about(&mut self, event: &Event<'_>) -> Option<String> {
        match event {
            Event::Round { round, .. } => {
                self.about_solves(&round.solves).map(|text| format!("warning: in round {}, {text}", round.round + 1))
            }
            Event::Evaluation { evaluation, .. } => evaluation.stood_still.as_ref().map(about_the_end),
            Event::Dropped { .. } | Event::Settled { .. } => None,
        }
    }

    fn about_solves(&mut self, solves: &SolveTally) -> Option<String> {
        let SolveTally { samples, unconverged, not_finite, .. } = *solves;
        let of = |part: u64| format!("{} of {} equilibrium solves", count(part as usize), count(samples as usize));
        if not_finite > 0 && !std::mem::replace(&mut self.not_finite, true) {
            let hint = "check `model.equilibrium.solver`, or lower `training.learning_rate`";
            return Some(format!("{} became NaN or infinite; {hint}", of(not_finite)));
        }
        let slow = unconverged - not_finite.min(unconverged);
        if slow as f64 > MANY * samples as f64 && !std::mem::replace(&mut self.unconverged, true) {
            let hint = "allow more with `model.equilibrium.stop.max_steps`, or choose another `model.equilibrium.solver`";
            return Some(format!("{} did not converge to the tolerance; {hint}", of(slow)));
        }
        None
    }
}

/// That training ends before the plan does.
fn about_the_end(end: &StoodStill) -> String {
    let StoodStill { last_round, planned, best, evaluations } = end;
    let since = counted(*evaluations as usize, "evaluation");
    format!(
        "early stopping: no better validation accuracy than {} in the last {since}; round {last_round} of {planned} is the last",
        percent(*best)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn solves(unconverged: u64, not_finite: u64) -> SolveTally {
        SolveTally { samples: 100, unconverged, not_finite, ..SolveTally::default() }
    }

    #[test]
    fn every_way_of_failing_is_told_once() {
        let mut warnings = Warnings::default();
        assert_eq!(warnings.about_solves(&solves(50, 0)), None);
        assert!(
            warnings.about_solves(&solves(51, 0)).is_some_and(|text| text.starts_with("51 of 100 equilibrium solves did not"))
        );
        assert_eq!(warnings.about_solves(&solves(99, 0)), None);
        assert!(warnings.about_solves(&solves(99, 7)).is_some_and(|text| text.starts_with("7 of 100 equilibrium solves became")));
        assert_eq!(warnings.about_solves(&solves(100, 100)), None);
    }
}
