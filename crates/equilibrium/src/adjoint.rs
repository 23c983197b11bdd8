//! How gradients pass through an equilibrium.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InvalidSetting, PHANTOM_STEPS, below_one, within};
use crate::linear::LinearSolver;
use crate::map::Map;
use crate::solution::SolveReport;
use crate::solve::SolveWorkspace;
use crate::states::States;
use crate::stop::Stop;

/// How gradients pass through `z* = g(z*; x)`, whatever solver found `z*`.
///
/// By the implicit function theorem a gradient `v` that arrives at `z*` continues to the parameters as `(dg/dtheta)^T u`, and to
/// the input as `(dg/dx)^T u`, where `(I - J^T) u = v` and `J = dg/dz` at `z*`. The choices differ in how `u` is found:
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
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
        #[schemars(range(min = *PHANTOM_STEPS.start(), max = *PHANTOM_STEPS.end()))]
        steps: usize,
        /// Share of the old state that is kept.
        #[serde(default)]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
        damping: f64,
    },
    /// The linear system is solved, by vector-Jacobian products alone.
    Implicit {
        /// The solver of the linear system.
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
                within("adjoint.phantom.steps", *steps, PHANTOM_STEPS)?;
                below_one("adjoint.phantom.damping", *damping)
            }
            Self::Implicit { solver, stop } => {
                solver.validate()?;
                stop.validate().map_err(|invalid| invalid.under("adjoint.implicit"))
            }
        }
    }

    /// How many applications of the cell after the solve are differentiated, and with which damping: `z <- damping z + (1 - damping) g(z; x)`. Whoever
    /// back-propagates by hand runs these forward from `z*`, and backward after [`correct`](Adjoint::correct).
    pub fn differentiated_steps(&self) -> (usize, f64) {
        match self {
            Self::JacobianFree | Self::Implicit { .. } => (1, 0.0),
            Self::Phantom { steps, damping } => (*steps, *damping),
        }
    }

    /// Whether [`correct`](Adjoint::correct) needs vector-Jacobian products.
    pub fn solves_a_system(&self) -> bool {
        matches!(self, Self::Implicit { .. })
    }

    /// Turns the gradient `v` that arrives at the equilibrium into the `u` that continues through the
    /// [differentiated steps](Adjoint::differentiated_steps), in place. `transposed` is the map `u -> J^T u` at `z*`.
    ///
    /// Only the implicit gradient does anything, and then says how its solve went.
    pub fn correct<S: States>(
        &self,
        transposed: &mut (impl Map<S> + ?Sized),
        v: &mut S,
        workspace: &mut SolveWorkspace<S>,
    ) -> Option<SolveReport> {
        let Self::Implicit { solver, stop } = self else { return None };
        let mut u = std::mem::take(&mut workspace.adjoint);
        let report = solver.solve(transposed, v, &mut u, stop, workspace);
        std::mem::swap(v, &mut u);
        workspace.adjoint = u;
        Some(report)
    }
}
