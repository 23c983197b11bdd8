//! Who looks on while clients work in this process.
use crate::message::Task;
use crate::state::ClientState;

/// Sees simulated clients at work, from their own side: what it learns never reaches the server. It changes nothing.
///
/// Clients work side by side, so this is called from several threads.
pub trait Witness: Sync {
    /// These clients were asked to do something, and wait for their turn.
    fn called(&self, task: Task, clients: &[usize]);

    /// A client begins, from this state.
    fn begins(&self, client: usize, state: &ClientState);

    /// A client is done, and this is its state now.
    fn ends(&self, client: usize, state: &ClientState);
}

/// Does not look.
pub(crate) struct Nobody;

impl Witness for Nobody {
    fn called(&self, _: Task, _: &[usize]) {}
    fn begins(&self, _: usize, _: &ClientState) {}
    fn ends(&self, _: usize, _: &ClientState) {}
}
