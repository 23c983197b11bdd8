//! Who watches: a federation from its server, or clients that work in this process from their own side.
use std::ops::ControlFlow;

use serde::{Deserialize, Serialize};

use crate::acceptance::Dropped;
use crate::error::Result;
use crate::message::ClientTask;
use crate::metrics::{Evaluation, Round};
use crate::server_state::ServerState;
use crate::state::KeptState;
use crate::stats::{PhaseBytes, PhaseSeconds};

/// What happens in a federation, as it happens.
#[derive(Debug)]
pub enum Event<'a> {
    /// A round is over.
    Round {
        /// What it was.
        round: &'a Round,
        /// Where the time went.
        seconds: &'a RoundSeconds,
    },
    /// All clients have been evaluated.
    Evaluation {
        /// What came out.
        evaluation: &'a Evaluation,
        /// How long it took.
        seconds: f64,
    },
    /// Clients were asked for something and their replies do not count. Told before it is decided whether enough others do.
    Dropped {
        /// Rounds that are over.
        round: u64,
        /// What they were asked to do.
        task: ClientTask,
        /// Who, and why.
        dropped: &'a [Dropped],
    },
    /// The server's state is complete and consistent: a good moment to keep it.
    Settled {
        /// The state.
        server: &'a ServerState,
        /// Whether nothing more will come.
        last: bool,
    },
}

/// Where the time of a round went. Local times are summed over clients, which may have worked side by side.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundSeconds {
    /// From beginning to end.
    pub total: f64,
    /// Local work.
    pub local: PhaseSeconds,
    /// The most memory the local work of one client held.
    pub memory: PhaseBytes,
    /// The server's own step.
    pub server: f64,
    /// Writing, sending and reading messages.
    pub communicate: f64,
}

/// Watches a federation: receives what happens, and may ask to stop.
pub trait Observer<T: ?Sized> {
    /// Takes note of an event. The transport is there for what an observer must do between rounds, such as keeping states.
    fn observe(&mut self, event: &Event<'_>, transport: &mut T) -> Result<ControlFlow<()>>;
}

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

/// For clients that are not watched.
pub(crate) struct Unobserved;

impl ClientObserver for Unobserved {
    fn called(&self, _: ClientTask, _: &[usize]) {}
    fn begins(&self, _: usize, _: &KeptState) {}
    fn ends(&self, _: usize, _: &KeptState) {}
}
