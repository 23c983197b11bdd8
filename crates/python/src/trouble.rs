//! Panics for tests, which have none of fedeq's own to try: what Python makes of one in each kind of entry. A release has none of it.
use std::path::PathBuf;

use fedeq_python_macros::sheltered;
use pyo3::prelude::*;

use crate::training::carry_out;

/// Panics wherever it is touched, but for where it is made with `False`.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Trouble;

#[sheltered]
#[pymethods]
impl Trouble {
    /// Makes one, or panics.
    #[new]
    fn new(at_once: bool) -> Self {
        if at_once {
            panic!("in a constructor");
        }
        Self
    }

    /// Panics where nothing that fails was expected.
    #[getter]
    fn value(&self) -> u64 {
        panic!("in a getter")
    }

    /// Panics without Python's lock.
    fn work(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| panic!("without the lock, {}", 7))
    }
}

/// Panics on the thread on which a run is carried out.
#[sheltered]
#[pyfunction]
pub(crate) fn panic_at_work(py: Python<'_>, watch: Py<PyAny>) -> PyResult<(PathBuf, bool)> {
    carry_out(py, &watch, None, || panic!("at work"))
}
