//! Group normalisation: how kernels are told what to normalise, and how they are launched.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{Affine as Parameters, NormScope};

use super::{Cohort, Run};
use crate::device::{Argument, Launch, Pointer, launch};
use crate::plan::Precision;

/// Pixels that a thread holds two channels of.
const PIXELS: usize = 16;

/// The extent of a normalisation. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pixels: i32,
    regions: i32,
    channels: i32,
    groups: i32,
    slices: i32,
}

/// Scale and offset of the first lane, and numbers from one lane to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Affine {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
    stride: i64,
}

impl Affine {
    pub(crate) fn of(run: &Run<'_>, affine: Parameters) -> Self {
        Self { scale: run.parameter(affine.scale), offset: run.parameter(affine.offset), stride: run.stride() }
    }
}

/// Mean and reciprocal deviation of a group.
pub(crate) type Moments = [f32; 2];

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct GroupNorm {
    affine: Affine,
    moments: Pointer<Moments>,
    cohort: Cohort,
    shape: Shape,
}

impl Argument for GroupNorm {}

/// A normalisation with its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grouping {
    pub(crate) shape: Shape,
    threads: usize,
}

impl Grouping {
    /// As few slices of channels as fit into registers; none if a group does not fit into a block, or has an odd number of channels.
    pub(crate) fn new([height, width]: [usize; 2], channels: usize, over: NormScope) -> Option<Self> {
        let (groups, regions, pixels) = match over {
            NormScope::Groups(groups) => (groups, 1, height * width),
            NormScope::RowGroups(groups) => (groups, height, width),
            NormScope::Batch { .. } => return None,
        };
        if groups == 0 || !channels.is_multiple_of(2 * groups) {
            return None;
        }
        let choices = (1..=groups).map(|slices| (slices, 256)).chain([(groups, 512)]);
        let fitting = choices.filter(|&(slices, _)| groups.is_multiple_of(slices)).find_map(|(slices, most)| {
            let lanes = channels / slices / 2;
            let rows = most / lanes;
            (pixels <= PIXELS * rows).then_some((slices, rows * lanes))
        });
        let (slices, threads) = fitting?;
        let [pixels, regions, channels, groups, slices] = [pixels, regions, channels, groups, slices].map(|n| n as i32);
        Some(Self { shape: Shape { pixels, regions, channels, groups, slices }, threads })
    }

    /// The bytes of the moments of so many samples.
    pub(crate) fn moments_bytes(&self, samples: usize) -> usize {
        samples * (self.shape.regions * self.shape.groups) as usize * size_of::<Moments>()
    }

    /// The bytes of so many samples' shares in the gradients of scale and offset.
    pub(crate) fn shares_bytes(&self, samples: usize) -> usize {
        samples * (self.shape.regions * self.shape.channels) as usize * 2 * 4
    }

    /// A launch that normalises by this.
    pub(crate) fn launch(&self, run: &Run<'_>, kernel: &'static str) -> Launch {
        Launch::new(kernel, run.by_sample((self.shape.slices * self.shape.regions) as usize), self.threads)
    }

    /// `y = norm(x)`, both in the form of factors; `y` may be `x`, and `moments` null where nothing will be differentiated.
    pub(crate) fn forward(
        &self,
        run: &Run<'_>,
        affine: Affine,
        x: Pointer<u8>,
        y: Pointer<u8>,
        moments: Pointer<Moments>,
    ) -> Result<()> {
        let kernel = match run.precision {
            Precision::Mixed => "group_norm_f16",
            Precision::Exact => "group_norm_f32",
        };
        let norm = GroupNorm { affine, moments, cohort: run.cohort, shape: self.shape };
        launch!(run.device, self.launch(run, kernel); norm, x, y)
    }

    /// The gradient in front of norm(phi(.)) from `x`, the value of phi, in the form of factors; it takes the place of the one behind it. Every sample's share in those of scale
    /// and offset goes to `shares`.
    pub(crate) fn backward(
        &self,
        run: &Run<'_>,
        affine: Affine,
        activation: Option<Activation>,
        [x, d]: [Pointer<u8>; 2],
        moments: Pointer<Moments>,
        shares: Pointer<f32>,
    ) -> Result<()> {
        let kernel = match (run.precision, activation) {
            (Precision::Mixed, None) => "group_norm_backward_f16",
            (Precision::Mixed, Some(Activation::Relu)) => "group_norm_backward_f16_relu",
            (Precision::Mixed, Some(Activation::Softplus)) => "group_norm_backward_f16_softplus",
            (Precision::Exact, None) => "group_norm_backward_f32",
            (Precision::Exact, Some(Activation::Relu)) => "group_norm_backward_f32_relu",
            (Precision::Exact, Some(Activation::Softplus)) => "group_norm_backward_f32_softplus",
        };
        let norm = GroupNorm { affine, moments, cohort: run.cohort, shape: self.shape };
        launch!(run.device, self.launch(run, kernel); norm, x, d, d, shares)
    }

    /// Adds the samples' shares up, `alpha` times, into the gradients of scale and offset, which lie one behind the other.
    pub(crate) fn sum_shares(&self, run: &Run<'_>, shares: Pointer<f32>, alpha: f32, to: Pointer<f32>) -> Result<()> {
        let numbers = 2 * self.shape.channels;
        let sum = Launch::new("sum_samples", [(numbers as usize).div_ceil(32), run.size.lanes, 1], 1024);
        launch!(run.device, sum; shares, to, run.cohort, run.stride(), alpha, self.shape.regions, numbers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_holds_whole_groups_and_all_their_pixels() {
        for (plane, channels) in [([16, 16], 128), ([16, 16], 256), ([14, 14], 64), ([4, 4], 16), ([4, 4], 32), ([7, 5], 48)] {
            for over in [NormScope::Groups(8), NormScope::RowGroups(8)] {
                let Grouping { shape, threads } = Grouping::new(plane, channels, over).expect("fits");
                let lanes = (shape.channels / shape.slices / 2) as usize;
                assert!(threads <= 512 && threads % lanes == 0 && shape.groups % shape.slices == 0);
                assert!(shape.pixels as usize <= PIXELS * threads / lanes);
                assert_eq!((shape.pixels * shape.regions) as usize, plane[0] * plane[1]);
            }
        }
        assert_eq!(Grouping::new([64, 64], 256, NormScope::Groups(8)), None, "too large");
        assert_eq!(Grouping::new([8, 8], 24, NormScope::Groups(8)), None, "odd");
    }
}
