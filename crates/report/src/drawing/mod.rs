//! What every picture is made of: shapes as the text of an SVG file, drawn once, which resvg makes the pixels of a PNG of.
//!
//! # Layout
//! - `colour`, `letters`: colours, and text in the fonts that are part of the program
//! - `svg`: shapes; `raster`: their pixels
mod colour;
mod letters;
mod raster;
mod svg;

pub(crate) use colour::{Colour, GREY, GRID, INK, PAPER, of_share};
pub(crate) use letters::{Anchor, Letters};
pub(crate) use raster::{pixels, png};
pub(crate) use svg::{Drawing, Frame, Place, Stroke};
