//! How gradients pass through an equilibrium.
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::error::{InvalidSetting, PHANTOM_STEPS, below_one, within};
use crate::linear::{LinearSolver, solve_adjoint};
use crate::pullback::{Rule, pullback};
use crate::rows::Rows;
use crate::solution::Report;
use crate::stop::Stop;

/// How gradients pass through `z* = g(z*; x)`, whatever solver found `z*`.
///
/// By the implicit function theorem a gradient `v` that arrives at `z*` goes on to the parameters as `(dg/dtheta)^T u`, and to
/// the input as `(dg/dx)^T u`, where `(I - J^T) u = v` and `J = dg/dz` at `z*`. The choices differ in how `u` is found:
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Adjoint {
    /// `u = v`: the identity in place of the inverse. One application of the cell, forward and backward; the direction is right
    /// as long as the cell contracts, the length is too short.
    #[default]
    JacobianFree,
    /// Back-propagation through `steps` damped applications of the cell after the solve, `z <- damping z + (1 - damping) g(z; x)`:
    /// the first terms of the series of the inverse. Memory grows with `steps`, not with the solver's steps.
    Phantom {
        /// Applications that are differentiated.
        #[serde(default = "Adjoint::default_phantom_steps")]
        steps: usize,
        /// Share of the old state that is kept.
        #[serde(default)]
        damping: f64,
    },
    /// The linear system is solved, by vector-Jacobian products alone.
    Implicit {
        /// By which method.
        #[serde(default)]
        solver: LinearSolver,
        /// How well: tolerances are relative to `||v||`.
        #[serde(default = "Adjoint::default_stop")]
        stop: Stop,
    },
}

impl Adjoint {
    /// Implicit differentiation by GMRES.
    pub fn implicit() -> Self {
        Self::Implicit { solver: LinearSolver::default(), stop: Self::default_stop() }
    }

    fn default_stop() -> Stop {
        Stop::relative(1e-3, 50)
    }

    fn default_phantom_steps() -> usize {
        5
    }

    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        match self {
            Self::JacobianFree => Ok(()),
            Self::Phantom { steps, damping } => {
                within("adjoint.steps", *steps, PHANTOM_STEPS)?;
                below_one("adjoint.damping", *damping)
            }
            Self::Implicit { solver, stop } => {
                solver.validate()?;
                stop.validate()
            }
        }
    }

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
            Self::Implicit { solver, stop } => {
                let attached = cell.step(z.clone(), x);
                let (cell, x, solver, stop, record) = (cell.valid(), x.frozen(), solver.clone(), *stop, record.clone());
                let rule = move |v| {
                    let (u, report) = solve_adjoint(&cell, &x, z.clone(), v, &solver, &stop);
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
pub struct AdjointRecord(Arc<Mutex<Option<Report>>>);

impl AdjointRecord {
    /// The report of the last backward pass; nothing before it, or when the adjoint solves no system.
    pub fn report(&self) -> Option<Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, report: Report) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
    }
}
