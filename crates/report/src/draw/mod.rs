//! Pictures of data: contact sheets, pages of text, heat maps and bars.
//!
//! Every picture is drawn once, as SVG, for a screen of high resolution, on white, in the same colours, with fonts that are part of
//! the program; resvg makes its pixels. What is drawn depends on the data alone, so that the same data gives the same file.
mod bars;
mod contact_sheet;
mod heat_map;
mod layout;
mod picture;
mod text_sheet;

pub use bars::{BarChart, bars};
pub use contact_sheet::{ContactRow, ContactSheet, contact_sheet};
pub use heat_map::{HeatMap, HeatMapRow, heat_map};
pub use layout::Heading;
pub use picture::DataPicture;
pub use text_sheet::{Passage, TextSheet, text_sheet};
