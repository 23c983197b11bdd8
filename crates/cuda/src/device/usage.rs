//! What of the device's memory is taken by this program: how much, and where.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedeq_core::{Error, Result};

/// All buffers there are.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    now: AtomicU64,
    peak: AtomicU64,
    /// The bytes of every buffer by its address.
    buffers: Mutex<BTreeMap<u64, u64>>,
}

/// As long as it exists no buffer is given back.
pub(super) struct Held<'a> {
    _buffers: MutexGuard<'a, BTreeMap<u64, u64>>,
}

impl Usage {
    /// A buffer was made.
    pub(super) fn take(&self, address: u64, bytes: u64) {
        self.buffers().insert(address, bytes);
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// A buffer is about to be freed.
    pub(super) fn give_back(&self, address: u64, bytes: u64) {
        self.buffers().remove(&address);
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes at present, and at most so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.now.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }

    /// Keeps all buffers, if these places, each an address and its bytes, lie in buffers; refuses them otherwise.
    pub(super) fn hold(&self, places: &[(u64, usize)]) -> Result<Held<'_>> {
        let buffers = self.buffers();
        if places.iter().all(|&(address, bytes)| contains(&buffers, address, bytes)) {
            Ok(Held { _buffers: buffers })
        } else {
            Err(outside())
        }
    }

    fn buffers(&self) -> MutexGuard<'_, BTreeMap<u64, u64>> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether one of the buffers has all of these bytes.
fn contains(buffers: &BTreeMap<u64, u64>, address: u64, bytes: usize) -> bool {
    let last = buffers.range(..=address).next_back();
    last.is_some_and(|(&start, &size)| {
        let before = address - start;
        before <= size && bytes as u64 <= size - before
    })
}

/// What is said of a place that no buffer has.
pub(super) fn outside() -> Error {
    Error::invalid("memory of the GPU was to be used that is in no buffer", "report this as a bug")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_in_one_living_buffer_is_held() {
        let usage = Usage::default();
        usage.take(1000, 100);
        usage.take(1100, 50);
        let holds = |address: u64, bytes: usize| usage.hold(&[(address, bytes)]).is_ok();
        assert!(holds(1000, 100) && holds(1040, 60) && holds(1100, 50) && holds(1150, 0));
        assert!(!holds(999, 1) && !holds(1040, 61) && !holds(1149, 2) && !holds(1151, 0) && !holds(0, 4));
        assert!(!holds(1000, usize::MAX), "sums do not overflow");
        assert!(usage.hold(&[(1000, 1), (2000, 1)]).is_err(), "all places count");
        usage.give_back(1000, 100);
        assert!(!holds(1000, 1) && holds(1100, 50));
        assert_eq!(usage.bytes(), (50, 150));
    }
}
