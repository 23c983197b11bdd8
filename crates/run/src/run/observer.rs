//! Who watches a run.
use std::ops::ControlFlow;

use fedeq_core::{Evaluation, Event, InProcess, Observer, Result};

/// Whoever watches a run: an [`Observer`] of its federation, whose clients are simulated.
pub type RunObserver<'a> = dyn for<'t> Observer<InProcess<'t>> + 'a;

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
