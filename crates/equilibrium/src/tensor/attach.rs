//! How gradients pass through an equilibrium in burn's autodiff.
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Tensor;

use super::cell::Cell;
use super::pullback::{Rule, pullback};
use super::rows::Rows;
use super::solve::correct;
use crate::adjoint::Adjoint;
use crate::solution::SolveReport;

impl Adjoint {
    /// `g(z*; x)` with a graph that passes gradients to the cell and to `x` in this way. `z` is cut off from any graph.
    pub(crate) fn attach<const D: usize, C: Cell<D>>(
        &self,
        cell: &C,
        x: &C::Input,
        z: Tensor<D>,
        record: &AdjointRecord,
    ) -> Tensor<D> {
        match self {
            Self::JacobianFree => cell.step(z, x),
            Self::Phantom { steps, damping } => phantom(cell, x, z, *steps, *damping),
            Self::Implicit { .. } => {
                let attached = cell.step(z.clone(), x);
                let (cell, x, adjoint, record) = (cell.valid(), x.frozen(), self.clone(), record.clone());
                let rule = move |v| {
                    let (u, report) = correct(&adjoint, cell.transposed(z.clone(), &x).as_mut(), v);
                    record.set(report);
                    u
                };
                pullback(attached, Rule::new(rule))
            }
        }
    }
}

fn phantom<const D: usize, C: Cell<D>>(cell: &C, x: &C::Input, z: Tensor<D>, steps: usize, damping: f64) -> Tensor<D> {
    let advance = |z: Tensor<D>, _| cell.step(z.clone(), x).mul_scalar(1.0 - damping) + z.mul_scalar(damping);
    (0..steps).fold(z, advance)
}

/// Where a backward pass leaves word of how its linear solve went.
#[derive(Clone, Debug, Default)]
pub struct AdjointRecord(Arc<Mutex<Option<SolveReport>>>);

impl AdjointRecord {
    /// The report of the last backward pass; nothing before it, or when the adjoint solves no system.
    pub fn report(&self) -> Option<SolveReport> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, report: Option<SolveReport>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = report;
    }
}
