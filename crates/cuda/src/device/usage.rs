//! What of the device's memory is taken by this program: how much, and where.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fedeq_core::{Error, Result};

/// All buffers there are.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    now: AtomicU64,
    peak: AtomicU64,
    buffers: Mutex<Buffers>,
}

#[derive(Debug, Default)]
struct Buffers {
    /// By their addresses.
    alive: BTreeMap<u64, Taken>,
    /// How many there have been.
    made: u64,
    /// Those that work being recorded has named so far.
    recorded: Option<BTreeSet<Named>>,
}

/// A buffer's memory.
#[derive(Clone, Copy, Debug)]
struct Taken {
    bytes: u64,
    number: u64,
}

/// A buffer by its address and its number, which no later one at that address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Named {
    address: u64,
    number: u64,
}

/// As long as it exists no buffer is given back.
pub(super) struct Held<'a> {
    _buffers: MutexGuard<'a, Buffers>,
}

impl Usage {
    /// A buffer was made.
    pub(super) fn take(&self, address: u64, bytes: u64) {
        let mut buffers = self.buffers();
        buffers.made += 1;
        let number = buffers.made;
        buffers.alive.insert(address, Taken { bytes, number });
        drop(buffers);
        let now = self.now.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.peak.fetch_max(now, Ordering::Relaxed);
    }

    /// A buffer is about to be freed.
    pub(super) fn give_back(&self, address: u64, bytes: u64) {
        self.buffers().alive.remove(&address);
        self.now.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Bytes at present, and at most so far.
    pub(crate) fn bytes(&self) -> (u64, u64) {
        (self.now.load(Ordering::Relaxed), self.peak.load(Ordering::Relaxed))
    }

    /// Keeps all buffers, if these places, each an address and its bytes, lie in buffers; refuses them otherwise.
    pub(super) fn hold(&self, places: &[(u64, usize)]) -> Result<Held<'_>> {
        let mut buffers = self.buffers();
        let named = places.iter().map(|&(address, bytes)| buffers.with(address, bytes)).collect::<Option<Vec<_>>>();
        let named = named.ok_or_else(outside)?;
        if let Some(recorded) = &mut buffers.recorded {
            recorded.extend(named);
        }
        Ok(Held { _buffers: buffers })
    }

    /// From now on it is noted which buffers are named by what is [held](Self::hold).
    pub(super) fn start_recording(&self) {
        self.buffers().recorded = Some(BTreeSet::new());
    }

    /// The buffers that were named since then; no more are noted.
    pub(super) fn end_recording(&self) -> Vec<Named> {
        self.buffers().recorded.take().into_iter().flatten().collect()
    }

    /// Keeps all buffers, if these are among them; nothing if one has been given back, also where another has its address by now.
    pub(super) fn hold_named(&self, named: &[Named]) -> Option<Held<'_>> {
        let buffers = self.buffers();
        let is_alive = |one: &Named| buffers.alive.get(&one.address).is_some_and(|taken| taken.number == one.number);
        named.iter().all(is_alive).then_some(Held { _buffers: buffers })
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffers {
    /// The buffer that has all of these bytes.
    fn with(&self, address: u64, bytes: usize) -> Option<Named> {
        let (&start, taken) = self.alive.range(..=address).next_back()?;
        let before = address - start;
        let inside = before <= taken.bytes && bytes as u64 <= taken.bytes - before;
        inside.then_some(Named { address: start, number: taken.number })
    }
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

    #[test]
    fn what_was_recorded_is_held_only_as_long_as_its_very_buffers_are_there() {
        let usage = Usage::default();
        for address in [1000, 2000, 3000] {
            usage.take(address, 100);
        }
        assert!(usage.hold(&[(3000, 4)]).is_ok());
        usage.start_recording();
        assert!(usage.hold(&[(1000, 8), (2040, 0)]).is_ok() && usage.hold(&[(1010, 4)]).is_ok());
        let named = usage.end_recording();
        assert!(usage.hold(&[(3000, 4)]).is_ok());
        assert_eq!(named.iter().map(|one| one.address).collect::<Vec<_>>(), [1000, 2000], "each once, and no others");
        usage.give_back(3000, 100);
        assert!(usage.hold_named(&named).is_some());
        usage.give_back(2000, 100);
        assert!(usage.hold_named(&named).is_none());
        usage.take(2000, 100);
        assert!(usage.hold_named(&named).is_none(), "another one is not the same, wherever it is");
    }
}
