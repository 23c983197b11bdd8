//! The equilibrium layer of a burn model.
use burn::tensor::Tensor;

use super::attach::AdjointRecord;
use super::cell::{Cell, has_trainable_parameters};
use super::rows::Rows;
use super::solve::solve_tensors;
use crate::layer::Equilibrium;
use crate::solution::SolveReport;

/// The output of an equilibrium layer.
#[derive(Clone, Debug)]
pub struct Settled<const D: usize> {
    /// `g(z*; x)`, attached to the autodiff graph of the cell and of `x`, if they have one.
    pub z: Tensor<D>,
    /// `z*` itself, without a graph: what the next solve can start from.
    pub fixed_point: Tensor<D>,
    /// How the solve went.
    pub report: SolveReport,
    /// How the backward pass's own solve went, once it has run.
    pub adjoint: AdjointRecord,
}

impl Equilibrium {
    /// Solves `z = g(z; x)` from `z0` and attaches the result to the graph.
    ///
    /// No gradient is recorded during the solve, so memory does not grow with its steps. If neither the cell nor `x` wants a
    /// gradient, nothing is attached and the last evaluation is not repeated.
    ///
    /// # Panics
    ///
    /// If the cell changes the shape of the state.
    pub fn forward<const D: usize, C: Cell<D>>(&self, cell: &C, x: &C::Input, z0: Tensor<D>) -> Settled<D> {
        let (plain_cell, plain_x) = (cell.valid(), x.frozen());
        let solution = solve_tensors(plain_cell.held(&plain_x), z0.without_autodiff(), &self.solver, &self.stop, &self.options);
        let adjoint = AdjointRecord::default();
        let z = if has_trainable_parameters(cell) || x.is_tracked() {
            self.adjoint.attach(cell, x, solution.z.clone(), &adjoint)
        } else {
            solution.image
        };
        Settled { z, fixed_point: solution.z, report: solution.report, adjoint }
    }
}
