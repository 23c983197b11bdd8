//! `(I - J^T) u = v` by vector-Jacobian products alone.
use serde::{Deserialize, Serialize};

use crate::error::{InvalidSetting, MEMORY, within};
use crate::map::{Adjoining, Map};
use crate::solution::Report;
use crate::solve::{SolveOptions, Workspace, solve_into};
use crate::solver::Solver;
use crate::states::States;
use crate::stop::Stop;

mod gmres;

pub(crate) use gmres::Gmres;

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
            Self::Gmres { memory } => within("adjoint.implicit.solver.gmres.memory", *memory, MEMORY),
            Self::Anderson { memory } => within("adjoint.implicit.solver.anderson.memory", *memory, MEMORY),
            Self::Broyden { memory } => within("adjoint.implicit.solver.broyden.memory", *memory, MEMORY),
            Self::Neumann => Ok(()),
        }
    }

    /// Solves `(I - J^T) u = v`, each row for itself; `transposed` is the map `u -> J^T u`. The result is in `u`, whatever was in it before.
    pub fn solve<S: States>(
        &self,
        transposed: &mut (impl Map<S> + ?Sized),
        v: &S,
        u: &mut S,
        stop: &Stop,
        workspace: &mut Workspace<S>,
    ) -> Report {
        match self {
            Self::Gmres { memory } => workspace.gmres.solve(transposed, v, u, *memory, stop),
            Self::Anderson { memory } => iterate(transposed, v, u, &Solver::anderson(*memory), stop, workspace),
            Self::Broyden { memory } => iterate(transposed, v, u, &Solver::broyden(*memory), stop, workspace),
            Self::Neumann => iterate(transposed, v, u, &Solver::fixed_point(), stop, workspace),
        }
    }
}

/// The same as the fixed point of `u -> v + J^T u`, from `u = v`.
fn iterate<S: States>(
    transposed: &mut (impl Map<S> + ?Sized),
    v: &S,
    u: &mut S,
    solver: &Solver,
    stop: &Stop,
    workspace: &mut Workspace<S>,
) -> Report {
    let mut present = std::mem::take(&mut workspace.right_hand_side);
    let mut start = std::mem::take(&mut workspace.adjoint_start);
    present.copy_from(v);
    start.copy_from(v);
    let mut map = Adjoining { transposed, v: &mut present };
    let report = solve_into(&mut map, &mut start, u, solver, stop, &SolveOptions::default(), workspace);
    workspace.right_hand_side = present;
    workspace.adjoint_start = start;
    report
}
