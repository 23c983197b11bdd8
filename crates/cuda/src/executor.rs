//! Carries a plan out.
use std::sync::Arc;

use cudarc::driver::DeviceRepr;
use fedeq_core::{Error, Result};
use fedeq_models::Mode;
use fedeq_models::graph::{self, Graph};
use half::f16;

#[cfg(test)]
use crate::arena::Slot;
use crate::data::DeviceData;
use crate::device::{Buffer, Device, Launch, Number, Pointer, launch};
use crate::layout::Layout;
use crate::op::{Cohort, PassContext, Text};
use crate::plan::{NetworkPlan, Purpose};

/// A network ready to run on batches of a cohort: its plan and all the memory it needs.
pub(crate) struct Executor {
    device: Arc<Device>,
    pub(crate) plan: NetworkPlan,
    pub(crate) purpose: Purpose,
    memory: Arc<Buffer<u8>>,
    /// `[lanes]` first and count, `[samples]`, and `[samples]`.
    pub(crate) spans: Buffer<i32>,
    pub(crate) rows: Buffer<i32>,
    pub(crate) indices: Buffer<i32>,
    /// `[lanes]`: the loss of the last batch, and how many predictions it is a mean of.
    pub(crate) scores: Buffer<Score>,
    pub(crate) counts: Buffer<i32>,
    /// `[samples][length]`
    losses: Buffer<f32>,
    right: Buffer<u8>,
    classes: usize,
    /// Where in a lane of statistics the number of batches is that each batch normalisation has seen.
    steps: Buffer<i32>,
}

/// How good the predictions of a client are. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// The mean loss.
    pub(crate) loss: f64,
    pub(crate) correct: i32,
    pub(crate) predictions: i32,
}

// SAFETY: three numbers as in C, with no bytes between them.
unsafe impl DeviceRepr for Score {}

