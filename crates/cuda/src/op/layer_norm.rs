//! Layer normalisation of every position of a text, with the sum in front of it and its gradients: launches that layers share.
use fedeq_core::Result;
use fedeq_models::graph::Affine;
use half::f16;

use super::{Cohort, PassContext};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::plan::{Planner, Precision};

/// Numbers a position, for which the kernels are made.
pub(crate) const WIDTH: usize = 64;

/// A normalisation of positions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerNorm {
    affine: Affine,
    /// Memory for the samples' shares in the gradients of scale and offset, if these are wanted.
    shares: Option<Slot>,
}

/// `h + drop(branch) + injection`; each may be null.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sum {
    pub(crate) h: Pointer<f32>,
    /// In the form of factors.
    pub(crate) branch: Pointer<u8>,
    pub(crate) drop: Drop,
    pub(crate) injection: Pointer<f32>,
}

/// Which numbers of a branch are dropped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Drop {
    /// Of the first sample, 0 or 1; null where nothing is dropped.
    pub(crate) mask: Pointer<u8>,
    /// Bytes from a sample to the next.
    pub(crate) stride: i64,
    /// What others are multiplied by.
    pub(crate) kept: f32,
}

impl Drop {
    /// Nothing is dropped.
    pub(crate) const NOTHING: Self = Self { mask: Pointer::NULL, stride: 0, kept: 1.0 };
}

/// Where a sum and its normalisation go; each may be null. Without either form of `y` nothing is normalised.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Normed {
    pub(crate) sum: Pointer<f32>,
    /// What the way back needs besides the sum.
    pub(crate) moments: Pointer<[f32; 2]>,
    pub(crate) y: Pointer<f32>,
    pub(crate) y16: Pointer<f16>,
}

/// The gradient of a normalisation's output.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Gradient {
    /// In the form of factors: 16 bits, scaled, or 32.
    Factors(Pointer<u8>),
    /// In 32 bits.
    Numbers(Pointer<f32>),
}

/// Where the gradients of a [`Sum`] go; those that may be null say so.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Into {
    /// What reaches the sum past its normalisation; may be null.
    pub(crate) direct: Pointer<f32>,
    /// That of the sum; may be `direct`.
    pub(crate) sum: Pointer<f32>,
    /// That of the branch, in the form of factors; may be null.
    pub(crate) branch: Pointer<u8>,
    pub(crate) drop: Drop,
    /// That of the sum is added to this; may be null.
    pub(crate) injection: Pointer<f32>,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Call {
    scale: Pointer<f32>,
    offset: Pointer<f32>,
    moments: Pointer<[f32; 2]>,
    mask: Pointer<u8>,
    cohort: Cohort,
    stride: i64,
    mask_stride: i64,
    kept: f32,
    length: i32,
}

argument!(Call { scale, offset, moments, mask, cohort, stride, mask_stride, kept, length });

impl LayerNorm {
    /// Plans for this layer; gradients of its scale and offset are wanted if they are trained and there is a way back.
    pub(crate) fn new(plan: &mut Planner<'_>, affine: Affine, differentiated: bool) -> Self {
        let trained = differentiated && [affine.scale, affine.offset].map(|id| plan.parameter(id)).iter().any(Option::is_some);
        let [scale, offset] = [affine.scale, affine.offset].map(|id| plan.layout.place(id).start);
        assert_eq!(offset, scale + WIDTH, "an offset stands behind its scale, so that one sum gives both gradients");
        let bytes = 4 * plan.purpose.size.samples() * 2 * WIDTH;
        Self { affine, shares: trained.then(|| plan.workspace_back(bytes)) }
    }

    /// Scale and offset of the first lane.
    pub(crate) fn parameters(&self, run: &PassContext<'_>) -> [Pointer<f32>; 2] {
        [self.affine.scale, self.affine.offset].map(|id| run.parameter(id))
    }

    /// Adds up and normalises.
    pub(crate) fn forward(&self, run: &PassContext<'_>, cohort: Cohort, x: Sum, to: Normed) -> Result<()> {
        forward(run, Call::new(run, cohort, Some(self.affine), to.moments, x.drop), x, to)
    }

