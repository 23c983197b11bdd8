//! Experiments as plain data, and everything that can be done with them: training, sweeping, comparing, predicting, exporting.
//!
//! Nothing here prints, draws or serves: `fedeq-report` draws runs, `fedeq-dashboard` serves them, `fedeq` is the command line.
//!
//! # Layout
//! - [`experiment`]: plain data that says everything about a run; [`preset`] fills in what it leaves out
//! - [`agreement`]: which experiment a device's owner has agreed to, and what it means for their data
//! - [`run`](mod@run): runs, their folders and checkpoints
//! - [`sweep`]: experiments over grids and seeds; [`compare`]: runs side by side; [`statistics`]: what several seeds say together
//! - [`forecast`]: what an experiment will take; [`limit`]: when it must have ended; [`machine`]: what there is to compute on
//! - [`portable`]: a folder, or an archive of it, that work is continued from on another machine
//! - [`predict`], [`export`]: what to do with trained models; [`tracking`]: journals for MLflow and Weights & Biases
//! - [`number`], [`closest`]: numbers and names as people read and write them
//! - [`place`]: where data sets are looked for; [`present`]: whether one is there
pub mod agreement;
pub mod closest;
pub mod compare;
pub mod experiment;
pub mod export;
pub mod forecast;
pub mod limit;
pub mod machine;
pub mod number;
pub mod place;
pub mod portable;
pub mod predict;
pub mod present;
pub mod preset;
pub mod run;
pub mod statistics;
pub mod sweep;
pub mod tracking;
