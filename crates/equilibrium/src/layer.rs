//! The equilibrium layer: solver, stopping rule and adjoint together.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adjoint::Adjoint;
use crate::error::{InvalidSetting, below_one};
use crate::map::Map;
use crate::solution::{Solution, SolveReport};
use crate::solve::{SolveOptions, SolveWorkspace, solve, solve_into};
use crate::solver::Solver;
use crate::states::{HostStates, States};
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
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Equilibrium {
    /// The fixed-point solver.
    pub solver: Solver,
    /// Decides when it is found.
    pub stop: Stop,
    /// How gradients pass through the fixed point.
    pub adjoint: Adjoint,
    /// What else the solve does.
    pub options: SolveOptions,
}

impl Equilibrium {
    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        self.solver.validate()?;
        self.stop.validate()?;
        self.adjoint.validate()?;
        if self.options.shrink_below == 1.0 { Ok(()) } else { below_one("options.shrink_below", self.options.shrink_below) }
    }

    /// Solves `z = f(z)` from `z0`, see [`solve`](crate::solve()).
    ///
    /// # Panics
    ///
    /// If the map changes the shape of the state.
    pub fn solve<S: States>(&self, map: &mut (impl Map<S> + ?Sized), z0: S) -> Solution<S> {
        solve(map, z0, &self.solver, &self.stop, &self.options)
    }

    /// The same in memory that is kept between solves, see [`solve_into`].
    ///
    /// # Panics
    ///
    /// If the map changes the shape of the state.
    pub fn solve_into<S: States>(
        &self,
        map: &mut (impl Map<S> + ?Sized),
        z: &mut S,
        image: &mut S,
        workspace: &mut SolveWorkspace<S>,
    ) -> SolveReport {
        solve_into(map, z, image, &self.solver, &self.stop, &self.options, workspace)
    }

    /// Lends a workspace the memory that [`solve_into`](Self::solve_into) needs for states of so many numbers in all. Whoever has much memory that lies idle during a
    /// solve, or needs much when the solve is over, lends it to the workspace and takes it [back](SolveWorkspace::release): `lend` gives a piece of at least so many numbers, whose values mean nothing. A
    /// workspace that has been lent nothing asks the system.
    pub fn lend_for_solve(
        &self,
        numbers: usize,
        workspace: &mut SolveWorkspace<HostStates>,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        workspace.borrow_for_solve((&self.solver, &self.stop, &self.options), numbers, lend);
    }

    /// The same for [`Adjoint::correct`].
    pub fn lend_for_adjoint(
        &self,
        numbers: usize,
        workspace: &mut SolveWorkspace<HostStates>,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        if let Adjoint::Implicit { solver, stop } = &self.adjoint {
            workspace.borrow_for_adjoint((solver, stop), numbers, lend);
        }
    }
}
