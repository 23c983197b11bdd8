//! What equilibrium layers cannot do on a GPU, refused by the name of the setting.
use fedeq_core::{Error, Result};
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Solver};
use fedeq_models::graph::{Cell, Shape};

use super::norm::Norm;
use super::{adjoint, solve};
use crate::plan::Precision;
use crate::support::refused;

/// Refuses ways to solve and to differentiate that there are no kernels for.
pub(crate) fn ensure_settings(settings: &Equilibrium) -> Result<()> {
    match &settings.solver {
        Solver::FixedPoint { .. } => {}
        Solver::Anderson(anderson) => {
            let used = solve::usable_memory(anderson.memory, &settings.stop);
            ensure_memory("solver.anderson.memory", anderson.memory, used, solve::MOST)?;
        }
        Solver::Broyden { .. } => return Err(no_broyden("solver.broyden", "`anderson` or `fixed-point`")),
    }
    let Adjoint::Implicit { solver, stop } = &settings.adjoint else { return Ok(()) };
    match solver {
        LinearSolver::Neumann => Ok(()),
        LinearSolver::Gmres { memory } => {
            ensure_memory("adjoint.implicit.solver.gmres.memory", *memory, (*memory).min(stop.max_steps), adjoint::MOST)
        }
        LinearSolver::Anderson { memory } => {
            ensure_memory("adjoint.implicit.solver.anderson.memory", *memory, solve::usable_memory(*memory, stop), solve::MOST)
        }
        LinearSolver::Broyden { .. } => Err(no_broyden("adjoint.implicit.solver.broyden", "`gmres`, `anderson` or `neumann`")),
    }
}

fn no_broyden(setting: &str, others: &str) -> Error {
    refused(format!("`model.equilibrium.{setting}` is chosen"), &format!("choose {others}"))
}

fn ensure_memory(setting: &str, memory: usize, used: usize, most: usize) -> Result<()> {
    if used <= most {
        return Ok(());
    }
    Err(refused(format!("`model.equilibrium.{setting}` is `{memory}`"), &format!("set it to {most} or less")))
}

/// Refuses a cell that there are no kernels for, on states of this shape.
pub(crate) fn ensure_cell(cell: &Cell, state: Shape, precision: Precision) -> Result<()> {
    match (cell, state) {
        (Cell::Dense { .. }, Shape::Vector(width)) if !width.is_multiple_of(4) => {
            Err(refused(format!("the hidden width is `{width}`"), "choose a multiple of 4"))
        }
        (Cell::Residual { over, .. }, Shape::Image([height, width, channels])) => {
            let fits = [channels, 2 * channels].iter().all(|&channels| Norm::new([height, width], channels, *over).is_some());
            if fits && (precision == Precision::Exact || channels.is_multiple_of(8)) {
                return Ok(());
            }
            Err(refused(format!("states have `{height}` x `{width}` pixels with `{channels}` channels"), "use smaller images"))
        }
        _ => Ok(()),
    }
}
