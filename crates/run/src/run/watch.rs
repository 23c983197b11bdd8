//! Who looks on while a run is carried out.
use std::ops::ControlFlow;

use fedeq_core::{Evaluation, Event, Observer, Result, View};

use super::disk::Disk;

/// Sees a run as it happens, and changes nothing.
pub trait Watch: Send {
    /// The run begins, or goes on.
    fn begin(&mut self, _brief: &Brief) {}

    /// Something happened.
    fn see(&mut self, event: &Event<'_>);

    /// It is over, for better or worse.
    fn end(&mut self) {}
}

/// What a run is about to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Brief {
    /// What it is, in a line.
    pub title: String,
    /// Rounds that are over.
    pub round: u64,
    /// Rounds in all.
    pub rounds: u64,
    /// By which of a client's models the method is judged.
    pub headline: View,
    /// How much disk it will take.
    pub disk: Disk,
    /// The most bytes that the fixed points remembered for warm starts take, a client at work.
    pub warm_bytes: Option<u64>,
}

/// Says nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Watch for Silent {
    fn see(&mut self, _: &Event<'_>) {}
}

/// Passes events to a watch, and remembers the last evaluation.
pub(super) struct Onlooker<'a> {
    pub(super) watch: &'a mut dyn Watch,
    pub(super) last: Option<Evaluation>,
}

impl<T: ?Sized> Observer<T> for Onlooker<'_> {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Evaluation { evaluation, .. } = event {
            self.last = Some((*evaluation).clone());
        }
        self.watch.see(event);
        Ok(ControlFlow::Continue(()))
    }
}
