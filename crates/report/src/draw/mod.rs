//! Pictures of data: contact sheets, pages of text, heat maps and bars.
//!
//! Every picture is drawn for a screen of high resolution, on white, in the colours of `style`, with fonts that are part of the
//! program. What is drawn depends on the data alone, so that the same data gives the same file.
mod bars;
mod canvas;
mod colour;
mod contact_sheet;
mod flow;
mod font;
mod heading;
mod heat_map;
mod scale;
mod style;
mod text_sheet;
mod wrap;

pub use bars::{Bars, bars};
pub use canvas::{Canvas, PLAIN, Pen};
pub use colour::of_share;
pub use contact_sheet::{ContactSheet, Row, contact_sheet};
pub use font::{BOLD, REGULAR};
pub use heading::Heading;
pub use heat_map::{HeatMap, Line, heat_map};
pub use text_sheet::{Passage, TextSheet, text_sheet};
pub use wrap::{shorten, wrap};
