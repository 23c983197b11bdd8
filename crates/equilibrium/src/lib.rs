//! An equilibrium layer: a layer whose output is the fixed point `z* = g(z*; x)` of a cell `g`, as if the cell had been
//! applied infinitely often, at the training memory of applying it once.
//!
//! On plain memory, for whoever writes cell and gradient by hand:
//!
//! ```
//! use fedeq_equilibrium::{Adjoint, Equilibrium, HostStates, SolveWorkspace};
//!
//! let layer = Equilibrium { adjoint: Adjoint::implicit(), ..Equilibrium::default() };
//! let mut workspace = SolveWorkspace::default(); // Kept between solves: nothing is allocated in a step.
//! let (mut z, mut image) = (HostStates::zeros(2, 3), HostStates::default());
//! let mut cell = |z: &HostStates, out: &mut HostStates| { // sin(z) / 2 + 1
//!     out.values_mut().iter_mut().zip(z.values()).for_each(|(out, z)| *out = z.sin() / 2.0 + 1.0);
//! };
//! let report = layer.solve_into(&mut cell, &mut z, &mut image, &mut workspace);
//! assert!(report.all_converged());
//!
//! // A gradient that arrives at z, on its way back: (I - J^T) u = v with J = diag(cos(z) / 2).
//! let mut gradient = HostStates::new(vec![1.0; 6], 2, 3);
//! let mut transposed = |u: &HostStates, out: &mut HostStates| {
//!     let products = z.values().iter().zip(u.values()).map(|(z, u)| z.cos() / 2.0 * u);
//!     out.values_mut().iter_mut().zip(products).for_each(|(out, product)| *out = product);
//! };
//! layer.adjoint.correct(&mut transposed, &mut gradient, &mut workspace);
//! let expected = 1.0 / (1.0 - z.row(0)[0].cos() / 2.0);
//! assert!((gradient.row(0)[0] - expected).abs() < 1e-2);
//! ```
#![cfg_attr(feature = "burn", doc = include_str!("tensor/example.md"))]
//!
//! # Three independent choices
//! - A [`Solver`] finds the state: damped iteration, [Anderson acceleration](Anderson) or Broyden. There is [one loop](solve()) around
//!   them; every sample stops on its own.
//! - An [`Adjoint`] passes the gradient: Jacobian-free, phantom or implicit. An ordinary `backward()` then trains what
//!   comes before, inside and after the layer.
//! - A [`WarmStart`] says where the next solve begins.
//!
//! A solve that does not converge is a value, not an error: [`SolveReport`] says for every sample how it went.
//!
//! # Layout
//! - `states/`, `map`: what is solved for, wherever it lives. `solve`, `stop`, `solution`, `solver/`: how.
//! - `layer`, `adjoint`, `linear/`: the layer and its gradient.
//! - `warm`: memory between solves. [`diagnose`] and [`contract`]: how contractive a cell is, and how to keep it so.
//! - `tensor/`, with the feature `burn` (on by default): states on burn's devices, cells that are burn modules, gradients in burn's autodiff.
mod adjoint;
pub mod contract;
mod dense;
pub mod diagnose;
mod error;
mod layer;
mod linear;
mod map;
mod solution;
mod solve;
mod solver;
mod states;
mod stop;
#[cfg(feature = "burn")]
mod tensor;
mod warm;

pub use adjoint::Adjoint;
pub use error::InvalidSetting;
pub use layer::Equilibrium;
pub use linear::LinearSolver;
pub use map::Map;
pub use solution::{Outcome, Solution, SolveReport};
pub use solve::{SolveOptions, SolveWorkspace, solve, solve_into};
pub use solver::{Anderson, Ridge, Solver};
pub use states::{Changes, HostStates, PerSlot, States, Window};
pub use stop::Stop;
#[cfg(feature = "burn")]
pub use tensor::{AdjointRecord, Cell, Injected, Rows, Settled, TensorMap, Transposed, solve_tensors};
pub use warm::{StoredPrecision, WarmMemory, WarmStart};
