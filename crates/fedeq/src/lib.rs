//! Personalised federated learning with deep equilibrium models: the command line.
//!
//! # Layout
//! - [`cli`]: what a person types, and what they read
//! - `draw`: pictures of data
//! - `number`: numbers as people read them
pub mod cli;
mod draw;
mod number;
