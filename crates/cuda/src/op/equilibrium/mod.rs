//! The fixed point of a cell, and gradients through it.
mod cell;
mod transformer;

pub(crate) use cell::{Cell, Differentiated, State, To};