// SAFETY: any bits are a value of each.
unsafe impl Number for Score {}

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
    /// For a purpose, with memory of its own.
    #[cfg(test)]
    pub(crate) fn new(device: &Arc<Device>, graph: &Graph, layout: &Layout, purpose: Purpose) -> Result<Self> {
        let plan = NetworkPlan::new(device, graph, layout, purpose);
        let memory = Arc::new(Buffer::new(device, plan.arena.bytes())?);
        Self::of(device, graph, layout, purpose, plan, memory)
    }

    /// Carries out a plan, in memory that may be another's too: nothing in it outlasts a pass.
    pub(crate) fn of(
        device: &Arc<Device>,
        graph: &Graph,
        layout: &Layout,
        purpose: Purpose,
        plan: NetworkPlan,
        memory: Arc<Buffer<u8>>,
    ) -> Result<Self> {
        debug_assert!(plan.arena.bytes() <= memory.len());
        let size = purpose.size;
        let of = |(index, running): (usize, &graph::RunningStatistics)| (layout.statistics(index) + 2 * running.channels) as i32;
        let steps: Vec<i32> = graph.statistics.iter().enumerate().map(of).collect();
        Ok(Self {
            device: Arc::clone(device),
            memory,
            plan,
            purpose,
            spans: Buffer::zeros(device, 2 * size.lanes)?,
            rows: Buffer::zeros(device, size.samples())?,
            indices: Buffer::zeros(device, size.samples())?,
            scores: Buffer::zeros(device, size.lanes)?,
            counts: Buffer::zeros(device, size.lanes)?,
            losses: Buffer::new(device, size.samples() * size.length)?,
            right: Buffer::new(device, size.samples() * size.length)?,
            classes: graph.task.classes,
            steps: Buffer::of(device, &steps)?,
        })
    }

    /// The bytes of everything on its way through the network.
    pub(crate) fn bytes(&self) -> u64 {
        self.plan.arena.bytes() as u64
    }

    /// What layers work with. `symbols` are those of a data set of texts, null for others.
    pub(crate) fn run<'a>(&'a self, layout: &'a Layout, lanes: Lanes, symbols: Pointer<i32>) -> PassContext<'a> {
        let Lanes { parameters, gradients, statistics } = lanes;
        let indices = self.indices.pointer();
        PassContext {
            device: &self.device,
            size: self.purpose.size,
            precision: self.purpose.precision,
            cohort: Cohort { spans: self.spans.pointer().cast(), rows: self.rows.pointer() },
            indices,
            dropout: None,
            changes: None,
            text: Text { symbols, indices, length: self.purpose.size.length as i32 },
            layout,
            parameters,
            gradients,
            statistics,
            base: self.memory.pointer(),
            arena: &self.plan.arena,
            hook: None,
        }
    }

    /// Gathers the samples that `indices` names, as the network's input.
    pub(crate) fn load(&self, run: &PassContext<'_>, data: &DeviceData) -> Result<()> {
        if data.length() != self.purpose.size.length {
            let problem = format!("texts of {} symbols came to a plan for {}", data.length(), self.purpose.size.length);
            return Err(Error::invalid(problem, "report this as a bug"));
        }
        let input = self.plan.input;
        if input.numbers.is_none() && input.halves.is_none() {
            return Ok(());
        }
        data.gather(run, run.maybe(input.numbers), run.maybe(input.halves))
    }

    /// Runs the network on the batch whose input is there.
    pub(crate) fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        self.plan.ops.iter().try_for_each(|op| op.forward(run))?;
        let layers = self.steps.len();
        if self.purpose.mode == Mode::Evaluate || layers == 0 {
            return Ok(());
        }
        let (kernel, apart) = (Launch::new("count_batches", [self.purpose.size.lanes, 1, 1], 64), run.layout.statistics_stride());
        launch!(run.device, kernel; run.statistics, self.steps.pointer(), run.cohort, apart as i64, layers as i32)
    }

    /// The cross-entropy of the last batch, lane by lane ([`scores`](Self::scores), [`counts`](Self::counts)), and the gradient of every lane's mean where there are gradients.
    pub(crate) fn loss(&self, run: &PassContext<'_>, data: &DeviceData) -> Result<()> {
        let (lanes, classes) = (self.purpose.size.lanes, self.classes as i32);
        let (logits, gradient) = (run.at::<f32>(self.plan.logits), run.maybe::<f32>(self.plan.logits_gradient));
        let (labels, losses, right) = (data.labels(), self.losses.pointer(), self.right.pointer());
        let (counts, scores, by_lane) = (self.counts.pointer(), self.scores.pointer(), [lanes, 1, 1]);
        if data.symbols().is_null() {
            let count = Launch::new("count_samples", [lanes.div_ceil(128), 1, 1], 128);
            launch!(run.device, count; run.cohort, counts, lanes as i32)?;
            let kernel = Launch::new("cross_entropy", by_lane, 128);
            return launch!(run.device, kernel; logits, labels, run.indices, losses, gradient, scores, run.cohort, classes);
        }
        launch!(run.device, Launch::new("count_symbols", by_lane, 256); run.text, counts, run.cohort)?;
        let length = self.purpose.size.length;
        let (kernel, pitch) =
            (Launch::new("symbol_cross_entropy", run.by_sample(length.div_ceil(8)), 256), self.plan.logits_pitch as i32);
        let none = Pointer::<f16>::NULL;
        launch!(run.device, kernel; logits, labels, run.text, counts, losses, right, gradient, none, run.cohort, 1.0_f32, classes, pitch)?;
        launch!(run.device, Launch::new("sum_scores", by_lane, 256); losses, right, counts, scores, run.cohort, length as i32)
    }

    /// The gradients of the trained parameters, given that of the logits.
    pub(crate) fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        self.plan.ops.iter().rev().try_for_each(|op| op.backward(run))
    }

    /// What 32-bit numbers a buffer begins with; waits for all work given before.
    #[cfg(test)]
    pub(crate) fn numbers(&self, slot: Slot, count: usize) -> Result<Vec<f32>> {
        let mut bytes = vec![0; 4 * count];
        self.memory.read(&self.device, self.plan.arena.offset(slot), &mut bytes)?;
        let number = |bytes: &[u8; 4]| f32::from_le_bytes(*bytes);
        Ok(bytes.as_chunks().0.iter().map(number).collect())
    }

    /// Makes everything that is not written before it is read not a number.
    #[cfg(test)]
    pub(crate) fn poison(&self) -> Result<()> {
        self.device.fill(self.memory.pointer(), 0xff, self.memory.len())
    }
}
