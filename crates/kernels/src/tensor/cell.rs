//! The cell of DEQ-ResNet, whole.
use std::cell::RefCell;
use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::tensor::{Int, Tensor};

use super::host;
use super::norm::{Affine, Groups};
use super::operation::{Operation, Past, apply, only};
use crate::InstructionSet;
use crate::activation::Activation;
use crate::cell::{Cell, CellGradients, CellParameters, Linearisation, PreparedCell, Scratch};
use crate::norm::{self, NormScope};

thread_local! {
    /// One for each thread, so that steps allocate no working memory.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::new());
}

/// For steps alone, or also for gradients.
type Prepare = fn(InstructionSet, &Cell, CellParameters) -> PreparedCell;

/// `g(z; u) = GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))` on `[B, H, W, C]`; see [`crate::cell`].
///
/// What it offers, it offers for 32-bit floats on the CPU. For all else it has no answer, and the cell is to be put together from
/// its parts.
#[derive(Clone, Debug)]
pub struct ImageCell {
    /// `[2C, C, 3, 3]`
    pub conv_a: Tensor<4>,
    /// `[2C]` each.
    pub norm_1: Affine,
    /// `[C, 2C, 3, 3]`
    pub conv_b: Tensor<4>,
    /// `[C]` each.
    pub norm_2: Affine,
    /// `[C]` each.
    pub norm_3: Affine,
    /// `phi`
    pub activation: Activation,
    /// What the normalisations take their statistics over.
    pub groups: Groups,
}

impl ImageCell {
    /// `g(z; u)`, with its gradient in everything.
    pub fn step(&self, z: &Tensor<4>, u: &Tensor<4>) -> Option<Tensor<4>> {
        let [conv_a, scale_1, offset_1, conv_b, scale_2, offset_2, scale_3, offset_3] = self.parameters();
        let states = [z, u].map(|state| state.clone().into_dispatch());
        let [z_here, u_here] = states;
        let inputs = [z_here, u_here, conv_a, scale_1, offset_1, conv_b, scale_2, offset_2, scale_3, offset_3];
        apply(CellStep { cell: self.like(z), dims: z.dims() }, inputs)
    }

    /// `z -> g(z; u)`, the parameters prepared once; everything without autodiff.
    pub fn hold(&self, u: &Tensor<4>) -> Option<HeldImageCell> {
        Some(HeldImageCell { prepared: Arc::new(self.prepare(u, PreparedCell::for_steps)?), u: u.clone() })
    }

    /// `v -> (dg/dz)^T v` at `(z, u)`; everything without autodiff.
    pub fn linearise(&self, z: &Tensor<4>, u: &Tensor<4>) -> Option<LinearImageCell> {
        let prepared = self.prepare(u, PreparedCell::new)?;
        let [z, u] = [z, u].map(|state| host::plain(state.clone().into_dispatch()));
        let near = SCRATCH.with_borrow_mut(|scratch| prepared.linearise(host::numbers(&z), host::numbers(&u), scratch));
        Some(LinearImageCell { prepared, near })
    }

    fn prepare(&self, like: &Tensor<4>, prepared: Prepare) -> Option<PreparedCell> {
        let parameters = self.parameters();
        let here = parameters
            .iter()
            .chain([&like.clone().into_dispatch()])
            .all(|tensor| host::is_here(tensor) && !host::is_differentiated(tensor));
        here.then(|| {
            let parameters = parameters.map(host::plain);
            prepared(InstructionSet::best(), &self.like(like), named(parameters.each_ref().map(host::numbers)))
        })
    }

    /// In the order of the fields.
    fn parameters(&self) -> [DispatchTensor; 8] {
        let [first, second, third] = [&self.norm_1, &self.norm_2, &self.norm_3]
            .map(|norm| [norm.scale.clone().into_dispatch(), norm.offset.clone().into_dispatch()]);
        let [conv_a, conv_b] = [&self.conv_a, &self.conv_b].map(|conv| conv.clone().into_dispatch());
        let ([scale_1, offset_1], [scale_2, offset_2], [scale_3, offset_3]) = (first, second, third);
        [conv_a, scale_1, offset_1, conv_b, scale_2, offset_2, scale_3, offset_3]
    }

