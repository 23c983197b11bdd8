//! What is kept ready between phases and rounds: runners and the memory they share.
use fedeq_core::Result;
use fedeq_equilibrium::WarmStart;

use super::optimiser::Extras;
use super::runner::{Runner, Shared, Wanted};
use super::state::Home;
use super::warm::Memory;
use crate::plan::Purpose;

/// Runners that are kept: those of the phases of a round and of an evaluation, and some to spare.
const KEPT: usize = 6;
/// How much of different purposes is remembered.
const REMEMBERED: usize = 64;

/// Whatever one piece of work after the other needs; one at a time.
#[derive(Default)]
pub(crate) struct Workshop {
    /// The one used last comes first.
    runners: Vec<Runner>,
    shared: Shared,
    memory: Option<Memory>,
    wanted: Vec<(Purpose, Extras, Wanted)>,
}

impl Workshop {
    /// A runner for a purpose, which has no other user meanwhile.
    pub(crate) fn take(&mut self, home: &Home, purpose: Purpose, extras: Extras) -> Result<Runner> {
        let fits = |runner: &Runner| runner.executor.purpose == purpose && runner.extras().cover(extras);
        if let Some(at) = self.runners.iter().position(fits) {
            return Ok(self.runners.remove(at));
        }
        self.runners.truncate(KEPT - 1);
        // Runners hold on to what they share: where that grows, they are made again when they are wanted.
        let before = self.shared.bytes();
        if self.wants(home, purpose, extras).bytes() > before {
            self.runners.clear();
        }
        let made = Runner::new(home, purpose, extras, &mut self.shared).or_else(|_| {
            // Out of memory, perhaps: what is kept for later gives way.
            self.clear();
            Runner::new(home, purpose, extras, &mut self.shared)
        });
        if self.shared.bytes() != before {
            self.runners.clear();
        }
        made
    }

    pub(crate) fn put_back(&mut self, runner: Runner) {
        self.runners.insert(0, runner);
        self.runners.truncate(KEPT);
    }

    /// What a runner for a purpose takes of the memory that is shared.
    pub(crate) fn wants(&mut self, home: &Home, purpose: Purpose, extras: Extras) -> Wanted {
        if let Some((.., wanted)) = self.wanted.iter().find(|(of, with, _)| *of == purpose && *with == extras) {
            return *wanted;
        }
        let wanted = Runner::wants(home, purpose, extras);
        self.wanted.insert(0, (purpose, extras, wanted));
        self.wanted.truncate(REMEMBERED);
        wanted
    }

    /// Gives back all memory of runners.
    pub(crate) fn clear(&mut self) {
        self.runners.clear();
        self.shared = Shared::default();
        self.memory = None;
    }

    /// The bytes of what is kept.
    pub(crate) fn bytes(&self) -> u64 {
        self.shared.bytes() + self.memory.as_ref().map_or(0, Memory::bytes_in_use)
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
