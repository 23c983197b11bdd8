//! What a thread keeps between clients and rounds: plans, and memory to carry them out in.
use std::cell::Cell;
use std::sync::Arc;

use fedeq_core::Trains;
use fedeq_data::shard::Batch;

use crate::executor::{Executor, WorkMemory};
use crate::projection::ProjectionMemory;

/// Networks and purposes that a thread keeps plans for: evaluation, each part of a network that is trained on its own, and some to spare.
const KEPT: usize = 5;

/// Batch sizes that there are plans for: whole batches and what is left of an epoch. Sequences may have different lengths.
const SIZES: usize = 4;

thread_local! {
    static WORKER: Cell<Option<Box<Worker>>> = const { Cell::new(None) };
}

/// What a thread keeps. Only one phase or evaluation is under way on a thread, and all of them work in the same memory.
#[derive(Debug, Default)]
pub(crate) struct Worker {
    /// Those used last come first.
    plans: Vec<Plans>,
    pub(crate) memory: WorkMemory,
    /// The values of a network's parameters, while one is at work.
    pub(crate) parameters: Vec<Arc<Vec<f32>>>,
    pub(crate) batch: Batch,
    /// Which rows of logits are padding.
    pub(crate) ignored: Vec<bool>,
    pub(crate) projection: ProjectionMemory,
    /// The bytes of all this.
    pub(crate) held: u64,
}

impl Worker {
    /// That of this thread, until it is [put back](Worker::put_back).
    pub(crate) fn take() -> Box<Self> {
        WORKER.take().unwrap_or_default()
    }

    /// For whoever works on this thread next.
    pub(crate) fn put_back(self: Box<Self>) {
        WORKER.set(Some(self));
    }

    /// The plans for a network, or room for some.
    pub(crate) fn plans(&mut self, network: u64, purpose: Purpose) -> Plans {
        let here = self.plans.iter().position(|plans| (plans.network, plans.purpose) == (network, purpose));
        here.map_or_else(|| Plans::new(network, purpose), |at| self.plans.remove(at))
    }

    /// Keeps plans for the next time, and takes back the memory they worked in.
    pub(crate) fn keep(&mut self, mut plans: Plans) {
        plans.release(&mut self.memory);
        self.plans.insert(0, plans);
        self.plans.truncate(KEPT);
    }
}

/// What a network is run for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    Train(Trains),
    /// Training with a loss on embeddings.
    Contrast(Trains),
    Evaluate,
}

/// The plans of one network for one purpose, by the size of batches.
#[derive(Debug)]
pub(crate) struct Plans {
    network: u64,
    purpose: Purpose,
    executors: Vec<Executor>,
    /// Which one has the memory to work in.
    at_work: Option<usize>,
}

impl Plans {
    pub(crate) fn new(network: u64, purpose: Purpose) -> Self {
        Self { network, purpose, executors: Vec::new(), at_work: None }
    }

    /// The executor for batches of this size, with memory to work in.
    pub(crate) fn executor(
        &mut self,
        [batch, length]: [usize; 2],
        memory: &mut WorkMemory,
        new: impl FnOnce() -> Executor,
    ) -> &mut Executor {
        let here = self.executors.iter().position(|executor| (executor.batch(), executor.length()) == (batch, length));
        if self.at_work.is_none() || self.at_work != here {
            self.release(memory); // Before the next one asks for memory.
            let at = here.unwrap_or_else(|| self.add(new()));
            self.executors[at].work_in(std::mem::take(memory));
            self.at_work = Some(at);
        }
        self.current().expect("one is at work")
    }

    fn add(&mut self, executor: Executor) -> usize {
        if self.executors.len() == SIZES {
            self.executors.remove(0);
        }
        self.executors.push(executor);
        self.executors.len() - 1
    }

    /// The executor that was asked for last.
    pub(crate) fn current(&mut self) -> Option<&mut Executor> {
        self.at_work.map(|at| &mut self.executors[at])
    }

    /// Gives the memory back.
    pub(crate) fn release(&mut self, memory: &mut WorkMemory) {
        if let Some(at) = self.at_work.take() {
            *memory = self.executors[at].release();
        }
    }
}
