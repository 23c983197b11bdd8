//! Layers as launches: each with its way forward and its way back.
//!
//! What a launch does depends on device memory alone (who is there, which samples), so that a whole training step can be recorded once and repeated.
mod conv;
mod convolution;
mod dense;
mod dropout;
pub(crate) mod equilibrium;
pub(crate) mod layer_norm;
mod linear;
pub(crate) mod norm;
mod pool;
mod scale;
mod text;
mod transformer;

use equilibrium::SolveHook;
#[cfg(test)]
use equilibrium::Solved;
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{Layer, ParameterId, Shape};
use half::f16;

use crate::arena::{Arena, Slot};
use crate::device::{Device, Launch, Pointer, argument, launch};
use crate::layout::Layout;
use crate::plan::{Planner, Precision, SCALE, Size};

pub(crate) use dropout::{DropoutKeys, dropout_keys};

/// A layer of a plan.
pub(crate) trait Op: Send {
    /// Computes the output, and keeps what the way back needs.
    fn forward(&self, run: &PassContext<'_>) -> Result<()>;

    /// From the gradient of the output to those of the inputs and of the parameters, as far as they are wanted.
    fn backward(&self, run: &PassContext<'_>) -> Result<()>;

    /// Where the fixed point is that the layer solves for, if it solves for one.
    #[cfg(test)]
    fn solved(&self) -> Option<Solved> {
        None
    }
}

/// Who is there: the samples of lane `k` are `rows[first .. first + count]` with `{first, count} = spans[k]`. Kernels know it by the same name.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cohort {
    pub(crate) spans: Pointer<[i32; 2]>,
    pub(crate) rows: Pointer<i32>,
}

argument!(Cohort { spans, rows });

/// Products in 32 bits with a matrix `[inputs][outputs]` a lane, for `per` rows a sample. Kernels know it as `Dense`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct DenseCall {
    pub(crate) x: Pointer<f32>,
    pub(crate) w: Pointer<f32>,
    pub(crate) dy: Pointer<f32>,
    pub(crate) cohort: Cohort,
    pub(crate) w_stride: i64,
    pub(crate) inputs: i32,
    pub(crate) outputs: i32,
    pub(crate) per: i32,
}

argument!(DenseCall { x, w, dy, cohort, w_stride, inputs, outputs, per });

/// Texts of a data set that lives on the device.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) symbols: Pointer<i32>,
    pub(crate) indices: Pointer<i32>,
    pub(crate) length: i32,
}

argument!(Text { symbols, indices, length });

/// How the pictures of every step are changed: `[steps][lanes][samples of a lane at most]`, each as kernels have it, and the number of the step.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PictureChanges {
    pub(crate) step: Pointer<i32>,
    pub(crate) table: Pointer<i32>,
}

/// What layers work with.
pub(crate) struct PassContext<'a> {
    pub(crate) device: &'a Device,
    pub(crate) size: Size,
    pub(crate) precision: Precision,
    pub(crate) cohort: Cohort,
    /// Which sample of the data set every slot of the cohort holds.
    pub(crate) indices: Pointer<i32>,
    /// The symbols of the batch, if it is one of texts.
    pub(crate) text: Text,
    /// Where dropout's random numbers come from; none for a pass without dropout.
    pub(crate) dropout: Option<DropoutKeys>,
    /// How the pictures of the batch are changed, if they are.
    pub(crate) changes: Option<PictureChanges>,
    pub(crate) layout: &'a Layout,
    /// `[lanes][stride]`
    pub(crate) parameters: Pointer<f32>,
    /// The same for gradients; null where nothing is trained.
    pub(crate) gradients: Pointer<f32>,
    /// `[lanes][statistics stride]`
    pub(crate) statistics: Pointer<f32>,
    pub(crate) base: Pointer<u8>,
    pub(crate) arena: &'a Arena,
    /// What is done before and after the solve of a network that solves for a fixed point.
    pub(crate) hook: Option<&'a dyn SolveHook>,
}

