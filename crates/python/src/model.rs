//! The models of a finished run, asked from Python.
use std::path::PathBuf;

use fedeq_core::Params;
use fedeq_data::{Labels, Samples};
use fedeq_python_macros::sheltered;
use fedeq_run::experiment::Prepared;
use fedeq_run::predict::{HeldSamples, PredictionInputs, classes, held, logits};
use fedeq_run::run::{ClientModel, RunFolder, Trained};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::arrays::{float_bytes, given, lend, lend_samples};
use crate::error::{without_python, work_without_python};
use crate::external::name_of;
use crate::fork::require_no_fork;

/// A finished run with its data and its models.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct TrainedRun {
    trained: Trained,
}

/// The model by which a client is evaluated.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Model {
    run: Py<TrainedRun>,
    model: ClientModel,
}

#[sheltered]
#[pymethods]
impl TrainedRun {
    /// Opens the folder of a finished run; `data` says where its data lies now, if it has moved.
    #[new]
    #[pyo3(signature = (folder, data = None))]
    fn new(py: Python<'_>, folder: PathBuf, data: Option<PathBuf>) -> PyResult<Self> {
        let open = || {
            require_no_fork()?;
            Trained::open(&RunFolder::open(&folder)?, |experiment| {
                if let Some(data) = data {
                    experiment.data.folder = data;
                }
            })
        };
        Ok(Self { trained: without_python(py, open)? })
    }

    /// The clients' names; unseen ones come last.
    #[getter]
    fn clients(&self) -> Vec<String> {
        self.trained.prepared().names().map(str::to_owned).collect()
    }

    /// The names of the classes, in order of their numbers; nothing for sequences, whose classes are their tokens.
    #[getter]
    fn classes(&self) -> Option<Vec<String>> {
        match &self.trained.prepared().dataset.labels {
            Labels::Classes { names, .. } => Some(names.clone()),
            Labels::NextSymbols(_) => None,
        }
    }
}

#[sheltered]
#[pymethods]
impl Model {
    /// The model of a client, by its name.
    #[new]
    fn new(py: Python<'_>, run: Py<TrainedRun>, client: &str) -> PyResult<Self> {
        let trained = &run.get().trained;
        let model = without_python(py, || {
            require_no_fork()?;
            trained.model(trained.client(client)?)
        })?;
        Ok(Self { run, model })
    }

    /// The client.
    #[getter]
    fn name(&self) -> &str {
        &self.model.name
    }

    /// The number of the class of every sample, for sequences of every position.
    fn predict<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let (questions, prepared) = (self.questions(x)?, self.run.get().trained.prepared());
        let found = work_without_python(py, || classes(prepared, &self.model, &questions))?;
        let shape = shape_of(prepared, &questions);
        lend(py, "uint16", shape, &found, |class, all| all.extend_from_slice(&class.to_ne_bytes()))
    }

    /// What the network says to every sample, for sequences to every position, one number a class.
    fn logits<'py>(&self, py: Python<'py>, x: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyTuple>> {
        let (questions, prepared) = (self.questions(x)?, self.run.get().trained.prepared());
        let found = work_without_python(py, || logits(prepared, &self.model, &questions))?;
        let count = prepared.network.graph().task.classes;
        let mut shape = shape_of(prepared, &questions);
        shape.push(count);
        lend(py, "float32", shape, &found, float_bytes)
    }

    /// Parameters and statistics by their names, as `fedeq export` writes them; those of a network of Python as it calls them.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let mut arrays: Params = self.model.weights.params.clone();
        arrays.overwrite(&self.model.weights.statistics);
        let (state, is_external) = (PyDict::new(py), self.run.get().trained.prepared().is_external());
        for (path, array) in arrays.iter() {
            let name = if is_external { name_of(path) } else { path };
            state.set_item(name, lend(py, "float32", array.shape.clone(), &array.values, float_bytes)?)?;
        }
        Ok(state)
    }

    /// Samples and labels by what they are for.
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let prepared = self.run.get().trained.prepared();
        let parts = work_without_python(py, || held(prepared, self.model.client))?;
        let data = PyDict::new(py);
        for HeldSamples { part, count, samples, labels } in &parts {
            let labels = match labels {
                Labels::Classes { values, .. } => {
                    lend(py, "uint16", vec![*count], values, |class, all| all.extend_from_slice(&class.to_ne_bytes()))?
                }
                Labels::NextSymbols(next) => {
                    let length = if let Samples::Sequences(sequences) = samples { sequences.length } else { 1 };
                    lend(py, "uint8", vec![*count, length], next, |byte, all| all.push(*byte))?
                }
            };
            data.set_item(part, (lend_samples(py, samples, *count)?, labels))?;
        }
        Ok(data)
    }
}

impl Model {
    fn questions(&self, x: &Bound<'_, PyAny>) -> PyResult<PredictionInputs> {
        let py = x.py();
        let x = given(x, "`x`")?;
        without_python(py, || PredictionInputs::from_array(self.run.get().trained.prepared(), x))
    }
}

/// A row a sample, or a row a position of every sample.
fn shape_of(prepared: &Prepared, questions: &PredictionInputs) -> Vec<usize> {
    match &prepared.dataset.samples {
        Samples::Sequences(sequences) => vec![questions.len(), sequences.length],
        Samples::Images(_) | Samples::Vectors(_) => vec![questions.len()],
    }
}
