//! The loss of networks that predict a symbol at every position of a text.
use fedeq_core::Result;
use half::f16;

use super::Run;
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::Planner;

/// Cross-entropy over the positions that are not padding, its gradient, and how many symbols were right.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SymbolLoss {
    logits: Slot,
    gradient: Option<Slot>,
    classes: usize,
    /// Columns of the logits with those that are padding.
    pitch: usize,
    /// `[lanes]` positions that count.
    counts: Slot,
    /// `[samples][length]` losses, and whether the symbol was right.
    losses: Slot,
    right: Slot,
}

impl SymbolLoss {
    /// Plans the loss of logits over positions.
    pub(crate) fn new(plan: &mut Planner<'_>, logits: Slot, gradient: Option<Slot>) -> Self {
        let size = plan.purpose.size;
        let positions = size.samples() * size.length;
        Self {
            logits,
            gradient,
            classes: plan.graph.task.classes,
            pitch: plan.channels(plan.graph.logits),
            counts: plan.scratch_of_loss(4 * size.lanes),
            losses: plan.scratch_of_loss(4 * positions),
            right: plan.scratch_of_loss(positions),
        }
    }

    /// Computes it; `labels` are those of the data set, one a position, and `scores` one a lane.
    pub(crate) fn run<Score>(&self, run: &Run<'_>, labels: Pointer<i32>, scores: Pointer<Score>) -> Result<()> {
        let (lanes, length) = (run.size.lanes, run.size.length);
        let counts = run.at::<i32>(self.counts);
        launch!(run.device, Launch::new("count_symbols", [lanes, 1, 1], 256); run.text, counts, run.cohort)?;
        let (losses, right) = (run.at::<f32>(self.losses), run.at::<u8>(self.right));
        let (logits, gradient, halves) = (run.at::<f32>(self.logits), run.maybe::<f32>(self.gradient), Pointer::<f16>::NULL);
        let (classes, pitch) = (self.classes as i32, self.pitch as i32);
        let each = Launch::new("symbol_cross_entropy", run.by_sample(length.div_ceil(8)), 256);
        launch!(run.device, each; logits, labels, run.text, counts, losses, right, gradient, halves, run.cohort, 1.0_f32, classes, pitch)?;
        let sum = Launch::new("sum_scores", [lanes, 1, 1], 256);
        launch!(run.device, sum; losses, right, counts, scores, run.cohort, length as i32)
    }
}