impl PassContext<'_> {
    /// The same for other samples.
    pub(crate) fn of(&self, cohort: Cohort) -> PassContext<'_> {
        PassContext { cohort, ..*self }
    }

    /// Where a buffer is.
    pub(crate) fn at<T>(&self, slot: Slot) -> Pointer<T> {
        self.base.add(self.arena.offset(slot)).cast()
    }

    /// Where a buffer is, or what kernels take for "not there".
    pub(crate) fn maybe<T>(&self, slot: Option<Slot>) -> Pointer<T> {
        slot.map_or(Pointer::NULL, |slot| self.at(slot))
    }

    /// A parameter of the first lane; others are [`stride`](Self::stride) numbers apart.
    pub(crate) fn parameter(&self, id: ParameterId) -> Pointer<f32> {
        self.parameters.add(self.layout.place(id).start)
    }

    /// Its gradient.
    pub(crate) fn gradient(&self, id: ParameterId) -> Pointer<f32> {
        self.gradients.add(self.layout.place(id).start)
    }

    /// Numbers from a lane to the next, for parameters and gradients.
    pub(crate) fn stride(&self) -> i64 {
        self.layout.stride() as i64
    }

    /// What gradients in the form of factors are multiplied by.
    pub(crate) fn gradient_scale(&self) -> f32 {
        match self.precision {
            Precision::Mixed => SCALE,
            Precision::Exact => 1.0,
        }
    }

    /// `out = a x + b y`, so many numbers a sample, an even count; `out` may be either.
    pub(crate) fn combine(&self, [a, b]: [f32; 2], [x, y]: [Pointer<f32>; 2], out: Pointer<f32>, each: usize) -> Result<()> {
        let (halves, grid) = (Pointer::<f16>::NULL, self.by_sample(each.div_ceil(512)));
        launch!(self.device, Launch::new("combine", grid, 256); x, y, out, halves, self.cohort, a, b, 1.0_f32, each as i32)
    }

    /// `sum += part`, so many numbers a sample, an even count.
    pub(crate) fn add(&self, part: Pointer<f32>, sum: Pointer<f32>, each: usize) -> Result<()> {
        self.combine([1.0, 1.0], [part, sum], sum, each)
    }

    /// Numbers in 16 bits, `scale` times as large, an even count a sample.
    pub(crate) fn to_halves(&self, x: Pointer<f32>, y: Pointer<f16>, scale: f32, each: usize) -> Result<()> {
        let grid = self.by_sample(each.div_ceil(512));
        launch!(self.device, Launch::new("to_f16", grid, 256); x, y, self.cohort, scale, each as i32)
    }

    /// `out[lane] = sum over the lane's samples and `per` of x[sample][per]`, `n` numbers each; lanes are `stride` numbers apart.
    pub(crate) fn sum_samples(&self, x: Pointer<f32>, out: Pointer<f32>, stride: i64, per: usize, n: usize) -> Result<()> {
        let kernel = Launch::new("sum_samples", [n.div_ceil(32), self.size.lanes, 1], 1024);
        launch!(self.device, kernel; x, out, self.cohort, stride, 1.0_f32, per as i32, n as i32)
    }

    /// A grid of so many blocks for each sample: (blocks, samples of a lane, lanes).
    pub(crate) fn by_sample(&self, blocks: usize) -> [usize; 3] {
        [blocks, self.size.most, self.size.lanes]
    }
}

/// The number by which kernels know a nonlinearity.
pub(crate) fn phi(activation: Option<Activation>, precision: Precision) -> i32 {
    match (activation, precision) {
        (None, _) => 0,
        (Some(Activation::Relu), _) => 1,
        (Some(Activation::Softplus), Precision::Mixed) => 2,
        (Some(Activation::Softplus), Precision::Exact) => 3,
    }
}

/// The layer with its place in the plan.
pub(crate) fn build(layer: &Layer, plan: &mut Planner<'_>) -> Box<dyn Op> {
    match *layer {
        Layer::Conv { x, weight, stride, y } => Box::new(conv::Conv::new(plan, x, weight, stride, y)),
        Layer::Norm { x, affine, over, fusion, y } => norm::build(plan, x, affine, over, fusion, y),
        Layer::MaxPool { x, y } if plan.pool_behind(x) == Some(y) => Box::new(pool::ByNorm),
        Layer::MaxPool { x, y } => Box::new(pool::MaxPool::new(plan, x, y)),
        Layer::MeanPool { x, y } => Box::new(pool::MeanPool::new(plan, x, y)),
        Layer::Widen { x, y } => Box::new(pool::Widen::new(plan, x, y)),
        Layer::Dense { x, weight, bias, activation, y } if matches!(plan.graph.shape(y), Shape::Sequence(_)) => {
            Box::new(text::Dense::new(plan, x, weight, bias, activation, y))
        }
        Layer::Dense { x, weight, bias, activation, y } => Box::new(dense::Dense::new(plan, x, weight, bias, activation, y)),
        Layer::Embed { tokens, positions, y } => Box::new(text::Embed::new(plan, tokens, positions, y)),
        Layer::Scale { x, factor, y } => Box::new(scale::Scale::new(plan, x, factor, y)),
        Layer::LayerNorm { x, affine, y } => Box::new(text::LayerNorm::new(plan, x, affine, y)),
        Layer::Transformer { h, injection, ref layers, y } => {
            Box::new(transformer::Transformer::new(plan, h, injection, layers, y))
        }
        Layer::Equilibrium { injection, ref cell, ref settings, y } => {
            Box::new(equilibrium::Equilibrium::new(plan, injection, cell, settings, y))
        }
        Layer::Repeat { injection, ref cell, times, y } => Box::new(equilibrium::Repeat::new(plan, injection, cell, times, y)),
    }
}
