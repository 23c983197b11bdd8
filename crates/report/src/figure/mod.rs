//! Figures: curves, bars and heat maps, described as plain data and drawn as SVG and PNG.
//!
//! A [`Figure`] says what is to be seen and nothing about where. It is drawn with the font that is part of the program, in colours that
//! are told apart with any colour vision, so that the same figure gives the same bytes everywhere. Values that are not finite (on a
//! logarithmic axis: not above zero) are gaps.
//!
//! ```
//! use fedeq_report::figure::{Axis, Figure, Plot, Series};
//!
//! let series = vec![Series::line("FeDEQ", vec![(0.0, 0.1), (10.0, 0.8), (20.0, 0.9)]).with_spread(vec![0.0, 0.04, 0.02])];
//! let plot = Plot { title: String::new(), x: Axis::new("rounds"), y: Axis::percent("accuracy"), series };
//! let figure = Figure::new("accuracy", "Accuracy over rounds", vec![plot.into()]);
//! assert!(figure.svg()?.starts_with("<svg"));
//! # Ok::<(), fedeq_core::Error>(())
//! ```
//!
//! # Layout
//! - `axis`: what is measured along an axis, and the round numbers beside it; `panel`: what stands in a panel
//! - `coordinate`: from values to places on an axis; `field`: both axes of a panel
//! - `legend`, `palette`: names and colours
//! - `sheet`: a figure on its drawing; `plot`, `bars`, `heat`: one panel of each kind
//! - `output`: SVG and PNG files
mod axis;
mod bars;
mod coordinate;
mod field;
mod heat;
mod legend;
mod output;
mod palette;
mod panel;
mod plot;
mod sheet;

pub(crate) use axis::round_step;
pub use axis::{Axis, AxisScale, Unit};
pub use panel::{BarSeries, Bars, Heat, HeatCell, Mark, Panel, Plot, Series};

/// A figure: one or several panels, side by side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figure {
    /// The name of its files, without an ending.
    pub name: String,
    /// Written above it.
    pub title: String,
    /// What it shows.
    pub panels: Vec<Panel>,
    /// Written below it; may be empty.
    pub note: String,
}

impl Figure {
    /// A figure without a note.
    pub fn new(name: impl Into<String>, title: impl Into<String>, panels: Vec<Panel>) -> Self {
        Self { name: name.into(), title: title.into(), panels, note: String::new() }
    }

    /// With a note below it.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}
