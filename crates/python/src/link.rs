//! The way to clients, through an object of Python.
use std::collections::BTreeMap;

use fedeq_core::{ClientTask, Dropped, Error, Result, Weights};
use fedeq_flower::parts::{RequestParts, read_payload, read_weights, require_short};
use fedeq_python_macros::sheltered;
use fedeq_run::run::{ClientLink, Outgoing, ReceivedReply};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict, PyTuple};

use crate::error::raised;

/// A request, in the parts that Flower's records are made of. Clients that are asked the same share one.
#[pyclass(frozen, get_all, module = "fedeq._native")]
pub(crate) struct Request {
    /// Flower's type of message.
    kind: &'static str,
    /// The round, from 0.
    round: u64,
    /// Everything but the weights, as JSON.
    header: String,
    /// The names and shapes of the weights, as JSON.
    layout: String,
    /// What the array is of, as numpy names it.
    dtype: &'static str,
    /// How long the array is.
    count: usize,
    /// The weights, or what is sent in place of them, as one array in numpy's format.
    packed: Py<PyBytes>,
}

/// What Python may ask and tell while it waits for clients.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct LinkContext(fedeq_run::run::LinkContext);

#[sheltered]
#[pymethods]
impl LinkContext {
    /// Whether somebody has asked to stop.
    #[getter]
    fn stopped(&self) -> bool {
        self.0.is_stopped()
    }

    /// A client has replied.
    fn replied(&self, client: usize) {
        self.0.replied(client);
    }

    /// A node says that it is a client, and is not taken for it.
    fn refused(&self, node: &str, client: usize, reason: &str) -> PyResult<()> {
        self.0.refused(node, client, reason).map_err(|error| raised(&error))
    }
}

/// A link that asks an object of Python:
///
/// - `gather(clients, context)` waits for clients, and gives the reasons of those that cannot be reached, by client
/// - `exchange(requests, context)` sends each client its request, and gives replies by client: header, layout and array as they came, or the reason why there is none
pub(crate) struct PythonLink {
    object: Py<PyAny>,
    like: Weights,
    /// The most bytes that stand in place of weights.
    largest_payload: usize,
    /// What the object raised, if it did.
    pub(crate) exception: Option<PyErr>,
}

/// A reply whose parts have the right types.
struct Parts {
    header: PyBackedStr,
    layout: Option<PyBackedStr>,
    packed: Option<PyBackedBytes>,
}

impl PythonLink {
    pub(crate) fn new(object: Py<PyAny>, like: Weights, largest_payload: usize) -> Self {
        Self { object, like, largest_payload, exception: None }
    }

    /// Calls Python. What is no ordinary exception (an interrupt, Flower's end of a run) stops the run, everything else fails it.
    fn called<V>(&mut self, call: impl FnOnce(Python<'_>, &Py<PyAny>) -> PyResult<V>) -> Result<V> {
        Python::attach(|py| {
            call(py, &self.object).map_err(|exception| {
                let error = if exception.is_instance_of::<PyException>(py) {
                    Error::invalid(exception.to_string(), "see the exception")
                } else {
                    Error::Interrupted
                };
                self.exception = Some(exception);
                error
            })
        })
    }

    fn read(&self, client: usize, reply: std::result::Result<Parts, String>) -> std::result::Result<ReceivedReply, Dropped> {
        let dropped = |reason: &str| Dropped::new(client, reason);
        let Parts { header, layout, packed } = reply.map_err(|reason| dropped(&reason))?;
        require_short("header", &header).map_err(|error| dropped(&error.to_string()))?;
        let (weights, payload) = match (&packed, &layout) {
            (Some(packed), Some(layout)) => {
                (read_weights(packed, layout, &self.like).map_err(|error| dropped(&error.to_string()))?, None)
            }
            (None, None) => (Weights::default(), None),
            (Some(packed), None) => {
                let payload = read_payload(packed, self.largest_payload);
                let problem = |error| format!("it has weights and no `layout`, and no bytes in place of them: {error}");
                (Weights::default(), Some(payload.map_err(|error| dropped(&problem(error)))?))
            }
            (None, Some(_)) => return Err(dropped("it has a `layout` and no weights")),
        };
        Ok(ReceivedReply { header: header.to_string(), weights, payload })
    }
}

impl ClientLink for PythonLink {
    fn gather(&mut self, clients: usize, context: &fedeq_run::run::LinkContext) -> Result<Vec<Dropped>> {
        let reasons: BTreeMap<usize, String> = self.called(|py, object| {
            let context = Py::new(py, LinkContext(context.clone()))?;
            object.call_method1(py, "gather", (clients, context))?.extract(py)
        })?;
        if context.is_stopped() {
            return Err(Error::Interrupted);
        }
        Ok(reasons.into_iter().map(|(client, reason)| Dropped::new(client, &reason)).collect())
    }

