//! Errors as exceptions of Python.
use std::any::Any;

use fedeq_core::Error;
use pyo3::create_exception;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

create_exception!(fedeq, FedeqError, PyRuntimeError, "What went wrong, in a sentence, and in the next line what to do about it.");

create_exception!(
    fedeq,
    Stopped,
    FedeqError,
    "The run was stopped; it continues from its last checkpoint when it is started again."
);

/// An error as an exception.
pub(crate) fn raised(error: &Error) -> PyErr {
    let text = format!("{error}\nhint: {}", error.hint());
    if matches!(error, Error::Interrupted) { Stopped::new_err(text) } else { FedeqError::new_err(text) }
}

/// A panic as an exception: none goes through to Python.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    FedeqError::new_err(format!(
        "this is a bug in fedeq: {}\nhint: report it; the run continues from its last checkpoint when it is started again",
        text.unwrap_or_else(|| "no reason was given".into())
    ))
}
