//! The fixed point of a cell, and gradients through it.
mod cell;

pub(crate) use cell::{Cell, Differentiated, State, To};
