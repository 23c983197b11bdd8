//! Carries a plan out.
use std::sync::Arc;

use fedeq_core::Result;
use fedeq_models::Graph;

use crate::device::{Buffer, Device, Pointer};
use crate::layout::Layout;
use crate::op::{Cohort, Run, Text};
use crate::plan::{Plan, Purpose};

/// A network ready to run on batches of a cohort: its plan and all the memory it needs.
pub(crate) struct Executor {
    device: Arc<Device>,
    pub(crate) plan: Plan,
    pub(crate) purpose: Purpose,
    memory: Buffer<u8>,
    /// `[lanes]` first and count, `[samples]`, and `[samples]`.
    pub(crate) spans: Buffer<i32>,
    pub(crate) rows: Buffer<i32>,
    pub(crate) indices: Buffer<i32>,
}

/// The weights of a cohort.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lanes {
    /// `[lanes][stride]`
    pub(crate) parameters: Pointer<f32>,
    /// The same for gradients; null where nothing is trained.
    pub(crate) gradients: Pointer<f32>,
    /// `[lanes][statistics stride]`
    pub(crate) statistics: Pointer<f32>,
}

impl Executor {
    pub(crate) fn new(device: &Arc<Device>, graph: &Graph, layout: &Layout, purpose: Purpose) -> Result<Self> {
        let plan = Plan::new(device, graph, layout, purpose);
        let size = purpose.size;
        Ok(Self {
            device: Arc::clone(device),
            memory: Buffer::new(device, plan.arena.bytes())?,
            plan,
            purpose,
            spans: Buffer::zeros(device, 2 * size.lanes)?,
            rows: Buffer::zeros(device, size.samples())?,
            indices: Buffer::zeros(device, size.samples())?,
        })
    }

    /// The bytes of everything on its way through the network.
    pub(crate) fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// What layers work with. `symbols` are those of a data set of texts, null for others.
    pub(crate) fn run<'a>(&'a self, layout: &'a Layout, lanes: Lanes, symbols: Pointer<i32>) -> Run<'a> {
        let Lanes { parameters, gradients, statistics } = lanes;
        let indices = self.indices.pointer();
        Run {
            device: &self.device,
            size: self.purpose.size,
            precision: self.purpose.precision,
            cohort: Cohort { spans: self.spans.pointer().cast(), rows: self.rows.pointer() },
            indices,
            dropout: None,
            text: Text { symbols, indices, length: self.purpose.size.length as i32 },
            layout,
            parameters,
            gradients,
            statistics,
            base: self.memory.pointer(),
            arena: &self.plan.arena,
        }
    }

    /// So many numbers of a buffer of the plan; waits for all work given before.
    #[cfg(test)]
    pub(crate) fn numbers(&self, slot: crate::arena::Slot, len: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; 4 * len];
        self.memory.read(&self.device, self.plan.arena.offset(slot), &mut bytes)?;
        Ok(bytes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    }

    /// Runs the network on the batch whose input is there.
    pub(crate) fn forward(&self, run: &Run<'_>) -> Result<()> {
        self.plan.ops.iter().try_for_each(|op| op.forward(run))
    }

    /// The gradients of the trained parameters, given that of the logits.
    pub(crate) fn backward(&self, run: &Run<'_>) -> Result<()> {
        self.plan.ops.iter().rev().try_for_each(|op| op.backward(run))
    }
}
