//! What equilibrium layers cannot do on a GPU, refused by the name of the setting.
use fedeq_core::{Error, Result};
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Solver};
use fedeq_models::graph::{Cell, Graph, Layer, Shape};

use super::{adjoint, solve};
use crate::op::group_norm::Grouping;
use crate::plan::Precision;

const ON_CPU: &str = "leave `--device` out to compute on the CPU";

/// Refuses what there are no kernels for in the network's equilibrium layer, if it has one.
pub(crate) fn ensure_supported(graph: &Graph, precision: Precision) -> Result<()> {
    for layer in &graph.layers {
        if let Layer::Equilibrium { cell, settings, y, .. } = layer {
            ensure_settings(settings)?;
            ensure_cell(cell, graph.shape(*y), precision)?;
        }
    }
    Ok(())
}

fn ensure_settings(settings: &Equilibrium) -> Result<()> {
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
    Error::invalid(format!("`{setting}` is not available on a GPU"), format!("choose {others}, or {ON_CPU}"))
}

fn ensure_memory(setting: &str, memory: usize, used: usize, most: usize) -> Result<()> {
    if used <= most {
        return Ok(());
    }
    Err(Error::invalid(
        format!("`{setting}` is `{memory}`, and on a GPU it is {most} at most"),
        format!("set it to {most} or less, or {ON_CPU}"),
    ))
}

fn ensure_cell(cell: &Cell, state: Shape, precision: Precision) -> Result<()> {
    match (cell, state) {
        (Cell::Dense { .. }, Shape::Vector(width)) if !width.is_multiple_of(4) => Err(Error::invalid(
            format!("a hidden width of `{width}` is not available on a GPU"),
            format!("choose a multiple of 4, or {ON_CPU}"),
        )),
        (Cell::Residual { over, .. }, Shape::Image([height, width, channels])) => {
            let fits = [channels, 2 * channels].iter().all(|&channels| Grouping::new([height, width], channels, *over).is_some());
            if fits && (precision == Precision::Exact || channels.is_multiple_of(8)) {
                return Ok(());
            }
            Err(Error::invalid(
                format!("states of `{height}` x `{width}` pixels with `{channels}` channels are not available on a GPU"),
                format!("use smaller images, or {ON_CPU}"),
            ))
        }
        _ => Ok(()),
    }
}
