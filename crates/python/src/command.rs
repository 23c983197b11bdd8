//! The command line.
use std::ffi::OsString;
use std::io::Write;
use std::panic::catch_unwind;

use fedeq_python_macros::sheltered;
use pyo3::prelude::*;

/// Runs a command of the command line and gives its exit code. `words` start the program again: `python -m fedeq`.
#[sheltered]
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>, words: Vec<OsString>) -> u8 {
    /// What a Rust program ends with after a panic, which has been written to stderr by then.
    const PANICKED: u8 = 101;
    fedeq::program::is_started_by(words);
    let named = std::iter::once(OsString::from("fedeq")).chain(arguments);
    let code = py.detach(|| catch_unwind(move || fedeq::cli::exit_code(named.collect::<Vec<_>>())));
    let _ = std::io::stdout().flush();
    code.unwrap_or(PANICKED)
}
