//! Solvers: each proposes the next iterate from what was seen so far. The loop around them is [`solve`](crate::solve).
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InvalidSetting, MEMORY, at_least, below_one, non_negative, positive, within};
use crate::states::{HostStates, States};
use crate::stop::Stop;

mod anderson;
mod broyden;

use anderson::AndersonIteration;
use broyden::BroydenIteration;

/// How the next iterate is found. Plain data; [`solve`](crate::solve) makes it live.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Solver {
    /// `z <- damping z + (1 - damping) f(z)`.
    FixedPoint {
        /// Share of the old iterate that is kept; 0 is the plain iteration.
        #[serde(default)]
        #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
        damping: f64,
    },
    /// Anderson acceleration.
    ///
    /// [`Anderson`] has its equations.
    Anderson(Anderson),
    /// Broyden's good method with limited memory, unit steps and the start `J^-1 = -I`.
    Broyden {
        /// Rank-one corrections kept for a sample; when they are used up the approximation starts again.
        #[serde(default = "default_broyden_memory")]
        #[schemars(range(min = *MEMORY.start(), max = *MEMORY.end()))]
        memory: usize,
    },
}

/// Anderson acceleration (of type II), each sample for itself.
///
/// With the last `memory + 1` iterates `x_i` and residuals `r_i = f(x_i) - x_i` the next iterate is
/// `sum_i alpha_i (x_i + mixing r_i)`, where the weights minimise `||sum_i alpha_i r_i||^2` plus a ridge, subject to
/// `sum_i alpha_i = 1`. A sample whose system is singular or badly conditioned takes a plain step and forgets its past.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Anderson {
    /// Past iterates used beside the newest one. (Codes that count stored iterates call this `memory + 1`.)
    #[schemars(range(min = *MEMORY.start(), max = *MEMORY.end()))]
    pub memory: usize,
    /// Regularisation of the least-squares problem.
    pub ridge: Ridge,
    /// How far along the residual to go from the combined iterate; 1 is all the way.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub mixing: f64,
    /// Plain steps before mixing begins.
    pub delay: usize,
    /// Discard all past iterates after this many steps, if given.
    #[schemars(range(min = 1))]
    pub restart: Option<usize>,
}

impl Default for Anderson {
    fn default() -> Self {
        Self { memory: 5, ridge: Ridge::Relative(1e-6), mixing: 1.0, delay: 0, restart: None }
    }
}

/// The ridge of Anderson's least-squares problem.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Ridge {
    /// `ridge * sum_j gamma_j^2 ||r_{j+1} - r_j||^2`, with `gamma` the coefficients of the differences: means the same whatever the
    /// scale of the problem.
    Relative(#[schemars(range(min = 0.0))] f64),
    /// `ridge * sum_i alpha_i^2`: what most codes do; dominates once residuals are smaller than its root.
    Absolute(#[schemars(range(min = 0.0))] f64),
}

fn default_broyden_memory() -> usize {
    20
}

impl Default for Solver {
    fn default() -> Self {
        Self::Anderson(Anderson::default())
    }
}

impl Solver {
    /// The undamped iteration.
    pub fn fixed_point() -> Self {
        Self::FixedPoint { damping: 0.0 }
    }

    /// Anderson acceleration with the given memory and defaults otherwise.
    pub fn anderson(memory: usize) -> Self {
        Self::Anderson(Anderson { memory, ..Anderson::default() })
    }

    /// Broyden's method with the given memory.
    pub fn broyden(memory: usize) -> Self {
        Self::Broyden { memory }
    }

    /// Refuses settings that mean nothing.
    pub fn validate(&self) -> Result<(), InvalidSetting> {
        match self {
            Self::FixedPoint { damping } => below_one("solver.fixed-point.damping", *damping),
            Self::Anderson(anderson) => anderson.validate(),
            Self::Broyden { memory } => within("solver.broyden.memory", *memory, MEMORY),
        }
    }
}

impl Anderson {
    fn validate(&self) -> Result<(), InvalidSetting> {
        within("solver.anderson.memory", self.memory, MEMORY)?;
        positive("solver.anderson.mixing", self.mixing)?;
        at_least("solver.anderson.restart", self.restart.unwrap_or(1), 1)?;
        match self.ridge {
            Ridge::Relative(ridge) | Ridge::Absolute(ridge) => non_negative("solver.anderson.ridge", ridge),
        }
    }
}

/// One solver at work on one batch.
pub(crate) trait Iteration<S> {
    /// The next iterate takes the place of `residual`, which is `image - z`, where `image` is what the map makes of `z`.
    fn next(&mut self, z: &S, image: &S, residual: &mut S);

    /// Keep only these rows from now on, given in ascending order.
    fn keep_rows(&mut self, rows: &[usize]);
}

/// What solvers remember during a solve, and the memory for it between solves.
pub(crate) struct Iterations<S: States> {
    damped: DampedIteration,
    anderson: AndersonIteration<S>,
    broyden: BroydenIteration<S>,
}

impl<S: States> Default for Iterations<S> {
    fn default() -> Self {
        Self { damped: DampedIteration::default(), anderson: AndersonIteration::default(), broyden: BroydenIteration::default() }
    }
}

impl<S: States> Iterations<S> {
    /// A solver that has seen nothing yet, for a batch of states like these.
    pub(crate) fn start(&mut self, solver: &Solver, like: &S) -> &mut dyn Iteration<S> {
        match solver {
            Solver::FixedPoint { damping } => {
                self.damped.damping = *damping;
                &mut self.damped
            }
            Solver::Anderson(settings) => {
                self.anderson.start(settings, like);
                &mut self.anderson
            }
            Solver::Broyden { memory } => {
                self.broyden.start(*memory, like);
                &mut self.broyden
            }
        }
    }
}

impl Iterations<HostStates> {
    /// Borrows the memory of a solve for states of so many numbers.
    pub(crate) fn borrow_memory(
        &mut self,
        solver: &Solver,
        stop: &Stop,
        numbers: usize,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        match solver {
            Solver::FixedPoint { .. } => {}
            Solver::Anderson(settings) => self.anderson.borrow_memory(settings, stop, numbers, lend),
            Solver::Broyden { memory } => self.broyden.borrow_memory(*memory, stop, numbers, lend),
        }
    }

    /// Shows all memory of states.
    pub(crate) fn memory(&mut self, show: &mut dyn FnMut(&mut Vec<f32>)) {
        self.anderson.memory(show);
        self.broyden.memory(show);
    }
}

/// The damped fixed-point iteration.
#[derive(Default)]
struct DampedIteration {
    damping: f64,
}

impl<S: States> Iteration<S> for DampedIteration {
    fn next(&mut self, z: &S, image: &S, residual: &mut S) {
        match self.damping {
            0.0 => residual.copy_from(image),
            damping => residual.scale_and_add(1.0 - damping, z),
        }
    }

    fn keep_rows(&mut self, _: &[usize]) {}
}
