//! Errors as exceptions of Python.
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use fedeq_core::{Error, Result};
use pyo3::create_exception;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyTuple, PyType};

use crate::fork::require_no_fork;

create_exception!(fedeq, FedeqError, PyRuntimeError, "What went wrong, in a sentence, and in the next line what to do about it.");

create_exception!(
    fedeq,
    Stopped,
    FedeqError,
    "The run was stopped; it continues from its last checkpoint when it is started again."
);

/// `fedeq.Refused`: both a `FedeqError` and a `ValueError`.
pub(crate) fn refused_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static REFUSED: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let made = REFUSED.get_or_try_init(py, || {
        let bases = PyTuple::new(py, [py.get_type::<FedeqError>(), py.get_type::<PyValueError>()])?;
        let body = PyDict::new(py);
        body.set_item("__module__", "fedeq")?;
        body.set_item(
            "__doc__",
            "What was asked for makes no sense or cannot be done: a setting, a value, a file. Nothing was trained.",
        )?;
        py.get_type::<PyType>().call1(("Refused", bases, body))?.cast_into::<PyType>().map(Bound::unbind).map_err(PyErr::from)
    })?;
    Ok(made.bind(py))
}

fn text_of(error: &Error) -> String {
    format!("{error}\nhint: {}", error.hint())
}

/// An error of work that was under way as an exception.
pub(crate) fn raised(error: &Error) -> PyErr {
    let text = text_of(error);
    if matches!(error, Error::Interrupted) { Stopped::new_err(text) } else { FedeqError::new_err(text) }
}

/// An error from before any work began as an exception.
pub(crate) fn refused(py: Python<'_>, error: &Error) -> PyErr {
    // A full disk is nothing that was wrong with the request.
    if error.is_disk_full() {
        return raised(error);
    }
    refused_type(py).map_or_else(|error| error, |kind| PyErr::from_type(kind.clone(), (text_of(error),)))
}

/// Lets other threads of Python go on while something is read; what is wrong with it is refused.
pub(crate) fn without_python<V: Send>(py: Python<'_>, work: impl FnOnce() -> Result<V> + Send) -> PyResult<V> {
    py.detach(work).map_err(|error| refused(py, &error))
}

/// As [`without_python`], for work of the engine's threads on what was accepted before: what goes wrong is no refusal.
pub(crate) fn work_without_python<V: Send>(py: Python<'_>, work: impl FnOnce() -> Result<V> + Send) -> PyResult<V> {
    require_no_fork().map_err(|error| refused(py, &error))?;
    py.detach(work).map_err(|error| raised(&error))
}

/// Does some work; a panic becomes an exception. `#[sheltered]` puts it around every function that Python calls.
pub(crate) fn sheltered<V>(work: impl FnOnce() -> V) -> PyResult<V> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| panicked(panic.as_ref()))
}

/// A panic as an exception: none goes through to Python.
pub(crate) fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned()).or_else(|| panic.downcast_ref::<String>().cloned());
    FedeqError::new_err(format!(
        "this is a bug in fedeq: {}\nhint: report it; the run continues from its last checkpoint when it is started again",
        text.unwrap_or_else(|| "no reason was given".into())
    ))
}
