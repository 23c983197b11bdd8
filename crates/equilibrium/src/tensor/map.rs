//! Maps on tensors.
use burn::tensor::{Int, Tensor};

use super::cell::Cell;
use super::rows::Rows;

/// A map on a batch of states that are tensors; the leading axis counts samples, which do not influence each other.
///
/// Any closure `Fn(Tensor<D>) -> Tensor<D>` is one. A map that [can leave samples out](TensorMap::keep) costs less once most of them
/// are finished.
pub trait TensorMap<const D: usize> {
    /// `f(z)`, of the same shape as `z`.
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D>;

    /// From now on only these samples (indices into the present ones) will be asked for. Says whether it can do that.
    fn keep(&mut self, _rows: &Tensor<1, Int>) -> bool {
        false
    }
}

impl<const D: usize, F: FnMut(Tensor<D>) -> Tensor<D>> TensorMap<D> for F {
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D> {
        self(z)
    }
}

impl<const D: usize> TensorMap<D> for Box<dyn TensorMap<D> + '_> {
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D> {
        self.as_mut().apply(z)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.as_mut().keep(rows)
    }
}

/// `z -> g(z; x)` for a cell `g` and an injected `x`.
pub struct Injected<'a, const D: usize, C: Cell<D>> {
    cell: &'a C,
    x: C::Input,
}

impl<'a, const D: usize, C: Cell<D>> Injected<'a, D, C> {
    /// The map of a cell with its input held fixed.
    pub fn new(cell: &'a C, x: C::Input) -> Self {
        Self { cell, x }
    }
}

impl<const D: usize, C: Cell<D>> TensorMap<D> for Injected<'_, D, C> {
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D> {
        self.cell.step(z, &self.x)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.x = self.x.pick(rows);
        true
    }
}

/// `u -> (dg/dz)^T u` for a cell `g` at one state and input.
pub struct Transposed<'a, const D: usize, C: Cell<D>> {
    cell: &'a C,
    z: Tensor<D>,
    x: C::Input,
}

impl<'a, const D: usize, C: Cell<D>> Transposed<'a, D, C> {
    /// The map of a cell's derivative at a state.
    pub fn new(cell: &'a C, z: Tensor<D>, x: C::Input) -> Self {
        Self { cell, z, x }
    }
}

impl<const D: usize, C: Cell<D>> TensorMap<D> for Transposed<'_, D, C> {
    fn apply(&mut self, u: Tensor<D>) -> Tensor<D> {
        self.cell.pull_back(self.z.clone(), &self.x, u)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.z = self.z.pick(rows);
        self.x = self.x.pick(rows);
        true
    }
}
