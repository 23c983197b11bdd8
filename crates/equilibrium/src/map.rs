//! The map whose fixed point is sought, seen as something that acts on a batch of states.
use burn::tensor::{Int, Tensor};

use crate::cell::Cell;
use crate::rows::Rows;

/// A map on a batch of states; the leading axis counts samples, which do not influence each other.
///
/// Any closure `Fn(Tensor<D>) -> Tensor<D>` is one. A map that [can leave samples out](Map::keep) costs less once most of them
/// are finished.
pub trait Map<const D: usize> {
    /// `f(z)`, of the same shape as `z`.
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D>;

    /// From now on only these samples (indices into the present ones) will be asked for. Says whether it can do that.
    fn keep(&mut self, _rows: &Tensor<1, Int>) -> bool {
        false
    }
}

impl<const D: usize, F: FnMut(Tensor<D>) -> Tensor<D>> Map<D> for F {
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D> {
        self(z)
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

impl<const D: usize, C: Cell<D>> Map<D> for Injected<'_, D, C> {
    fn apply(&mut self, z: Tensor<D>) -> Tensor<D> {
        self.cell.step(z, &self.x)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.x = self.x.pick(rows);
        true
    }
}

/// `u -> g + J^T u`, whose fixed point is the gradient that passes through an equilibrium.
pub(crate) struct Adjoining<'a, const D: usize, C: Cell<D>> {
    pub(crate) cell: &'a C,
    pub(crate) x: C::Input,
    pub(crate) z: Tensor<D>,
    pub(crate) g: Tensor<D>,
}

impl<const D: usize, C: Cell<D>> Adjoining<'_, D, C> {
    /// `J^T u`.
    pub(crate) fn transposed_product(&self, u: Tensor<D>) -> Tensor<D> {
        self.cell.pull_back(self.z.clone(), &self.x, u)
    }
}

impl<const D: usize, C: Cell<D>> Map<D> for Adjoining<'_, D, C> {
    fn apply(&mut self, u: Tensor<D>) -> Tensor<D> {
        self.transposed_product(u) + self.g.clone()
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.x = self.x.pick(rows);
        self.z = self.z.pick(rows);
        self.g = self.g.pick(rows);
        true
    }
}
