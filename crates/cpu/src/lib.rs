//! Runs the networks of fedeq on a CPU.
//!
//! A network is [data](fedeq_models::Graph). For a batch size and what is trained, a plan says which kernel runs when and which memory it
//! writes to, so that values and gradients need no memory asked for in a training step. Gradients are those of the kernels, written by hand.
mod contrast;
mod dropout;
mod evaluate;
mod executor;
mod external;
mod fixed_points;
mod memory;
mod network;
mod op;
mod optimiser;
mod parameters;
mod plan;
mod pool;
mod problem;
mod projection;
mod statistics;
mod train;
mod worker;

pub use executor::{Context, Executor, Input};
pub use external::{ExternalNetwork, ExternalProblem, FeatureLoss};
pub use fedeq_kernels::InstructionSet;
pub use network::Network;
pub use op::{Solved, Start};
pub use parameters::ParameterLayout;
pub use problem::NetworkProblem;
pub use projection::project_params;
pub use statistics::RunningMoments;
