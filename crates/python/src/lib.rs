//! The Rust side of the Python package `fedeq`: its module `fedeq._native`.
//!
//! Python sends messages over Flower's grid and hands back what came, by client. Everything else is done here: which clients are asked for what, whether their replies
//! count, what becomes of `theta`, and what is written into the run folder.
//!
//! # Layout
//! - `federation`: the class `Federation`
//! - `link`: the way to clients, through an object of Python
//! - `observer`: what is logged
//! - `error`: errors as exceptions
mod error;
mod federation;
mod link;
mod observer;

use pyo3::prelude::*;

/// `fedeq._native`.
#[pymodule]
#[pyo3(name = "_native")]
mod native {
    #[pymodule_export]
    use super::error::{FedeqError, Stopped};
    #[pymodule_export]
    use super::federation::Federation;
    #[pymodule_export]
    use super::link::{Request, Watch};
}
