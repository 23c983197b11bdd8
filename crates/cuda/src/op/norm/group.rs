//! Group normalisation: mean and variance of every group of channels over the plane of a sample, or over one row of it.
use fedeq_core::Result;
use fedeq_models::graph::{Affine, Fusion, ValueId};

use super::{FusedNorm, SCALE};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::op::{Cohort, Op, PassContext};
use crate::plan::Planner;

pub(super) struct GroupNorm {
    fused: FusedNorm,
    cut: Cut,
    /// `[samples][regions][groups]` mean and reciprocal deviation.
    moments: Slot,
    /// `[samples][regions][2][channels]`: shares in the gradients of scale and offset.
    shares: Option<Slot>,
}

/// How a plane is cut for blocks of so many threads. Kernels know `shape` by the same fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub(crate) shape: Shape,
    pub(crate) threads: usize,
}

impl Cut {
    /// Blocks of a sample.
    pub(crate) fn blocks(&self) -> usize {
        (self.shape.slices * self.shape.regions) as usize
    }
}

/// Pixels of a region, regions of a plane, channels, groups of them, and slices of whole groups.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pixels: i32,
    regions: i32,
    channels: i32,
    groups: i32,
    slices: i32,
}

argument!(Shape { pixels, regions, channels, groups, slices });

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
    stride: i64,
    moments: Pointer<[f32; 2]>,
    cohort: Cohort,
    shape: Shape,
    before: i32,
    after: i32,
}

argument!(Call { scale, offset, stride, moments, cohort, shape, before, after });

/// As few slices as fit into the registers of a block: 16 pixels of two channels a thread. Nothing if a group does not.
pub(crate) fn cut([height, width]: [usize; 2], channels: usize, groups: usize, by_row: bool) -> Option<Cut> {
    let (pixels, regions) = if by_row { (width, height) } else { (height * width, 1) };
    if groups == 0 || !channels.is_multiple_of(2 * groups) {
        return None;
    }
    let fits = |(slices, most): (usize, usize)| {
        let lanes = channels / slices / 2;
        let rows = most / lanes;
        // A block adds up at most 64 groups.
        (groups.is_multiple_of(slices) && groups / slices <= 64 && pixels <= 16 * rows).then(|| {
            let [pixels, regions, channels, groups, slices] = [pixels, regions, channels, groups, slices].map(|n| n as i32);
            Cut { shape: Shape { pixels, regions, channels, groups, slices }, threads: rows * lanes }
        })
    };
    (1..=groups).map(|slices| (slices, 256)).chain([(groups, 512)]).find_map(fits)
}

impl GroupNorm {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        x: ValueId,
        affine: Affine,
        (groups, by_row): (usize, bool),
        fusion: Fusion,
        y: ValueId,
    ) -> Self {
        let channels = plan.channels(x);
        let cut = cut(plan.plane(x), channels, groups, by_row).expect("a network that was checked");
        let fused = FusedNorm::new(plan, x, affine, fusion, y);
        let regions = plan.purpose.size.samples() * cut.shape.regions as usize;
        let shares = fused.back.as_ref().map(|_| plan.scratch_back(8 * regions * channels));
        Self { fused, cut, moments: plan.kept(8 * regions * groups), shares }
    }

    fn call(&self, run: &PassContext<'_>) -> Call {
        let FusedNorm { affine, before, after, .. } = self.fused;
        let (scale, offset) = (run.parameter(affine.scale), run.parameter(affine.offset));
        let (moments, cohort) = (run.at(self.moments), run.cohort);
        Call { scale, offset, stride: run.stride(), moments, cohort, shape: self.cut.shape, before, after }
    }

    fn launch(&self, run: &PassContext<'_>, kernels: [&'static str; 2]) -> Launch {
        Launch::new(self.fused.named(kernels), run.by_sample(self.cut.blocks()), self.cut.threads)
    }
}

impl Op for GroupNorm {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let fused = &self.fused;
        fused.activate(run)?;
        let (x, shortcut) = (run.at::<u8>(fused.input()), run.maybe::<f32>(fused.shortcut));
        let (y, y16) = (run.maybe::<f32>(fused.y.numbers), run.maybe::<half::f16>(fused.y.halves));
        let launch = self.launch(run, ["group_norm_apply_f32", "group_norm_apply_f16"]);
        launch!(run.device, launch; self.call(run), x, shortcut, y, y16)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let fused = &self.fused;
        let (Some(back), Some(shares)) = (&fused.back, self.shares) else { return Ok(()) };
        let (x, y, dy) = (run.at::<u8>(fused.input()), run.maybe::<u8>(back.y), run.at::<f32>(back.dy));
        let (dx, dx16) = (back.dx(|dx| dx.numbers(run)), back.dx(|dx| dx.halves(run)));
        let (shares, shape) = (run.at::<f32>(shares), self.cut.shape);
        let launch = self.launch(run, ["group_norm_pull_f32", "group_norm_pull_f16"]);
        launch!(run.device, launch; self.call(run), x, y, dy, back.d(run), dx, dx16, SCALE, shares)?;
        if let Some(scale) = back.trained {
            run.sum_samples(shares, run.gradient(scale), run.stride(), shape.regions as usize, 2 * shape.channels as usize)?;
        }
        back.finish(run, fused.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_what_it_normalises() {
        for (plane, channels, groups, by_row) in [
            ([32, 32], 64, 8, false),
            ([32, 32], 128, 8, false),
            ([28, 28], 32, 8, true),
            ([1, 1], 128, 8, false),
            ([7, 7], 48, 3, false),
        ] {
            let Cut { shape, threads } = cut(plane, channels, groups, by_row).expect("it fits");
            let lanes = channels / shape.slices as usize / 2;
            assert!(threads <= 512 && threads.is_multiple_of(lanes) && threads >= 32);
            assert!(shape.pixels as usize <= 16 * (threads / lanes), "{shape:?}");
            assert_eq!((shape.pixels * shape.regions) as usize, plane[0] * plane[1]);
        }
        assert_eq!(cut([64, 64], 128, 8, false), None, "65,536 numbers of a group");
        assert_eq!(cut([8, 8], 24, 8, false), None, "three channels of a group");
    }
}
