//! Sweeps: one experiment over a grid of settings and several seeds, each cell an ordinary run in a folder of its own.
//!
//! A cell's folder is named by what the cell is, so a sweep that is started again finds what it has done: finished cells are
//! skipped, half-finished ones resumed, and a larger grid reuses the cells of a smaller one.
//!
//! # Layout
//! - `axis`: `key=value,value`, as a person types it
//! - `cell`: the experiments of a grid
//! - `seeds`: `0..3`, as a person types it
//! - `outcome`: what came out of cells and grid points
mod axis;
mod cell;
mod outcome;
mod seeds;

pub use axis::Axis;
pub use cell::{Cell, Grid, NOTHING, cells};
pub use outcome::{Outcome, Point, csv_of, points};
pub use seeds::Seeds;
