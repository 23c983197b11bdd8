//! Sweeps: one experiment over a grid of settings and several seeds, each cell an ordinary run in a folder of its own.
//!
//! A cell's folder is named by what the cell is, so a sweep that is started again finds what it has done: finished cells are
//! skipped, half-finished ones resumed, and a larger grid reuses the cells of a smaller one.
//!
//! # Layout
//! - `grid`: the experiments of a grid, from axes and seeds as a person types them
//! - `file`: the same as a file
//! - `search`: points drawn at random, and which of them are trained further
//! - `outcome`: what came out of cells and grid points
mod file;
mod grid;
mod outcome;
mod search;

pub use file::GridFile;
pub use grid::{NOTHING, Seeds, SweepAxis, SweepCell, SweepGrid, cells};
pub use outcome::{CellOutcome, GridPoint, csv_of, points};
pub use search::{Halving, MOST_POINTS, SearchAxis, draw};
