//! Personalised federated learning with deep equilibrium models: experiments, runs and the command line.
//!
//! # Layout
//! - [`experiment`]: plain data that says everything about a run; [`preset`] fills in what it leaves out
//! - [`run`](mod@run): runs, their folders and checkpoints
//! - [`sweep`]: experiments over grids and seeds; [`compare`]: runs side by side; [`statistics`]: what several seeds say together
//! - [`report`]: runs on a page to keep
//! - [`reproduce`]: the paper's tables and figures, and our own; [`forecast`]: what an experiment will take
//! - [`predict`], [`export`]: what to do with trained models
//! - [`dashboard`]: a web page that follows runs while they train
//! - [`demo`]: four methods side by side, for people who have just arrived
//! - [`federation`]: an experiment as a Flower app; [`node`]: a client of a real federation
//! - [`cli`]: what a person types, and what they read
//! - [`figure`]: curves, bars and heat maps as SVG and PNG; `draw`: pictures of data; `html`: words in pages
//! - `number`, `closest`: numbers and names as people read and write them
//! - `present`: whether a data set is where it is looked for
//! - `memory`: peak memory, run by run
pub mod cli;
mod closest;
pub mod compare;
pub mod dashboard;
pub mod demo;
mod draw;
pub mod experiment;
pub mod export;
pub mod federation;
pub mod figure;
pub mod forecast;
mod html;
mod memory;
pub mod node;
mod number;
pub mod predict;
mod present;
pub mod preset;
pub mod report;
pub mod reproduce;
pub mod run;
pub mod statistics;
pub mod sweep;
