//! Personalised federated learning with deep equilibrium models: experiments, runs and the command line.
//!
//! # Layout
//! - [`experiment`]: plain data that says everything about a run; [`preset`] fills in what it leaves out
//! - [`run`](mod@run): runs, their folders and checkpoints
//! - [`cli`]: what a person types, and what they read
//! - `draw`: pictures of data
//! - `number`, `closest`: numbers and names as people read and write them
//! - `present`: whether a data set is where it is looked for
pub mod cli;
mod closest;
mod draw;
pub mod experiment;
mod number;
mod present;
pub mod preset;
pub mod run;
