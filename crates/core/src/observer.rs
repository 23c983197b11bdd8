//! Who looks on while clients work in this process.
use crate::message::ClientTask;
use crate::state::KeptState;

/// Sees simulated clients at work, from their own side: what it learns never reaches the server. It changes nothing.
///
/// Clients work side by side, so this is called from several threads.
pub trait ClientObserver: Sync {
    /// These clients were asked to do something, and wait for their turn.
    fn called(&self, task: ClientTask, clients: &[usize]);

    /// A client begins, from this state.
    fn begins(&self, client: usize, state: &KeptState);

    /// A client is done, and this is its state now.
    fn ends(&self, client: usize, state: &KeptState);
}

/// Does not look.
pub(crate) struct Nobody;

impl ClientObserver for Nobody {
    fn called(&self, _: ClientTask, _: &[usize]) {}
    fn begins(&self, _: usize, _: &KeptState) {}
    fn ends(&self, _: usize, _: &KeptState) {}
}
