//! Differential privacy at the level of clients.
//!
//! # Layout
//! - `accountant`: what rounds of noisy sums come to
mod accountant;

pub use accountant::{Accountant, Drawn, Relation};
