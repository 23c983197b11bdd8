//! The equilibrium layer: solver, stopping rule and adjoint together.
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::adjoint::{Adjoint, AdjointRecord};
use crate::cell::{Cell, has_trainable_parameters};
use crate::error::{InvalidSetting, below_one};
use crate::rows::Rows;
use crate::solution::Report;
use crate::solve::{SolveOptions, solve};
use crate::solver::Solver;
use crate::stop::Stop;

/// How an equilibrium layer finds its state and passes its gradient. Plain data: put it in a configuration.
///
/// ```
/// use fedeq_equilibrium::{Adjoint, Equilibrium, Solver, Stop};
///
/// let layer = Equilibrium {
///     solver: Solver::anderson(4),
///     stop: Stop::relative(1e-4, 30),
///     adjoint: Adjoint::implicit(),
///     ..Equilibrium::default()
/// };
/// assert!(layer.validate().is_ok());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Equilibrium {
    /// Finds the state.
    pub solver: Solver,
    /// Decides when it is found.
    pub stop: Stop,
    /// Passes the gradient.
    pub adjoint: Adjoint,
    /// What else the solve does.
    pub options: SolveOptions,
}

/// The output of an equilibrium layer.
#[derive(Clone, Debug)]
pub struct Settled<const D: usize> {
    /// `g(z*; x)`, attached to the autodiff graph of the cell and of `x`, if they have one.
    pub z: Tensor<D>,
    /// `z*` itself, without a graph: what the next solve can start from.
    pub fixed_point: Tensor<D>,
    /// How the solve went.
    pub report: Report,
    /// How the backward pass's own solve went, once it has run.
    pub adjoint: AdjointRecord,
}

impl Equilibrium {
    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.solver.validate()?;
        self.stop.validate()?;
        self.adjoint.validate()?;
        if self.options.shrink_below == 1.0 { Ok(()) } else { below_one("options.shrink_below", self.options.shrink_below) }
    }

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
        let solution = solve(plain_cell.held(&plain_x), z0.without_autodiff(), &self.solver, &self.stop, &self.options);
        let adjoint = AdjointRecord::default();
        let z = if has_trainable_parameters(cell) || x.is_tracked() {
            self.adjoint.attach(cell, x, solution.z.clone(), &adjoint)
        } else {
            solution.image
        };
        Settled { z, fixed_point: solution.z, report: solution.report, adjoint }
    }
}