    fn like(&self, state: &Tensor<4>) -> Cell {
        let [_, height, width, channels] = state.dims();
        let scope = if self.groups.by_row { NormScope::Row } else { NormScope::Plane };
        Cell { height, width, channels, groups: self.groups.count, activation: self.activation, scope }
    }
}

fn named([conv_a, scale_1, offset_1, conv_b, scale_2, offset_2, scale_3, offset_3]: [&[f32]; 8]) -> CellParameters<'_> {
    let norm = |scale, offset| norm::Affine { scale, offset };
    CellParameters {
        conv_a,
        norm_1: norm(scale_1, offset_1),
        conv_b,
        norm_2: norm(scale_2, offset_2),
        norm_3: norm(scale_3, offset_3),
    }
}

/// `z -> g(z; u)` for one `u`.
#[derive(Clone, Debug)]
pub struct HeldImageCell {
    prepared: Arc<PreparedCell>,
    u: Tensor<4>,
}

impl HeldImageCell {
    /// `g(z; u)`
    pub fn step(&self, z: Tensor<4>) -> Tensor<4> {
        let shape = z.dims();
        let [z, u] = [z, self.u.clone()].map(|state| host::plain(state.into_dispatch()));
        let out = SCRATCH.with_borrow_mut(|scratch| self.prepared.stepped(host::numbers(&z), host::numbers(&u), scratch));
        Tensor::from_dispatch(host::constant(host::tensor(out, shape.to_vec())))
    }

    /// From now on for these samples only.
    pub fn keep(&mut self, rows: &Tensor<1, Int>) {
        self.u = self.u.clone().select(0, rows.clone());
    }
}

/// `v -> (dg/dz)^T v` at one state.
#[derive(Debug)]
pub struct LinearImageCell {
    prepared: PreparedCell,
    near: Linearisation,
}

impl LinearImageCell {
    /// `(dg/dz)^T v`
    pub fn pull_back(&self, v: Tensor<4>) -> Tensor<4> {
        let shape = v.dims();
        let v = host::plain(v.into_dispatch());
        let mut out = vec![0.0; host::numbers(&v).len()];
        SCRATCH.with_borrow_mut(|scratch| self.near.pull_back(&self.prepared, host::numbers(&v), &mut out, scratch));
        Tensor::from_dispatch(host::constant(host::tensor(out, shape.to_vec())))
    }
}

#[derive(Clone, Debug)]
struct CellStep {
    cell: Cell,
    dims: [usize; 4],
}

impl CellStep {
    fn prepare(&self, [_, _, parameters @ ..]: [&[f32]; 10], prepared: Prepare) -> PreparedCell {
        prepared(InstructionSet::best(), &self.cell, named(parameters))
    }
}

impl Operation<10> for CellStep {
    type Saved = Arc<(PreparedCell, Linearisation)>;

    fn shape(&self) -> Vec<usize> {
        self.dims.to_vec()
    }

    fn run_saving(&self, inputs: [&[f32]; 10]) -> (Vec<f32>, Self::Saved) {
        let prepared = self.prepare(inputs, PreparedCell::new);
        let mut out = vec![0.0; inputs[0].len()];
        let near = SCRATCH.with_borrow_mut(|scratch| prepared.step_saving(inputs[0], inputs[1], &mut out, scratch));
        (out, Arc::new((prepared.for_gradients(), near)))
    }

    fn run(&self, inputs: [&[f32]; 10]) -> Vec<f32> {
        SCRATCH.with_borrow_mut(|scratch| self.prepare(inputs, PreparedCell::for_steps).stepped(inputs[0], inputs[1], scratch))
    }

    fn gradients(&self, past: Past<'_, Self::Saved, 10>, wanted: [bool; 10]) -> [Option<Vec<f32>>; 10] {
        let (prepared, near) = &**past.saved;
        let found = SCRATCH.with_borrow_mut(|scratch| near.backward(prepared, past.inputs[0], past.gradient, scratch));
        let CellGradients { z, u, conv_a, norm_1, conv_b, norm_2, norm_3 } = found;
        let in_order =
            [z, u, conv_a, norm_1.scale, norm_1.offset, conv_b, norm_2.scale, norm_2.offset, norm_3.scale, norm_3.offset];
        only(wanted, in_order.map(Some))
    }
}
