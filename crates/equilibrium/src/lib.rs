//! An equilibrium layer for burn.
mod adjoint;
mod cell;
mod dense;
mod error;
mod host;
mod layer;
mod linear;
mod map;
mod pullback;
mod rows;
mod solution;
mod solve;
mod solver;
mod stop;

pub use adjoint::{Adjoint, AdjointRecord};
pub use cell::Cell;
pub use error::InvalidSetting;
pub use layer::{Equilibrium, Settled};
pub use linear::LinearSolver;
pub use map::{Injected, Map};
pub use rows::Rows;
pub use solution::{Outcome, Report, Solution};
pub use solve::{SolveOptions, solve};
pub use solver::{Anderson, Ridge, Solver};
pub use stop::Stop;