    fn exchange(
        &mut self,
        requests: &[Outgoing<'_>],
        context: &fedeq_run::run::LinkContext,
    ) -> Result<Vec<std::result::Result<ReceivedReply, Dropped>>> {
        let parts = distinct(requests)?;
        let replies = self.called(|py, object| {
            let asked = PyDict::new(py);
            let shared = parts.into_iter().map(|(task, round, parts)| python_request(py, task, round, parts));
            let shared: Vec<Py<Request>> = shared.collect::<PyResult<_>>()?;
            for (at, outgoing) in places(requests).zip(requests) {
                asked.set_item(outgoing.client, &shared[at])?;
            }
            let context = Py::new(py, LinkContext(context.clone()))?;
            let replies = object.call_method1(py, "exchange", (asked, context))?;
            let replies = replies.bind(py).cast::<PyDict>()?;
            let of = |outgoing: &Outgoing<'_>| parts_of(replies.get_item(outgoing.client)?);
            requests.iter().map(of).collect::<PyResult<Vec<_>>>()
        })?;
        if context.is_stopped() {
            return Err(Error::Interrupted);
        }
        Ok(requests.iter().zip(replies).map(|(outgoing, reply)| self.read(outgoing.client, reply)).collect())
    }
}

/// The parts of every request that is not the one before it.
fn distinct(requests: &[Outgoing<'_>]) -> Result<Vec<(ClientTask, u64, RequestParts)>> {
    let parts = |Outgoing { request, payload, .. }: &Outgoing<'_>| {
        let parts = RequestParts::of(request, *payload).map_err(|error| Error::message(error.to_string()))?;
        Ok((request.task, request.round, parts))
    };
    requests.chunk_by(are_same).map(|run| parts(&run[0])).collect()
}

/// Which of the [`distinct`] requests each one is.
fn places<'a>(requests: &'a [Outgoing<'a>]) -> impl Iterator<Item = usize> + 'a {
    requests.chunk_by(are_same).enumerate().flat_map(|(at, run)| std::iter::repeat_n(at, run.len()))
}

/// Whether two clients are sent the same.
fn are_same(one: &Outgoing<'_>, other: &Outgoing<'_>) -> bool {
    std::ptr::eq(one.request, other.request) && one.payload.is_none() && other.payload.is_none()
}

fn python_request(py: Python<'_>, task: ClientTask, round: u64, parts: RequestParts) -> PyResult<Py<Request>> {
    let kind = if matches!(task, ClientTask::Train | ClientTask::Aggregate) { "train" } else { "evaluate" };
    let RequestParts { header, layout, dtype, count, packed } = parts;
    Py::new(py, Request { kind, round, header, layout, dtype, count, packed: PyBytes::new(py, &packed).unbind() })
}

/// What Python gave for a client: a reason, or three parts that may be anything.
fn parts_of(reply: Option<Bound<'_, PyAny>>) -> PyResult<std::result::Result<Parts, String>> {
    let Some(reply) = reply else { return Ok(Err("no reply".into())) };
    if let Ok(reason) = reply.extract::<String>() {
        return Ok(Err(reason));
    }
    let parts = reply.cast::<PyTuple>()?;
    if parts.len() != 3 {
        return Err(PyTypeError::new_err("a reply has three parts"));
    }
    let (header, layout, packed) = (parts.get_item(0)?, parts.get_item(1)?, parts.get_item(2)?);
    Ok(typed("header", &header).and_then(|header| {
        let header = header.ok_or("it has no `header`")?;
        Ok(Parts { header, layout: typed("layout", &layout)?, packed: typed_bytes(&packed)? })
    }))
}

fn typed(name: &str, value: &Bound<'_, PyAny>) -> std::result::Result<Option<PyBackedStr>, String> {
    if value.is_none() {
        return Ok(None);
    }
    value.extract().map(Some).map_err(|_| format!("`{name}` is not a text"))
}

fn typed_bytes(value: &Bound<'_, PyAny>) -> std::result::Result<Option<PyBackedBytes>, String> {
    if value.is_none() {
        return Ok(None);
    }
    value.extract().map(Some).map_err(|_| "its weights are not bytes".into())
}
