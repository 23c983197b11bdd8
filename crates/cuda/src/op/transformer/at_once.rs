//! A stack of layers in one launch, where nothing of its inside is kept and texts are short: a solver's step over it is then not dozens of launches that hardly fill a card.
use fedeq_core::Result;
use half::f16;

use super::{INSIDE, Layer, Stack};
use crate::device::{Launch, Pointer, argument, launch};
use crate::op::{Cohort, PassContext, Text};
use crate::plan::{Planner, Precision};

/// The longest text, in symbols, and the most layers that the kernel takes.
const LONGEST: usize = 16;
const MOST_LAYERS: usize = 16;
/// Texts of a block, its threads and its shared memory.
const TEXTS: usize = 4;
const THREADS: usize = 256;
const SHARED: usize = 144_384;

/// As kernels have it; may be null.
#[repr(C)]
#[derive(Clone, Copy)]
struct Norm {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
}

argument!(Norm { scale, offset });

/// A layer as kernels have it: weights in 16 bits, everything else of the first lane.
#[repr(C)]
#[derive(Clone, Copy)]
struct LayerCall {
    weights: [Pointer<f16>; 4],
    biases: [Pointer<f32>; 4],
    norms: [Norm; 2],
    masks: [Pointer<u8>; 2],
}

argument!(LayerCall { weights, biases, norms, masks });

#[repr(C)]
#[derive(Clone, Copy)]
struct StackCall {
    layers: [LayerCall; MOST_LAYERS],
    end: Norm,
    h: Pointer<f32>,
    injection: Pointer<f32>,
    y: Pointer<f32>,
    text: Text,
    cohort: Cohort,
    stride: i64,
    mask_stride: i64,
    kept: f32,
    count: i32,
}

argument!(StackCall { layers, end, h, injection, y, text, cohort, stride, mask_stride, kept, count });

impl Norm {
    const NONE: Self = Self { scale: Pointer::NULL, offset: Pointer::NULL };

    fn of([scale, offset]: [Pointer<f32>; 2]) -> Self {
        Self { scale, offset }
    }
}

impl LayerCall {
    const NONE: Self =
        Self { weights: [Pointer::NULL; 4], biases: [Pointer::NULL; 4], norms: [Norm::NONE; 2], masks: [Pointer::NULL; 2] };
}

/// Whether there is a kernel for so many layers of this size, and the card has room for it.
pub(super) fn applies(plan: &Planner<'_>, layers: usize, hidden: usize) -> bool {
    plan.purpose.precision == Precision::Mixed
        && plan.purpose.size.length <= LONGEST
        && (1..=MOST_LAYERS).contains(&layers)
        && hidden == INSIDE
        && plan.device.most_shared() >= SHARED
}

impl Stack {
    /// The way forward from `h` (zeros if null), of which nothing but the result is left.
    pub(super) fn forward_at_once(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        [h, injection]: [Pointer<f32>; 2],
        y: Pointer<f32>,
    ) -> Result<()> {
        let drop = self.drop(run, 0);
        let mut layers = [LayerCall::NONE; MOST_LAYERS];
        for (index, (call, layer)) in layers.iter_mut().zip(&self.layers).enumerate() {
            *call = self.layer_call(run, index, layer);
        }
        let call = StackCall {
            layers,
            end: self.end.as_ref().map_or(Norm::NONE, |norm| Norm::of(norm.parameters(run))),
            h,
            injection,
            y,
            text: run.text,
            cohort,
            stride: run.stride(),
            mask_stride: drop.stride,
            kept: drop.kept,
            count: self.layers.len() as i32,
        };
        let grid = [run.size.most.div_ceil(TEXTS), run.size.lanes, 1];
        launch!(run.device, Launch::new("layers_f16", grid, THREADS).shared(SHARED); call)
    }

    fn layer_call(&self, run: &PassContext<'_>, index: usize, layer: &Layer) -> LayerCall {
        let products = layer.products().map(|product| product.halves(run).expect("weights in 16 bits, and a bias"));
        LayerCall {
            weights: products.map(|(weights, _)| weights),
            biases: products.map(|(_, bias)| bias),
            norms: [&layer.norm_1, &layer.norm_2].map(|norm| Norm::of(norm.parameters(run))),
            masks: [2 * index, 2 * index + 1].map(|site| self.drop(run, site).mask),
        }
    }
}
