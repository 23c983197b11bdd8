//! Who works on what, and until when.
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use serde::{Deserialize, Serialize};

use crate::weights::Weights;

/// The state of an asynchronous federation between two updates: a plain value, which a checkpoint holds like any other.
///
/// PendingUpdate under way is not the work itself but who does it, on which `theta`, and when it is due. It is carried out when it is due;
/// since a client does one thing at a time, that gives the same bytes as carrying it out when it begins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsyncSchedule {
    /// Simulated time, in ticks.
    now: u64,
    /// Updates applied so far.
    applied: u64,
    /// Clients that wait until they may begin, those who have waited longest first.
    waiting: VecDeque<usize>,
    /// PendingUpdate that has begun, in the order in which it is due.
    under_way: BTreeSet<PendingUpdate>,
    /// Every `theta` that a client works on, by the updates applied before it was handed out.
    #[serde(skip)]
    pub(crate) handed_out: BTreeMap<u64, Weights>,
}

/// A piece of work that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PendingUpdate {
    /// When it arrives, in ticks.
    due: u64,
    /// Who does it.
    pub(crate) client: usize,
    /// Updates applied before it began.
    pub(crate) begun: u64,
}

/// How an update arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Arrival {
    /// Simulated time: the fastest client could work for 1,000.
    pub time: u64,
    /// How many updates were applied between the `theta` it is based on and its arrival.
    pub staleness: u64,
}

impl AsyncSchedule {
    /// All clients wait to begin.
    pub(crate) fn new(clients: usize) -> Self {
        Self { waiting: (0..clients).collect(), ..Self::default() }
    }

    /// Updates applied so far.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Hands `theta` to every client that may begin.
    pub(crate) fn begin(&mut self, theta: &Weights, durations: &[u64], max_staleness: u64) {
        while self.staleness_at_worst() <= max_staleness {
            let Some(client) = self.waiting.pop_front() else { break };
            self.under_way.insert(PendingUpdate { due: self.now + durations[client], client, begun: self.applied });
            self.handed_out.entry(self.applied).or_insert_with(|| theta.clone());
        }
    }

    /// How stale the oldest work would be if a client began now and all others arrived before it.
    fn staleness_at_worst(&self) -> u64 {
        let oldest = self.handed_out.keys().next().copied().unwrap_or(self.applied);
        self.applied - oldest + self.under_way.len() as u64
    }

    /// The next pieces of work to arrive, `at_most` so many, as far as they are certain: whoever begins after the first of them
    /// needs at least the `shortest` duration. None of them depends on another, so they can be carried out side by side.
    pub(crate) fn certain(&self, shortest: u64, at_most: usize) -> Vec<PendingUpdate> {
        let first = self.under_way.first().map_or(0, |work| work.due);
        let is_certain = |work: &&PendingUpdate| work.due == first || work.due < first + shortest;
        self.under_way.iter().take_while(is_certain).take(at_most).copied().collect()
    }

    /// A piece of work has arrived, and its client may begin again.
    pub(crate) fn arrive(&mut self, work: PendingUpdate) -> Arrival {
        self.under_way.remove(&work);
        if !self.under_way.iter().any(|other| other.begun == work.begun) {
            self.handed_out.remove(&work.begun);
        }
        let arrival = Arrival { time: work.due, staleness: self.applied - work.begun };
        self.now = work.due;
        self.applied += 1;
        self.waiting.push_back(work.client);
        arrival
    }

    /// A piece of work is over and gave nothing that counts; its client may begin again.
    pub(crate) fn give_up(&mut self, work: PendingUpdate) {
        let applied = self.applied;
        self.arrive(work);
        self.applied = applied;
    }

    /// When the work under way began: the keys that `handed_out` must have.
    pub(crate) fn begun(&self) -> BTreeSet<u64> {
        self.under_way.iter().map(|work| work.begun).collect()
    }

    /// Whether every piece of work has its `theta` and every client is there once: what is read from a file may be anything.
    pub(crate) fn is_sound(&self, clients: usize) -> bool {
        let working = self.under_way.iter().map(|work| work.client);
        let mut known: Vec<usize> = self.waiting.iter().copied().chain(working).collect();
        known.sort_unstable();
        let in_time = self.under_way.iter().all(|work| work.begun <= self.applied && work.due >= self.now);
        in_time && self.begun().iter().eq(self.handed_out.keys()) && known.into_iter().eq(0..clients)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schedule(durations: &[u64], max_staleness: u64) -> AsyncSchedule {
        let mut schedule = AsyncSchedule::new(durations.len());
        schedule.begin(&Weights::default(), durations, max_staleness);
        schedule
    }

    #[test]
    fn what_is_certain_arrives_before_anybody_who_begins_later() {
        let durations = [1000, 1500, 1999, 2000, 9000];
        let mut schedule = schedule(&durations, 100);
        let certain = schedule.certain(1000, 10);
        assert_eq!(certain.iter().map(|work| work.client).collect::<Vec<_>>(), [0, 1, 2]);
        for work in certain {
            schedule.arrive(work);
            schedule.begin(&Weights::default(), &durations, 100);
        }
        assert!(schedule.is_sound(5));
        assert_eq!(schedule.certain(1000, 10)[0].client, 0, "due at 2000 like client 3, and before it by its number");
    }

    #[test]
    fn no_client_begins_that_could_make_another_too_stale() {
        let durations = [1000; 8];
        let mut schedule = schedule(&durations, 3);
        assert_eq!((schedule.under_way.len(), schedule.waiting.len()), (4, 4));
        let first = schedule.certain(1000, 1)[0];
        schedule.arrive(first);
        schedule.begin(&Weights::default(), &durations, 3);
        assert_eq!(schedule.under_way.len(), 3, "one update was applied, so there is room for one piece of work less");
    }

    #[test]
    fn a_schedule_that_lost_something_is_not_sound() {
        let whole = schedule(&[1000, 2000], 5);
        let mut lost = whole.clone();
        lost.handed_out.clear();
        assert!(whole.is_sound(2) && !whole.is_sound(3) && !lost.is_sound(2));
    }
}
