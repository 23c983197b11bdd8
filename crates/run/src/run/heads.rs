//! What becomes of the clients' personal heads, seen from the clients' own side. No head ever reaches the server or this journal:
//! only how large it is, and how far it moved.
use std::ops::ControlFlow;

use fedeq_core::{Event, Observer, Params, Result};
use serde::{Deserialize, Serialize};

use super::activity::Board;
use super::folder::RunFolder;
use super::journal::Journal;

/// One line of `heads.jsonl`: the heads trained in a round.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Heads {
    /// Rounds that were over.
    pub round: u64,
    /// In order of their clients.
    pub heads: Vec<Head>,
}

/// What training did to a client's head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Head {
    /// Whose it is.
    pub client: usize,
    /// `||w_i||` afterwards.
    pub norm: f64,
    /// `||w_i - w_i before||`.
    pub moved: f64,
}

impl Head {
    pub(super) fn between(client: usize, before: &Params, after: &Params) -> Self {
        Self { client, norm: after.norm(), moved: after.minus(before).norm() }
    }
}

/// Writes the journal of heads.
pub(super) struct HeadRecorder<'a> {
    board: &'a Board,
    journal: Journal,
}

impl<'a> HeadRecorder<'a> {
    /// Goes on where the journal ends.
    pub(super) fn open(folder: &RunFolder, board: &'a Board) -> Result<Self> {
        Ok(Self { board, journal: Journal::open(folder.heads_file())? })
    }
}

impl<T: ?Sized> Observer<T> for HeadRecorder<'_> {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Settled { server, .. } = event {
            let heads = self.board.settle(server.round);
            self.journal.json(&Heads { round: server.round, heads })?;
        }
        Ok(ControlFlow::Continue(()))
    }
}
