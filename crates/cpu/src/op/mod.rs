//! The layers of a network, each with its way forward and its way back.
mod conv;
mod dense;
mod equilibrium;
mod norm;
mod pool;
mod scale;
mod text;
mod transformer;

use std::fmt::{self, Debug};
use std::ops::Range;

use fedeq_equilibrium::{HostStates, SolveWorkspace};
use fedeq_kernels::activation as kernels;
use fedeq_kernels::transformer::Blocked;
use fedeq_kernels::{InstructionSet, cell as cell_kernels, norm as norm_kernels, transformer as transformer_kernels};
use fedeq_models::Activation;
use fedeq_models::graph::{Layer, ParameterId};

use crate::memory::Numbers;
use crate::parameters::{Gradients, Values};
use crate::plan::Planner;
use crate::pool::Pool;
use crate::statistics::RunningMoments;

pub use equilibrium::{Solved, Start};

/// The kernel of a nonlinearity.
pub(crate) fn kernel_of(activation: Activation) -> kernels::Activation {
    match activation {
        Activation::Relu => kernels::Activation::Relu,
        Activation::Softplus => kernels::Activation::Softplus,
    }
}

/// A layer of a plan.
pub(crate) trait Op: Debug + Send {
    /// Computes the output, and keeps what the way back needs.
    fn forward(&mut self, run: &mut PassContext<'_>);

    /// From the gradient of the output to those of the inputs and of the parameters, as far as they are wanted.
    fn backward(&mut self, run: &mut PassContext<'_>);

    /// A large parameter whose gradient is not kept as a whole where gradients are used as they come, if there is one.
    fn pieces(&self) -> Option<Pieces> {
        None
    }

    /// Some numbers of that gradient, after the way back of the layer.
    fn gradient_piece(&mut self, _: &mut PassContext<'_>, _numbers: Range<usize>, _to: &mut [f32]) {}

    /// Computes the output once more, to where the way back reads it; a plan asks that of layers that have said so.
    fn repeat(&mut self, _: &mut PassContext<'_>) {}

    /// Gives memory back that only the next pass would need.
    fn release(&mut self, _: &mut Pool) {}

    /// The fixed point that the layer has solved for, if it solves for one.
    fn solved(&self) -> Option<Solved<'_>> {
        None
    }

    /// The spectral radius of the cell's Jacobian at the fixed point, an estimate for every sample.
    fn spectral_radius(&mut self, _: &mut PassContext<'_>, _: HostStates, _: usize) -> Option<Vec<f64>> {
        None
    }
}

/// A parameter whose gradient comes piece by piece.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces {
    pub(crate) id: ParameterId,
    /// The numbers of the parameter.
    pub(crate) all: usize,
    /// Those of a piece; the last one may have fewer.
    pub(crate) each: usize,
}

/// What layers work with.
#[derive(Debug)]
pub(crate) struct PassContext<'a> {
    pub(crate) set: InstructionSet,
    pub(crate) numbers: Numbers<'a>,
    pub(crate) symbols: Symbols<'a>,
    pub(crate) parameters: Values<'a>,
    pub(crate) gradients: Gradients<'a>,
    pub(crate) statistics: &'a mut [RunningMoments],
    pub(crate) scratch: &'a mut Scratch,
    /// The seed of the dropout masks, if there is dropout.
    pub(crate) dropout: Option<u64>,
    /// Where an equilibrium solve starts.
    pub(crate) start: Start<'a>,
}

/// The symbols of a batch of text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbols<'a> {
    /// `[batch, length]`
    pub(crate) values: &'a [i32],
    /// Where attention may not go.
    pub(crate) blocked: Option<&'a Blocked>,
}

/// Memory that layers work in, shared by all of them; it grows when first used.
#[derive(Default)]
pub(crate) struct Scratch {
    /// Of residual cells, and of convolutions outside of them.
    pub(crate) cell: cell_kernels::CellScratch,
    /// The residual cell that was worked with last.
    pub(crate) prepared: Option<cell_kernels::PreparedCell>,
    pub(crate) norm: norm_kernels::NormScratch,
    pub(crate) transformer: transformer_kernels::LayerScratch,
    pub(crate) solver: SolveWorkspace<HostStates>,
    pub(crate) transposed: Vec<f32>,
    pub(crate) gradient: Vec<f32>,
}

impl Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scratch").finish_non_exhaustive()
    }
}

/// The layer with its place in the plan.
pub(crate) fn build(layer: &Layer, plan: &mut Planner<'_>) -> Box<dyn Op> {
    match *layer {
        Layer::Conv { x, weight, stride, y } => Box::new(conv::Conv::new(plan, x, weight, stride, y)),
        Layer::Norm { x, affine, over, fusion, y } => Box::new(norm::Norm::new(plan, x, affine, over, fusion, y)),
        Layer::MaxPool { x, y } => Box::new(pool::MaxPool::new(plan, x, y)),
        Layer::MeanPool { x, y } => Box::new(pool::MeanPool::new(plan, x, y)),
        Layer::Widen { x, y } => Box::new(pool::Widen::new(plan, x, y)),
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
