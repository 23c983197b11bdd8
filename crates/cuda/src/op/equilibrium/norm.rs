//! The group normalisations of DEQ-ResNet's cell.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{Affine as Parameters, NormScope};

use crate::device::{Launch, Pointer, argument, launch};
use crate::op::norm::{Cut, Shape, cut};
use crate::op::{Cohort, PassContext};
use crate::plan::Precision;

/// Scale and offset of the first lane, and numbers from one lane to the next.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Affine {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
    stride: i64,
}

argument!(Affine { scale, offset, stride });

impl Affine {
    pub(super) fn of(run: &PassContext<'_>, affine: Parameters) -> Self {
        Self { scale: run.parameter(affine.scale), offset: run.parameter(affine.offset), stride: run.stride() }
    }
}

/// Mean and reciprocal deviation of a group.
pub(super) type Moments = [f32; 2];

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct GroupNorm {
    affine: Affine,
    moments: Pointer<Moments>,
    cohort: Cohort,
    shape: Shape,
}

argument!(GroupNorm { affine, moments, cohort, shape });

/// A normalisation over groups of channels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Norm {
    cut: Cut,
    channels: usize,
    groups: usize,
    /// Regions of a sample that are normalised by themselves: its rows, or all of it.
    regions: usize,
}

impl Norm {
    /// Nothing if kernels cannot do that.
    pub(super) fn new(plane: [usize; 2], channels: usize, over: NormScope) -> Option<Self> {
        let (groups, by_row) = match over {
            NormScope::Groups(groups) => (groups, false),
            NormScope::RowGroups(groups) => (groups, true),
            NormScope::Batch { .. } => return None,
        };
        let cut = cut(plane, channels, groups, by_row)?;
        Some(Self { cut, channels, groups, regions: if by_row { plane[0] } else { 1 } })
    }

    /// As kernels know it.
    pub(super) fn shape(&self) -> Shape {
        self.cut.shape
    }

    /// The bytes of the moments of so many samples.
    pub(super) fn moments_bytes(&self, samples: usize) -> usize {
        samples * self.regions * self.groups * size_of::<Moments>()
    }

    /// The bytes of so many samples' shares in the gradients of scale and offset.
    pub(super) fn shares_bytes(&self, samples: usize) -> usize {
        samples * self.regions * 2 * self.channels * 4
    }

    /// A launch of a kernel that normalises like this.
    pub(super) fn launch(&self, run: &PassContext<'_>, kernel: &'static str) -> Launch {
        Launch::new(kernel, run.by_sample(self.cut.blocks()), self.cut.threads)
    }

    /// `y = norm(x)`, both in the form of factors; `y` may be `x`, and `moments` null where nothing will be differentiated.
    pub(super) fn forward(
        &self,
        run: &PassContext<'_>,
        affine: Affine,
        [x, y]: [Pointer<u8>; 2],
        moments: Pointer<Moments>,
    ) -> Result<()> {
        let kernel = match run.precision {
            Precision::Mixed => "group_norm_f16",
            Precision::Exact => "group_norm_f32",
        };
        let norm = GroupNorm { affine, moments, cohort: run.cohort, shape: self.cut.shape };
        launch!(run.device, self.launch(run, kernel); norm, x, y)
    }

    /// The gradient in front of norm(phi(.)) from `x`, the value of phi, in the form of factors; it takes the place of the one behind it. Every sample's share in those of scale
    /// and offset goes to `shares`.
    pub(super) fn backward(
        &self,
        run: &PassContext<'_>,
        affine: Affine,
        activation: Activation,
        [x, d]: [Pointer<u8>; 2],
        (moments, shares): (Pointer<Moments>, Pointer<f32>),
    ) -> Result<()> {
        let kernel = match (run.precision, activation) {
            (Precision::Mixed, Activation::Relu) => "group_norm_backward_f16_relu",
            (Precision::Mixed, Activation::Softplus) => "group_norm_backward_f16_softplus",
            (Precision::Exact, Activation::Relu) => "group_norm_backward_f32_relu",
            (Precision::Exact, Activation::Softplus) => "group_norm_backward_f32_softplus",
        };
        let norm = GroupNorm { affine, moments, cohort: run.cohort, shape: self.cut.shape };
        launch!(run.device, self.launch(run, kernel); norm, x, d, d, shares)
    }

    /// Adds the samples' shares up, `alpha` times, into the gradients of scale and offset, which lie one behind the other.
    pub(super) fn sum_shares(&self, run: &PassContext<'_>, shares: Pointer<f32>, alpha: f32, to: Pointer<f32>) -> Result<()> {
        let numbers = 2 * self.channels;
        let sum = Launch::new("sum_samples", [numbers.div_ceil(32), run.size.lanes, 1], 1024);
        launch!(run.device, sum; shares, to, run.cohort, run.stride(), alpha, self.regions as i32, numbers as i32)
    }
}
