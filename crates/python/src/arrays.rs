//! Numbers of numpy, in and out. `fedeq.data` brings them into one of the types below first.
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use fedeq_core::Error;
use fedeq_data::source::arrays::{GivenArray, GivenClients, GivenLabels, GivenPart, GivenValues, write};
use fedeq_data::{Dataset, Samples};
use fedeq_python_macros::sheltered;
use pyo3::buffer::{Element, PyBuffer};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyTuple};

use crate::error::{refused, without_python};

/// The arrays of all clients, put together.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Arrays {
    /// The data set that reads them.
    #[pyo3(get)]
    source: &'static str,
    /// Gone once it was handed over.
    dataset: Mutex<Option<Dataset>>,
}

#[sheltered]
#[pymethods]
impl Arrays {
    /// Takes clients, parts, samples and labels one after the other.
    #[new]
    fn new(py: Python<'_>, parts: &Bound<'_, PyAny>) -> PyResult<Self> {
        let mut clients = GivenClients::default();
        for part in parts.try_iter()? {
            let (client, part, x, y): (String, String, Bound<'_, PyAny>, Bound<'_, PyAny>) = part?.extract()?;
            let part = if part == "test" { GivenPart::Test } else { GivenPart::Train };
            let about = |array: &str| format!("client `{client}`: `{}` `{array}`", part.name());
            let labels = match y.extract::<Vec<String>>() {
                Ok(names) => GivenLabels::Names(names),
                Err(_) => GivenLabels::Numbers(given(&y, &about("y"))?),
            };
            let x = given(&x, &about("x"))?;
            clients.add(&client, part, x, labels).map_err(|error| refused(py, &error.into()))?;
        }
        let dataset = without_python(py, || Ok(clients.into_dataset()?))?;
        let source = fedeq_data::source::Source::of_arrays_like(&dataset.samples).name();
        Ok(Self { source, dataset: Mutex::new(Some(dataset)) })
    }

    /// Writes them as one safetensors file, and gives its SHA-256.
    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<String> {
        let dataset = self.take(py)?;
        without_python(py, || Ok(write(&dataset, &path)?))
    }
}

impl Arrays {
    /// The name of the data set that reads them.
    pub(crate) fn source(&self) -> &'static str {
        self.source
    }

    /// The data set; whoever takes it has it alone.
    pub(crate) fn take(&self, py: Python<'_>) -> PyResult<Dataset> {
        let dataset = self.dataset.lock().unwrap_or_else(PoisonError::into_inner).take();
        dataset.ok_or_else(|| refused(py, &Error::invalid("the arrays were handed over already", "make them again")))
    }
}

/// An array of numpy, or anything else that lends its memory.
pub(crate) fn given(array: &Bound<'_, PyAny>, about: &str) -> PyResult<GivenArray> {
    let found = lent::<u8>(array, GivenValues::Bytes)
        .or_else(|| lent::<f32>(array, GivenValues::Floats))
        .or_else(|| lent::<f64>(array, GivenValues::Doubles))
        .or_else(|| lent::<i64>(array, GivenValues::Integers))
        .or_else(|| lent::<i32>(array, integers))
        .or_else(|| lent::<i16>(array, integers))
        .or_else(|| lent::<i8>(array, integers))
        .or_else(|| lent::<u16>(array, integers))
        .or_else(|| lent::<u32>(array, integers));
    found.unwrap_or_else(|| Err(unknown_type(array, about)))
}

/// The array, if its values are of that type; they are copied once.
fn lent<V: Element>(array: &Bound<'_, PyAny>, values: impl FnOnce(Vec<V>) -> GivenValues) -> Option<PyResult<GivenArray>> {
    let buffer = PyBuffer::<V>::get(array).ok()?;
    let copied = buffer.to_vec(array.py());
    Some(copied.map(|copied| GivenArray { shape: buffer.shape().to_vec(), values: values(copied) }))
}

fn integers<V: Into<i64>>(values: Vec<V>) -> GivenValues {
    GivenValues::Integers(values.into_iter().map(Into::into).collect())
}

fn unknown_type(array: &Bound<'_, PyAny>, about: &str) -> PyErr {
    let kind = array.getattr("dtype").and_then(|dtype| dtype.str()?.extract::<String>());
    let kind = kind.unwrap_or_else(|_| array.get_type().to_string());
    let hint = "give `uint8` for pictures, `float32` for numbers, integers for tokens and classes, or strings for classes";
    refused(array.py(), &Error::invalid(format!("{about}: is of the type `{kind}`"), hint))
}

/// Numbers for `numpy.frombuffer`: type, shape and bytes.
pub(crate) fn lend<'py, V>(
    py: Python<'py>,
    dtype: &str,
    shape: Vec<usize>,
    values: &[V],
    bytes: impl Fn(&V, &mut Vec<u8>),
) -> PyResult<Bound<'py, PyTuple>> {
    let mut all = Vec::with_capacity(size_of_val(values));
    values.iter().for_each(|value| bytes(value, &mut all));
    (dtype, shape, PyByteArray::new(py, &all)).into_pyobject(py)
}

/// The bytes of floats.
pub(crate) fn float_bytes(value: &f32, all: &mut Vec<u8>) {
    all.extend_from_slice(&value.to_ne_bytes());
}

/// Samples as an array.
pub(crate) fn lend_samples<'py>(py: Python<'py>, samples: &Samples, count: usize) -> PyResult<Bound<'py, PyTuple>> {
    match samples {
        Samples::Images(images) => {
            let [height, width, channels] = images.shape;
            lend(py, "uint8", vec![count, height, width, channels], &images.pixels, |byte, all| all.push(*byte))
        }
        Samples::Vectors(vectors) => lend(py, "float32", vec![count, vectors.width], &vectors.values, float_bytes),
        Samples::Sequences(sequences) => {
            lend(py, "uint8", vec![count, sequences.length], &sequences.symbols, |byte, all| all.push(*byte))
        }
    }
}
