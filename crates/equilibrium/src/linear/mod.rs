//! `(I - J^T) u = v` by vector-Jacobian products alone.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InvalidSetting, MEMORY, within};
use crate::map::{Adjoining, Map};
use crate::solution::SolveReport;
use crate::solve::{SolveOptions, SolveWorkspace, borrow, solve_into};
use crate::solver::Solver;
use crate::states::{HostStates, States};
use crate::stop::Stop;

mod gmres;

pub(crate) use gmres::Gmres;

/// How the linear system of an implicit gradient is solved, each sample for itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum LinearSolver {
    /// GMRES: the smallest residual for the products spent. Keeps `memory` vectors, then starts again from what it has.
    Gmres {
        /// Krylov vectors kept.
        #[schemars(range(min = *MEMORY.start(), max = *MEMORY.end()))]
        memory: usize,
    },
    /// Anderson acceleration of `u <- v + J^T u`.
    Anderson {
        /// Past iterates used beside the newest one.
        #[schemars(range(min = *MEMORY.start(), max = *MEMORY.end()))]
        memory: usize,
    },
    /// Broyden's method on the same map.
    Broyden {
        /// Rank-one corrections kept.
        #[schemars(range(min = *MEMORY.start(), max = *MEMORY.end()))]
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
        workspace: &mut SolveWorkspace<S>,
    ) -> SolveReport {
        match self {
            Self::Gmres { memory } => {
                let old = std::mem::take(&mut workspace.report);
                workspace.gmres.solve(transposed, v, u, *memory, stop, old)
            }
            Self::Anderson { .. } | Self::Broyden { .. } | Self::Neumann => {
                iterate(transposed, v, u, &self.iteration(), stop, workspace)
            }
        }
    }

    /// The solver of `u -> v + J^T u` that it stands for. (GMRES stands for none; what is said of it is the plain iteration.)
    fn iteration(&self) -> Solver {
        match self {
            Self::Anderson { memory } => Solver::anderson(*memory),
            Self::Broyden { memory } => Solver::broyden(*memory),
            Self::Gmres { .. } | Self::Neumann => Solver::fixed_point(),
        }
    }

    /// Borrows the memory of a solve for states of so many numbers.
    pub(crate) fn borrow_memory(
        &self,
        stop: &Stop,
        numbers: usize,
        workspace: &mut SolveWorkspace<HostStates>,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        if let Self::Gmres { memory } = self {
            return workspace.gmres.borrow_memory(*memory, stop, numbers, lend);
        }
        borrow(workspace.right_hand_side.memory(), numbers, lend);
        borrow(workspace.adjoint_start.memory(), numbers, lend);
        workspace.borrow_for_solve((&self.iteration(), stop, &SolveOptions::default()), numbers, lend);
    }
}

/// The same as the fixed point of `u -> v + J^T u`, from `u = v`.
fn iterate<S: States>(
    transposed: &mut (impl Map<S> + ?Sized),
    v: &S,
    u: &mut S,
    solver: &Solver,
    stop: &Stop,
    workspace: &mut SolveWorkspace<S>,
) -> SolveReport {
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
