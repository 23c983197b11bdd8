//! The paper's tables and figures, and our own, each at one command.
//!
//! An experiment is plain data: `experiments/NAME/spec.toml`, embedded in the program. It has parts; a part is a grid of axes
//! whose cells are ordinary experiments, and says what is drawn of them and what the paper found. Two scales share the parts: `full` is the paper's, `small`
//! is a reduced version (fewer clients and rounds) that takes minutes on two cores.
//!
//! ```text
//! spec.toml -Spec::parse-> Spec -cells-> [ExperimentCell] -an ordinary run each-> run folders -measure-> Results (a file)
//!   -publish-> tables, figures, README.md
//! ```
//!
//! Whatever is shown is made from the [`Results`] alone, so a part of the cells gives a table in which the others say `not run`.
//!
//! # Layout
//! - `catalog`: the embedded experiments by name
//! - `spec`: what an experiment file says, with its conditions on cells
//! - `cell`: from a specification to experiments, and cells by name
//! - `metric`, `measure`: from a run folder to numbers
//! - `results`: the file of numbers, and where they come from
//! - `estimate`: what is ahead
//! - `grid`, `table`, `chart`: what is shown of the numbers; `publish`: all of it at once, with a README
mod catalog;
mod cell;
mod chart;
mod estimate;
mod grid;
mod measure;
mod metric;
mod publish;
mod results;
mod spec;
mod table;

pub use catalog::{NAMES, find};
pub use cell::{ExperimentCell, Pattern, cells};
pub use estimate::{Estimate, expected};
pub use measure::measure;
pub use metric::Metric;
pub use publish::publish;
pub use results::{CellResult, Machine, Measured, Results};
pub use spec::{ScaleName, Spec};
pub use table::{GridText, legend, text_tables};
