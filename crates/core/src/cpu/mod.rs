//! Networks on burn: everything of this crate that knows a tensor.
//!
//! # Layout
//! - `network_problem`: one client's data and network, behind [`LocalProblem`](crate::LocalProblem)
//! - `sgd`: gradient steps; `loss`, `score`: what is minimised and counted; `fixed_points`: solves from several starts; `projection`: contractive cells
//! - `bridge`: between plain vectors and tensors
mod bridge;
mod fixed_points;
mod loss;
mod network_problem;
mod projection;
mod score;
mod sgd;

pub use bridge::{head_of, named_statistics, network_with, params_of, statistics_with};
pub use network_problem::NetworkProblem;
