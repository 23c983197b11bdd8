//! The way to clients elsewhere: who carries messages there, what goes, what comes back, and what a link may ask meanwhile.
use std::sync::Arc;

use fedeq_core::{Dropped, Request, Result, Weights, encoded_len, framed_len};

use super::super::control::PauseGate;
use super::super::folder::RunFolder;
use super::super::journal::Journal;
use super::super::progress::ProgressTracker;
use super::super::record::FailedReply;

/// Carries messages to clients elsewhere and their replies back.
pub trait ClientLink {
    /// Waits until clients `0..clients` can be reached, and says which cannot, and why.
    fn gather(&mut self, clients: usize, context: &LinkContext) -> Result<Vec<Dropped>>;

    /// Sends each client its request; replies come in the same order.
    fn exchange(
        &mut self,
        requests: &[Outgoing<'_>],
        context: &LinkContext,
    ) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>>;
}

/// What a link may ask and tell while it waits.
#[derive(Clone)]
pub struct LinkContext {
    pub(super) gate: Arc<PauseGate>,
    pub(super) progress: Arc<ProgressTracker>,
    pub(super) folder: RunFolder,
    pub(super) round: u64,
}

impl LinkContext {
    /// Whether it was asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.gate.is_stopped()
    }

    /// A client has replied.
    pub fn replied(&self, client: usize) {
        self.progress.replied(client);
    }

    /// A node says that it is a client, and is not taken for it. Written down, so that it can be found.
    pub fn refused(&self, node: &str, client: usize, reason: &str) -> Result<()> {
        let Dropped { reason, .. } = Dropped::new(client, reason);
        let failure = FailedReply { round: self.round, task: None, client, reason, node: Some(node.into()) };
        Journal::open(self.folder.failures_file())?.json(&failure)
    }

    /// Waits as long as the run is paused. True means stop.
    pub(super) fn stops(&self, interrupted: &dyn Fn() -> bool) -> bool {
        self.gate.stops(interrupted)
    }
}

/// A reply as it came from a node: read, and not yet checked.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedReply {
    /// Everything but the weights, as JSON.
    pub header: String,
    /// The weights; none where the reply has none.
    pub weights: Weights,
    /// What was sent in place of weights: what a codec wrote.
    pub payload: Option<Vec<u8>>,
}

/// A request to one client.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Whom it is for.
    pub client: usize,
    /// What is asked. Clients that are asked the same share it.
    pub request: &'a Request,
    /// What is sent to this client in place of the weights.
    pub payload: Option<&'a [u8]>,
}

impl ReceivedReply {
    /// The bytes it took on the wire.
    pub(super) fn len(&self) -> u64 {
        match &self.payload {
            Some(payload) => framed_len(&self.header, payload.len()),
            None => encoded_len(self.header.clone(), &self.weights),
        }
    }
}
