//! The equilibrium layer for burn.
mod attach;
mod cell;
pub(crate) mod contract;
pub(crate) mod diagnose;
mod host;
mod layer;
mod map;
mod pullback;
mod rows;
mod solve;
mod states;
mod warm;

pub use attach::AdjointRecord;
pub use cell::Cell;
pub use layer::Settled;
pub use map::{Injected, TensorMap, Transposed};
pub use rows::Rows;
pub use solve::solve_tensors;
