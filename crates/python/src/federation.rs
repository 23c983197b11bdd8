//! The server of a federation.
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fedeq_core::Error;
use fedeq_flower::npy::LONGEST_HEADER;
use fedeq_flower::parts::largest_array;
use fedeq_python_macros::sheltered;
use fedeq_run::run::FederatedRun;
use pyo3::prelude::*;

use crate::error::{raised, work_without_python};
use crate::link::PythonLink;
use crate::observer::Log;

/// The server of a federation, from the folder that `fedeq init-federation` wrote. The folder belongs to this process as long as the object lives.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Federation {
    run: FederatedRun,
}

#[sheltered]
#[pymethods]
impl Federation {
    /// Reads plan, experiment and weights, and the last checkpoint of an earlier run in this folder.
    #[new]
    fn new(py: Python<'_>, folder: PathBuf) -> PyResult<Self> {
        work_without_python(py, || FederatedRun::open(&folder)).map(|run| Self { run })
    }

    /// What it is, in a line.
    #[getter]
    fn title(&self) -> String {
        self.run.title()
    }

    /// The name under which nodes keep their states.
    #[getter]
    fn name(&self) -> &str {
        &self.run.plan().federation
    }

    /// The experiment, as nodes are sent it.
    #[getter]
    fn experiment(&self) -> &str {
        self.run.experiment()
    }

    /// How many clients there are, those that are met after training included.
    #[getter]
    fn clients(&self) -> usize {
        self.run.plan().all_clients()
    }

    /// Rounds that were over when the folder was opened.
    #[getter]
    fn round(&self) -> u64 {
        self.run.round()
    }

    /// Rounds in all.
    #[getter]
    fn rounds(&self) -> u64 {
        self.run.rounds()
    }

    /// The most bytes that an array of a reply may have.
    #[getter]
    fn array_limit(&self) -> usize {
        largest_array(self.run.theta()).max(self.run.largest_payload() + LONGEST_HEADER)
    }

    /// Trains to the end of the plan over a link to clients; gives the summary as JSON. An exception of the link ends it: the rounds that were over are kept.
    #[pyo3(signature = (link, log, minimum = 1.0, bound = f64::INFINITY))]
    fn train(&self, py: Python<'_>, link: Py<PyAny>, log: Py<PyAny>, minimum: f64, bound: f64) -> PyResult<String> {
        let signal = Mutex::new(None);
        let interrupted = || {
            let pressed = Python::attach(|py| py.check_signals());
            let is_pressed = pressed.is_err();
            if let Err(exception) = pressed {
                *signal.lock().unwrap_or_else(PoisonError::into_inner) = Some(exception);
            }
            is_pressed
        };
        let mut link = PythonLink::new(link, self.run.theta().clone(), self.run.largest_payload());
        let mut log = Log::new(log, self.run.rounds(), self.run.plan().summary.headline);
        let trained = py.detach(|| self.run.train(&mut link, minimum, bound, &mut log, &interrupted));
        let from_python = link.exception.or(log.exception).or(signal.into_inner().unwrap_or_else(PoisonError::into_inner));
        if let (Err(_), Some(exception)) = (&trained, from_python) {
            return Err(exception);
        }
        let summary = trained.map_err(|error| raised(&error))?;
        serde_json::to_string(&summary).map_err(|error| raised(&Error::invalid(error.to_string(), "report this")))
    }
}
