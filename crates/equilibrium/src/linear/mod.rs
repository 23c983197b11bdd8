//! `(I - J^T) u = v` by vector-Jacobian products alone.
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::cell::Cell;
use crate::error::{InvalidSetting, MEMORY, within};
use crate::map::Adjoining;
use crate::solution::Report;
use crate::solve::{SolveOptions, solve};
use crate::solver::Solver;
use crate::stop::Stop;

mod gmres;

/// How the linear system of an implicit gradient is solved, each sample for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LinearSolver {
    /// GMRES: the smallest residual for the products spent. Keeps `memory` vectors, then starts again from what it has.
    Gmres {
        /// Krylov vectors kept.
        memory: usize,
    },
    /// Anderson acceleration of `u <- v + J^T u`.
    Anderson {
        /// Past iterates used beside the newest one.
        memory: usize,
    },
    /// Broyden's method on the same map.
    Broyden {
        /// Rank-one corrections kept.
        memory: usize,
    },
    /// The truncated series `u = v + J^T v + (J^T)^2 v + ...`: converges only if the cell contracts.
    Neumann,
}

impl Default for LinearSolver {
    fn default() -> Self {
        Self::Gmres { memory: 20 }
    }
}

impl LinearSolver {
    pub(crate) fn validate(&self) -> Result<(), InvalidSetting> {
        match self {
            Self::Gmres { memory } | Self::Anderson { memory } | Self::Broyden { memory } => {
                within("adjoint.solver.memory", *memory, MEMORY)
            }
            Self::Neumann => Ok(()),
        }
    }

    /// The solver of the equivalent fixed-point problem; nothing for GMRES, which is not one.
    fn as_fixed_point_solver(&self) -> Option<Solver> {
        match self {
            Self::Gmres { .. } => None,
            Self::Anderson { memory } => Some(Solver::anderson(*memory)),
            Self::Broyden { memory } => Some(Solver::broyden(*memory)),
            Self::Neumann => Some(Solver::fixed_point()),
        }
    }
}

/// Solves `(I - J^T) u = v` with `J = dg/dz` at `(z, x)`; everything without autodiff.
pub(crate) fn solve_adjoint<const D: usize, C: Cell<D>>(
    cell: &C,
    x: &C::Input,
    z: Tensor<D>,
    v: Tensor<D>,
    solver: &LinearSolver,
    stop: &Stop,
) -> (Tensor<D>, Report) {
    let mut transposed = cell.transposed(z, x);
    match (solver, solver.as_fixed_point_solver()) {
        (_, Some(solver)) => {
            let map = Adjoining { transposed, v: v.clone() };
            let solution = solve(map, v, &solver, stop, &SolveOptions::default());
            (solution.image, solution.report)
        }
        (LinearSolver::Gmres { memory }, None) => {
            let shape = v.dims();
            let operator = |u: Tensor<2>| {
                let u = u.reshape(shape);
                (u.clone() - transposed.apply(u)).reshape([shape[0] as i64, -1])
            };
            let (u, report) = gmres::solve(operator, v.reshape([shape[0] as i64, -1]), *memory, stop);
            (u.reshape(shape), report)
        }
        (_, None) => unreachable!("every other solver has a fixed-point form"),
    }
}
