//! What an equilibrium layer wants of the map whose fixed point it finds.
use fedeq_core::Result;
use half::f16;

use crate::device::Pointer;
use crate::op::{Cohort, PassContext};

/// `g(z; u)` for a cohort as launches, with its gradients.
///
/// States, `u` and gradients of either are `[samples][each]` numbers of 32 bits in slots of the cohort, with the same number for every sample. Every method is told for which
/// samples it works and must neither read nor write others: solves leave samples that are finished out, and results of theirs must stay. Nothing may wait for the device.
///
/// A pass forward goes: [`prepare`](CellOp::prepare), [`start`](CellOp::start), any number of [`step`](CellOp::step)s. A pass back, with what `prepare` left behind:
/// [`linearise`](CellOp::linearise) at a state, any number of [`pull_back`](CellOp::pull_back)s there, then [`backward`](CellOp::backward) there; then maybe the same at another
/// state. So there is one linearisation at a time, in memory that is needed on the way back only ([`Planner::scratch_back`](crate::plan::Planner::scratch_back)); memory of
/// `step` may be [`scratch`](crate::plan::Planner::scratch) where `step` is not called on the way back, which it never is; what `prepare` leaves must be
/// [`kept`](crate::plan::Planner::kept).
pub(crate) trait CellOp: Send {
    /// Whether steps read the state in 16 bits too.
    fn reads_halves(&self) -> bool;

    /// Takes the parameters as they are now, and draws what is to be drawn for this pass.
    fn prepare(&self, run: &PassContext<'_>) -> Result<()>;

    /// Where a solve starts by itself, in both forms of `z` that are there.
    fn start(&self, run: &PassContext<'_>, u: Pointer<f32>, z: State) -> Result<()>;

    /// `out = g(z; u)` for the samples of `cohort`; `out` is neither `z` nor `u`.
    fn step(&self, run: &PassContext<'_>, cohort: Cohort, z: State, u: Pointer<f32>, out: Pointer<f32>) -> Result<()>;

    /// Keeps what gradients at `z` need, for all samples.
    fn linearise(&self, run: &PassContext<'_>, z: State, u: Pointer<f32>) -> Result<()>;

    /// `out = (dg/dz)^T v` at the linearisation, for the samples of `cohort`; `out` is not `v`. Called only where the cell was built [to know the state's gradient](Differentiated).
    fn pull_back(&self, run: &PassContext<'_>, cohort: Cohort, v: Pointer<f32>, out: Pointer<f32>) -> Result<()>;

    /// The gradients at the linearisation, for all samples, given that of the result: `z` is the state it was made at. Those of trained parameters are written to
    /// [`PassContext::gradient`], over what is there: whoever wants a sum over several states adds them up.
    fn backward(&self, run: &PassContext<'_>, z: State, v: Pointer<f32>, to: To) -> Result<()>;
}

/// States in the forms that cells read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) numbers: Pointer<f32>,
    /// Null where the cell does not [read them](CellOp::reads_halves).
    pub(crate) halves: Pointer<f16>,
}

/// Where the gradients of a step go; both are written over what is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct To {
    /// Null where it is not wanted.
    pub(crate) dz: Pointer<f32>,
    pub(crate) du: Pointer<f32>,
}

/// Which gradients a cell must be able to compute; told when it is built, so that it plans no memory for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Differentiated {
    /// None: there is no way back.
    No,
    /// Those of parameters and of `u`: neither [`CellOp::pull_back`] nor [`To::dz`] will be asked for.
    Once,
    /// All of them.
    Fully,
}

impl Differentiated {
    /// Whether there is a way back.
    pub(crate) fn any(self) -> bool {
        self != Self::No
    }

    /// Whether the state's gradient is wanted.
    pub(crate) fn state(self) -> bool {
        self == Self::Fully
    }
}
