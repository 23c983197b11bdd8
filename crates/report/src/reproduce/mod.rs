//! The paper's tables and figures, and our own, each at one command.
//!
//! An experiment is plain data: `experiments/NAME/spec.toml`, embedded in the program. It has parts; a part is a grid of axes
//! whose cells are ordinary experiments, and says what is drawn of them and what the paper found. Two scales share the parts: `full` is the paper's, `small`
//! tells the same story on two cores in minutes.
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
//! - `spec`: what an experiment file says; `select`: conditions on cells
//! - `cell`: from a specification to experiments; `pattern`: cells by name
//! - `metric`, `measure`: from a run folder to numbers
//! - `results`, `machine`: the file of numbers, and where they come from
//! - `estimate`: what is ahead
//! - `grid`, `table`, `chart`, `readme`: what is shown of the numbers; `publish`: all of it at once
mod catalog;
mod cell;
mod chart;
mod estimate;
mod grid;
mod machine;
mod measure;
mod metric;
mod pattern;
mod publish;
mod readme;
mod results;
mod select;
mod spec;
mod table;

pub use catalog::{NAMES, find};
pub use cell::{ExperimentCell, cells};
pub use estimate::{Estimate, expected};
pub use machine::Machine;
pub use measure::measure;
pub use metric::Metric;
pub use pattern::Pattern;
pub use publish::publish;
pub use results::{CellResult, Measured, Results};
pub use spec::{ScaleName, Spec};
pub use table::{TextTable, legend, text_tables};
