//! What is kept ready between phases and rounds: runners and the memory of warm starts.
use fedeq_core::Result;
use fedeq_equilibrium::WarmStart;

use super::runner::Runner;
use super::state::Home;
use super::warm::Memory;
use crate::plan::Purpose;

/// Runners that are kept: those of the phases of a round and of an evaluation, and some to spare.
const KEPT: usize = 6;

/// Whatever one piece of work after the other needs; one at a time.
#[derive(Default)]
pub(crate) struct Workshop {
    /// The one used last comes first.
    runners: Vec<Runner>,
    memory: Option<Memory>,
}

impl Workshop {
    /// A runner for a purpose, which nobody else has while it is used.
    pub(crate) fn take(&mut self, home: &Home, purpose: Purpose) -> Result<Runner> {
        match self.runners.iter().position(|runner| runner.executor.purpose == purpose) {
            Some(at) => Ok(self.runners.remove(at)),
            None => {
                self.runners.truncate(KEPT - 1);
                // Out of memory: what is kept for later gives way.
                Runner::new(home, purpose).or_else(|_| {
                    self.runners.clear();
                    Runner::new(home, purpose)
                })
            }
        }
    }

    pub(crate) fn put_back(&mut self, runner: Runner) {
        self.runners.insert(0, runner);
        self.runners.truncate(KEPT);
    }

    /// The bytes of runners that are kept, but for those of these purposes.
    pub(crate) fn bytes_but(&self, purposes: &[Purpose]) -> u64 {
        let others = self.runners.iter().filter(|runner| !purposes.contains(&runner.executor.purpose));
        others.map(Runner::bytes_in_use).sum()
    }

    /// Gives back everything that these purposes have no use for.
    pub(crate) fn keep_only(&mut self, purposes: &[Purpose]) {
        self.runners.retain(|runner| purposes.contains(&runner.executor.purpose));
    }

    /// Memory of fixed points for so many lanes with so many slots, with nothing in it; nothing where there are no slots.
    pub(crate) fn memory(
        &mut self,
        home: &Home,
        policy: WarmStart,
        lanes: usize,
        slots: usize,
        each: usize,
    ) -> Result<Option<Memory>> {
        if slots == 0 || lanes == 0 {
            return Ok(None);
        }
        match self.memory.take().filter(|memory| memory.is_for(lanes, slots, each)) {
            Some(mut memory) => {
                memory.clear(&home.device, policy, lanes)?;
                Ok(Some(memory))
            }
            None => Memory::new(&home.device, policy, lanes, slots, each).map(Some),
        }
    }

    pub(crate) fn put_memory_back(&mut self, memory: Option<Memory>) {
        if memory.is_some() {
            self.memory = memory;
        }
    }
}
