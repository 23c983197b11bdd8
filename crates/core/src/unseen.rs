//! Clients that are met only after training.
use serde::{Deserialize, Serialize};

use crate::acceptance::Replies;
use crate::error::Result;
use crate::message::ClientTask;
use crate::metrics::{Evaluation, Quality};
use crate::server::Server;
use crate::server_state::ServerState;
use crate::transport::Transport;

/// What unseen clients reach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Unseen {
    /// How many there are.
    pub clients: usize,
    /// With the model each has made its own.
    pub local: Quality,
    /// With the shared part as the server has it, where something is shared.
    pub shared: Option<Quality>,
}

impl<T: Transport> Server<'_, T> {
    /// Lets unseen clients make the shared part their own.
    pub fn meet_unseen(&mut self, server: &ServerState, unseen: &[usize]) -> Result<()> {
        if unseen.is_empty() {
            return Ok(());
        }
        self.ask_afterwards(server, ClientTask::Adopt, unseen).map(|_| ())
    }

    /// Evaluates unseen clients; nothing if there are none.
    pub fn evaluate_unseen(&mut self, server: &ServerState, unseen: &[usize]) -> Result<Option<Unseen>> {
        if unseen.is_empty() {
            return Ok(None);
        }
        let replies = self.ask_afterwards(server, ClientTask::Evaluate, unseen)?;
        let Evaluation { local, shared, .. } = self.evaluated(server.round, unseen, replies);
        Ok(Some(Unseen { clients: local.clients.len(), local, shared }))
    }

    fn ask_afterwards(&mut self, server: &ServerState, task: ClientTask, unseen: &[usize]) -> Result<Replies> {
        let round = server.round;
        self.ask(server, task, unseen, &mut []).map_err(|error| error.diverged_at(|| format!("after round {round},")))
    }
}
