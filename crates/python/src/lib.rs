//! The Rust side of the Python package `fedeq`: its module `fedeq._native`.
//!
//! Everything that computes, reads or writes is done by the crates below, the same as for the command line; here it gets a shape that Python can call.
//!
//! # Layout
//! - `command`: the command line
//! - `request`: from what Python gives to an experiment, or to words of the command line; `value`: its values
//! - `training`: carrying out a run; `relay`: what happens in it, told to the thread that called
//! - `external`: an object of Python as the network of a run
//! - `folder`: what a run folder says; `comparison`: runs side by side, and pictures of them
//! - `arrays`: numbers of numpy, in and out; `model`: the model of a client of a finished run
//! - `federation`: the class `Federation`; `link`: the way to its clients, through an object of Python; `observer`: what it logs
//! - `network`: networks as files, and run by the engine
//! - `error`: errors as exceptions; every function that Python calls is `#[sheltered]`, so that a panic is one too
//! - `fork`: processes that were forked
//! - `trouble`: panics, for tests
mod arrays;
mod command;
mod comparison;
mod error;
mod external;
mod federation;
mod folder;
mod fork;
mod link;
mod model;
mod network;
mod observer;
mod relay;
mod request;
mod training;
#[cfg(debug_assertions)]
mod trouble;
mod value;

use fedeq_memory::Counting;
use pyo3::prelude::*;

/// So that runs can tell what memory their clients take. Python's own memory does not come from here.
#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// `fedeq._native`.
#[pymodule]
#[pyo3(name = "_native")]
mod native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arrays::Arrays;
    #[pymodule_export]
    use super::command::main;
    #[pymodule_export]
    use super::comparison::{Compare, figure};
    #[pymodule_export]
    use super::error::{FedeqError, Stopped};
    #[pymodule_export]
    use super::federation::Federation;
    #[pymodule_export]
    use super::folder::Folder;
    #[pymodule_export]
    use super::link::{LinkContext, Request};
    #[pymodule_export]
    use super::model::{Model, TrainedRun};
    #[pymodule_export]
    use super::network::{Engine, client_file};
    #[pymodule_export]
    use super::request::{in_turn, words};
    #[pymodule_export]
    use super::training::{resume, run};
    #[cfg(debug_assertions)]
    #[pymodule_export]
    use super::trouble::{Trouble, panic_at_work};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        fedeq_memory::keep();
        module.add("Refused", super::error::refused_type(module.py())?)?;
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
