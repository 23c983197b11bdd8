//! Dropout whose masks are drawn once for a pass, from the CPU's random numbers.
use fedeq_core::Result;
use fedeq_models::Mode;
use fedeq_models::graph;

use super::PassContext;
use super::layer_norm::{Drop, WIDTH};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::Planner;

/// Where the random numbers of a training step come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DropoutKeys {
    /// The number of the step.
    pub(crate) step: Pointer<i32>,
    /// `[steps][lanes]`, [those](dropout_keys) of the lanes' seeds.
    pub(crate) keys: Pointer<u32>,
}

/// The keys of seeds, one after the other: eight words each.
pub(crate) fn dropout_keys(seeds: impl IntoIterator<Item = u64>) -> Vec<u32> {
    seeds.into_iter().flat_map(graph::Dropout::key).collect()
}

/// The masks of all dropout sites of a stack of transformer layers, two a layer: `[samples][2 * layers][length][width]` bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masks {
    dropout: graph::Dropout,
    sites: usize,
    length: usize,
    masks: Slot,
}

impl Masks {
    /// Plans the masks of a stack; none where nothing is ever dropped. `kept` says whether the way back needs them.
    pub(crate) fn new(plan: &mut Planner<'_>, stack: &graph::Transformer, kept: bool) -> Option<Self> {
        let (dropout, sites, size) = (stack.dropout, 2 * stack.layers.len(), plan.purpose.size);
        if plan.purpose.mode == Mode::Evaluate || dropout.rate <= 0.0 || sites == 0 {
            return None;
        }
        let bytes = size.samples() * sites * size.length * WIDTH;
        let masks = if kept { plan.kept(bytes) } else { plan.scratch(bytes) };
        Some(Self { dropout, sites, length: size.length, masks })
    }

    fn each(&self) -> usize {
        self.sites * self.length * WIDTH
    }

    /// Draws those of this step. A pass without keys drops nothing.
    pub(crate) fn draw(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(DropoutKeys { step, keys }) = run.dropout else { return Ok(()) };
        let (each, masks) = (self.each(), run.at::<u8>(self.masks));
        let (stream, threshold) = (self.dropout.stream(), self.dropout.threshold());
        let draw = Launch::new("draw_masks", run.by_sample(each.div_ceil(2048)), 256);
        launch!(run.device, draw; step, keys, masks, run.cohort, stream, threshold, each as i64, each as i32)
    }

    /// Those of one site.
    pub(crate) fn site(&self, run: &PassContext<'_>, site: usize) -> Drop {
        if run.dropout.is_none() {
            return Drop::NOTHING;
        }
        let mask = run.at::<u8>(self.masks).add(site * self.length * WIDTH);
        Drop { mask, stride: self.each() as i64, kept: self.dropout.kept() }
    }
}