    /// The gradients of a sum that was normalised, and those of scale and offset if they are wanted.
    pub(crate) fn backward(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        [sum, moments]: [Slot; 2],
        dy: Gradient,
        to: Into,
        parameters: bool,
    ) -> Result<()> {
        let call = Call::new(run, cohort, Some(self.affine), run.at(moments), to.drop);
        let shares = self.shares.filter(|_| parameters);
        backward(run, call, run.at(sum), Some(dy), to, run.maybe(shares))?;
        let Some(shares) = shares else { return Ok(()) };
        let sum = Launch::new("sum_samples", [(2 * WIDTH).div_ceil(32), run.size.lanes, 1], 1024);
        let (shares, to) = (run.at::<f32>(shares), run.gradient(self.affine.scale));
        launch!(run.device, sum; shares, to, cohort, run.stride(), 1.0_f32, 1_i32, 2 * WIDTH as i32)
    }
}

/// Adds up without a normalisation.
pub(crate) fn add_up(run: &PassContext<'_>, cohort: Cohort, x: Sum, sum: Pointer<f32>) -> Result<()> {
    let to = Normed { sum, moments: Pointer::NULL, y: Pointer::NULL, y16: Pointer::NULL };
    forward(run, Call::new(run, cohort, None, to.moments, x.drop), x, to)
}

/// The gradients of a sum that was not normalised.
pub(crate) fn add_up_backward(run: &PassContext<'_>, cohort: Cohort, to: Into) -> Result<()> {
    let call = Call::new(run, cohort, None, Pointer::NULL, to.drop);
    backward(run, call, Pointer::NULL, None, to, Pointer::NULL)
}

impl Call {
    fn new(run: &PassContext<'_>, cohort: Cohort, affine: Option<Affine>, moments: Pointer<[f32; 2]>, drop: Drop) -> Self {
        let [scale, offset] =
            affine.map_or([Pointer::NULL; 2], |affine| [affine.scale, affine.offset].map(|id| run.parameter(id)));
        let Drop { mask, stride: mask_stride, kept } = drop;
        let length = run.size.length as i32;
        Self { scale, offset, moments, mask, cohort, stride: run.stride(), mask_stride, kept, length }
    }
}

fn forward(run: &PassContext<'_>, call: Call, x: Sum, to: Normed) -> Result<()> {
    let kernel = match run.precision {
        Precision::Mixed => "layer_norm_f16",
        Precision::Exact => "layer_norm_f32",
    };
    let launch = Launch::new(kernel, run.by_sample(1), 256);
    launch!(run.device, launch; call, x.h, x.branch, x.injection, to.sum, to.y, to.y16)
}

fn backward(
    run: &PassContext<'_>,
    call: Call,
    sum: Pointer<f32>,
    dy: Option<Gradient>,
    to: Into,
    shares: Pointer<f32>,
) -> Result<()> {
    let scale = run.gradient_scale();
    let (kernel, dy, alpha) = match (run.precision, dy) {
        (Precision::Exact, Some(Gradient::Factors(dy))) => ("layer_norm_backward_f32", dy, 1.0),
        (Precision::Exact, Some(Gradient::Numbers(dy))) => ("layer_norm_backward_f32", dy.cast(), 1.0),
        (Precision::Mixed, Some(Gradient::Factors(dy))) => ("layer_norm_backward_f16", dy, 1.0 / scale),
        (Precision::Mixed, Some(Gradient::Numbers(dy))) => ("layer_norm_backward_to_f16", dy.cast(), 1.0),
        (Precision::Exact, None) => ("layer_norm_backward_f32", Pointer::NULL, 1.0),
        (Precision::Mixed, None) => ("layer_norm_backward_f16", Pointer::NULL, 1.0),
    };
    let launch = Launch::new(kernel, run.by_sample(1), 256);
    launch!(run.device, launch; call, sum, dy, to.direct, to.sum, to.branch, to.injection, shares, alpha, scale)
}
