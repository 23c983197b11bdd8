//! Runs the networks of fedeq on a CPU.
//!
//! A network is [data](fedeq_models::Graph). For a batch size and what is trained, a plan says which kernel runs when and which memory it
//! writes to; then a training step allocates nothing. Gradients are those of the kernels, written by hand.
mod dropout;
mod executor;
mod memory;
mod op;
mod parameters;
mod plan;
mod statistics;

pub use executor::{Context, Executor, Input};
pub use op::{Solved, Start};
pub use parameters::Layout;
pub use plan::Mode;
pub use statistics::Running;
