//! What becomes of the clients' personal heads, seen from the clients' own side. No head ever reaches the server or this journal:
//! only how large it is, and how far it moved.
use std::ops::ControlFlow;

use fedeq_core::{Event, Observer, Params, Result};
use serde::{Deserialize, Serialize};

use super::activity::Board;
use super::folder::RunFolder;
use super::journal::{Journal, keep_lines};

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
    /// Goes on after so many rounds.
    pub(super) fn open(folder: &RunFolder, after: u64, board: &'a Board) -> Result<Self> {
        let path = folder.heads_file();
        keep_lines(&path, |line| serde_json::from_str(line).is_ok_and(|line: Heads| line.round <= after))?;
        Ok(Self { board, journal: Journal::open(path)? })
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
