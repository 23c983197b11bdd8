//! What a node lets others take of its device.
//!
//! A message refers to its parts by their ids, and may refer to one of them a hundred thousand times: a few megabytes on the way would be gigabytes in
//! memory. So every part is counted each time it is referred to, before memory is allocated for it.
use crate::{Error, Result};

/// The default for a message: the weights of a network of 64 million parameters.
pub const DEFAULT: usize = 256 << 20;

/// An array may refer to so many chunks; Flower writes one for every 5 MiB.
pub(crate) const MOST_CHUNKS: usize = 20_000;

/// What a node lets others take of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// Bytes of a message, as sent and unpacked.
    pub message: usize,
    /// Bytes of the node's folder. Looked at before a message is stored and before work begins, so that one state and one reply may go beyond.
    pub disk: u64,
    /// Federations of one agreement that the node takes part in. A server could have every round trained again in another federation.
    pub federations: usize,
    /// Requests that may wait for their replies.
    pub waiting: usize,
    /// How often the process may end without a word (it was killed, or ran out of memory, or the power was cut) while it works on one request. Then the request
    /// is dropped, as after a single panic.
    pub deaths: u32,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self { message: DEFAULT, disk: 4 << 30, federations: 1, waiting: 32, deaths: 3 }
    }
}

/// How much of the limit is left for a message.
#[derive(Clone, Debug)]
pub(crate) struct MemoryBudget {
    most: usize,
    left: usize,
}

impl MemoryBudget {
    /// A budget of so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, left: most }
    }

    /// Takes `bytes * times` from the budget; refuses more than is left.
    pub(crate) fn take(&mut self, bytes: usize, times: usize) -> Result<()> {
        let left = bytes.checked_mul(times).and_then(|wanted| self.left.checked_sub(wanted));
        self.left = left.ok_or(Error::TooLarge { most: self.most })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_is_left() {
        let mut budget = MemoryBudget::new(10);
        budget.take(2, 4).expect("8 of 10");
        assert!(budget.take(3, 1).is_err() && budget.take(usize::MAX, 2).is_err());
        budget.take(2, 1).expect("what is left");
    }
}
