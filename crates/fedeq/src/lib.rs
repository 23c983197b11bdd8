//! Personalised federated learning with deep equilibrium models: the command line.
//!
//! # Layout
//! - [`cli`]: what a person types, and what they read
//! - [`demo`]: four methods side by side, for people who have just arrived
//! - [`federation`]: an experiment as a Flower app; [`node`]: a client of a real federation
//! - `memory`: peak memory, run by run; [`program`]: how this program is started
pub mod cli;
pub mod demo;
pub mod federation;
mod memory;
pub mod node;
pub mod program;
