//! Clients that bring their own samples, of which at most one is here.
use super::plan::MOST_CLIENTS;
use crate::{Error, Result};

/// So many clients, and which of them the samples here belong to.
pub(super) struct Own {
    clients: usize,
    here: Option<usize>,
}

impl Own {
    pub(super) fn of(clients: usize, here: Option<usize>) -> Result<Self> {
        if (1..=MOST_CLIENTS).contains(&clients) {
            return Ok(Self { clients, here });
        }
        let problem = format!("`{clients}` clients cannot bring their own samples");
        Err(Error::unmeetable(problem, format!("ask for 1 to {MOST_CLIENTS} clients")))
    }

    pub(super) fn clients(&self) -> usize {
        self.clients
    }

    /// Gives everything to the one who is here; what the others hold cannot be seen from here.
    pub(super) fn deal(&self, pool: &[u32]) -> Vec<Vec<u32>> {
        let mut hands = vec![Vec::new(); self.clients];
        if let Some(hand) = self.here.and_then(|client| hands.get_mut(client)) {
            hand.extend_from_slice(pool);
        }
        hands
    }
}
