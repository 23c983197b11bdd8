//! An object of Python as the network of a run: `fedeq.networks.Network`.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use fedeq_core::{Array, Error, Params, Result};
use fedeq_cpu::ExternalNetwork;
use fedeq_data::shard::{Batch, Inputs, Targets};
use fedeq_models::PERSONAL;
use fedeq_run::experiment::ExternalModel;
use pyo3::buffer::PyBuffer;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyDict, PyMapping, PyTuple};

use crate::error::refused;
use crate::value::shown;

/// The first name in the path of what is shared, where its own name could be taken for another's.
const SHARED: &str = "shared";

/// The class of a prediction that does not count, as PyTorch has it.
const IGNORED: i64 = -100;

/// A network whose numbers an object of Python computes.
///
/// One call at a time: others wait for it without holding Python's lock. PyTorch gives the lock away in the middle of a computation, and a module
/// whose parameters are replaced for a call bears no second one.
pub(crate) struct PythonNetwork {
    object: Py<PyAny>,
    /// What its parameters are called in Python, by path.
    names: BTreeMap<String, String>,
    takes_seed: bool,
    has_features: bool,
    turn: Mutex<()>,
    exception: Mutex<Option<PyErr>>,
}

/// The path of a parameter in a run. What is personal is under `head`.
fn path_of(name: &str, is_personal: bool) -> String {
    let first = name.split('.').next().unwrap_or_default();
    match is_personal {
        true => format!("{PERSONAL}.{name}"),
        false if first == PERSONAL || first == SHARED => format!("{SHARED}.{name}"),
        false => name.to_owned(),
    }
}

/// The names that `personal` has; a text is one of them.
fn personal_of(given: &Bound<'_, PyAny>) -> Result<Vec<String>> {
    if let Ok(name) = given.extract::<String>() {
        return Ok(vec![name]);
    }
    let names = given.try_iter().and_then(|names| names.map(|name| name?.extract::<String>()).collect::<PyResult<Vec<_>>>());
    names.map_err(|_| Error::invalid(format!("`personal` is {}", shown(given)), "give a list of names, such as `[\"fc\"]`"))
}

/// What the network calls the parameter with this path.
pub(crate) fn name_of(path: &str) -> &str {
    let within = |first: &str| path.strip_prefix(first).and_then(|rest| rest.strip_prefix('.'));
    within(PERSONAL).or_else(|| within(SHARED)).unwrap_or(path)
}

impl PythonNetwork {
    /// Asks an object for its parameters, and for what else it offers.
    pub(crate) fn of(object: &Bound<'_, PyAny>) -> PyResult<(ExternalModel, Arc<Self>)> {
        let refuse = |problem: String, hint: &str| refused(object.py(), &Error::invalid(problem, hint));
        for method in ["parameters", "loss_and_gradient", "logits"] {
            if !object.hasattr(method)? {
                let problem = format!("`{}` is no network: it has no `{method}`", object.get_type().name()?);
                return Err(refuse(
                    problem,
                    "give what `fedeq.networks.Network` describes; `fedeq.networks.TorchNetwork` makes one of a module",
                ));
            }
        }
        let personal = match object.getattr_opt("personal")? {
            Some(personal) => personal_of(&personal).map_err(|error| refused(object.py(), &error))?,
            None => Vec::new(),
        };
        let mut unused: BTreeSet<&String> = personal.iter().collect();
        let (mut initial, mut names) = (Vec::new(), BTreeMap::new());
        for (name, array) in
            arrays(&object.call_method0("parameters")?, "`parameters()`").map_err(|error| refused(object.py(), &error))?
        {
            let under = |prefix: &&String| {
                name == **prefix || name.strip_prefix(prefix.as_str()).is_some_and(|rest| rest.starts_with('.'))
            };
            unused.retain(|prefix| !under(prefix));
            let path = path_of(&name, personal.iter().any(|prefix| under(&prefix)));
            names.insert(path.clone(), name);
            initial.push((path, array));
        }
        if let Some(unknown) = unused.first() {
            let hint = "name parameters, or what they have in front of a dot: `fc` for `fc.weight` and `fc.bias`";
            return Err(refuse(format!("`personal` names `{unknown}`, and no parameter is called so"), hint));
        }
        let name = match object.getattr_opt("name")? {
            Some(name) => name.extract::<String>().map_err(|_| refuse(format!("`name` is {}", shown(&name)), "give a text"))?,
            None => object.get_type().name()?.to_string(),
        };
        let network = Arc::new(Self {
            takes_seed: takes_seed(object)?,
            has_features: object.getattr_opt("features")?.is_some_and(|features| !features.is_none()),
            object: object.clone().unbind(),
            names,
            turn: Mutex::new(()),
            exception: Mutex::new(None),
        });
        Ok((ExternalModel { name, initial: initial.into_iter().collect(), network: Some(network.clone()) }, network))
    }

    /// What the object raised, if it did: what an outcome is to end with.
    pub(crate) fn exception(&self) -> Option<PyErr> {
        self.exception.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Calls one of its methods with the parameters by name and the inputs, and then what else there is.
    fn call<V>(
        &self,
        (method, client): (&str, &str),
        parameters: &Params,
        batch: &Batch,
        more: impl FnOnce(Python<'_>) -> PyResult<(Vec<Py<PyAny>>, Option<Py<PyDict>>)>,
        read: impl FnOnce(&Bound<'_, PyAny>) -> Result<V>,
    ) -> Result<V> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.exception.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            return Err(Error::invalid(format!("client `{client}`: the network has raised an exception"), SEE));
        }
        Python::attach(|py| {
            let called = self.parameters(py, parameters).and_then(|parameters| {
                let (more, keywords) = more(py)?;
                let given: Vec<Py<PyAny>> =
                    [parameters.into_any().unbind(), inputs(py, batch)?.unbind()].into_iter().chain(more).collect();
                self.object.bind(py).call_method(
                    method,
                    PyTuple::new(py, given)?,
                    keywords.as_ref().map(|keywords| keywords.bind(py)),
                )
            });
            match called {
                Ok(given) => read(&given).map_err(|error| at_client(client, error)),
                Err(exception) => Err(self.failed(py, exception, client, method)),
            }
        })
    }

    /// Keeps an exception, which says at which client it was raised. What is no ordinary one (an interrupt) stops the run, everything else fails it.
    fn failed(&self, py: Python<'_>, exception: PyErr, client: &str, method: &str) -> Error {
        let error = if exception.is_instance_of::<PyException>(py) {
            Error::invalid(format!("client `{client}`: {exception}"), SEE)
        } else {
            Error::Interrupted
        };
        // A note is what a person reads below the traceback; an exception that takes none is raised without.
        let _ =
            exception.value(py).call_method1("add_note", (format!("fedeq: client `{client}`, in `{method}` of the network"),));
        self.exception.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(exception);
        error
    }

    fn parameters<'py>(&self, py: Python<'py>, parameters: &Params) -> PyResult<Bound<'py, PyDict>> {
        let named = PyDict::new(py);
        for (path, array) in parameters.iter() {
            let name = self.names.get(path).map_or(path, String::as_str);
            named.set_item(name, numpy(py, "<f4", &array.shape, &array.values, |value| value.to_le_bytes())?)?;
        }
        Ok(named)
    }
}

const SEE: &str = "see the exception";

/// Says at which client something was wrong with what Python gave.
fn at_client(client: &str, error: Error) -> Error {
    match error {
        Error::Invalid { problem, remedy } => Error::Invalid { problem: format!("client `{client}`: {problem}"), remedy },
        other => other,
    }
}

fn takes_seed(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    let inspect = object.py().import("inspect")?;
    let signature = inspect.call_method1("signature", (object.getattr("loss_and_gradient")?,))?;
    signature.getattr("parameters")?.contains("seed")
}

impl ExternalNetwork for PythonNetwork {
    fn computed_by(&self) -> &str {
        "Python"
    }

    fn loss_and_gradient(&self, client: &str, parameters: &Params, batch: &Batch, seed: Option<u64>) -> Result<(f64, Params)> {
        let more = |py: Python<'_>| {
            let keywords = PyDict::new(py);
            if self.takes_seed {
                keywords.set_item("seed", seed)?;
            }
            Ok((vec![targets(py, batch)?.unbind()], Some(keywords.unbind())))
        };
        let paths: BTreeMap<&str, &str> = self.names.iter().map(|(path, name)| (name.as_str(), path.as_str())).collect();
        self.call(("loss_and_gradient", client), parameters, batch, more, |given| {
            let pair = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
            let (loss, gradient) =
                pair.map_err(|_| wrong("`loss_and_gradient` gave no pair", "return the loss and its gradient"))?;
            let loss: f64 =
                loss.extract().map_err(|_| wrong("the loss is no number", "return a float, and then the gradient"))?;
            let mut found = Vec::new();
            for (name, array) in arrays(&gradient, "the gradient")? {
                let path = paths.get(name.as_str()).copied();
                let path = path.ok_or_else(|| wrong(&format!("the gradient has `{name}`, which is no parameter"), LIKE))?;
                let shape = parameters.get(path).map(|array| &array.shape);
                if shape != Some(&array.shape) {
                    let expected = shape.cloned().unwrap_or_default();
                    let problem =
                        format!("the gradient of `{name}` has the shape `{:?}`, and the parameter {expected:?}", array.shape);
                    return Err(wrong(&problem, LIKE));
                }
                found.push((path.to_owned(), array));
            }
            if let Some(name) =
                paths.iter().find(|(_, path)| !found.iter().any(|(found, _)| found == *path)).map(|(name, _)| name)
            {
                return Err(wrong(&format!("the gradient lacks `{name}`"), LIKE));
            }
            Ok((loss, found.into_iter().collect()))
        })
    }

    fn logits(&self, client: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        self.rows("logits", client, parameters, batch)
    }

    fn has_features(&self) -> bool {
        self.has_features
    }

    fn features(&self, client: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        self.rows("features", client, parameters, batch)
    }
}

impl PythonNetwork {
    /// What a method says of every prediction: an array with one axis more than the targets.
    fn rows(&self, method: &'static str, client: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        let expected = target_shape(batch);
        self.call(
            (method, client),
            parameters,
            batch,
            |_| Ok((Vec::new(), None)),
            |given| {
                let Array { shape, values } = array(given, &format!("what `{method}` gave"))?;
                if shape.len() == expected.len() + 1 && shape.starts_with(&expected) {
                    return Ok(Arc::unwrap_or_clone(values));
                }
                let axes = expected.iter().map(usize::to_string).chain(["..".into()]).collect::<Vec<_>>().join(", ");
                Err(wrong(
                    &format!("`{method}` gave an array of the shape `{shape:?}`"),
                    &format!("return one of the shape `[{axes}]`"),
                ))
            },
        )
    }
}

const LIKE: &str = "return one array for every parameter, of its name and shape";

fn wrong(problem: &str, hint: &str) -> Error {
    Error::invalid(problem, hint)
}

/// Named arrays of Python.
fn arrays(given: &Bound<'_, PyAny>, what: &str) -> Result<Vec<(String, Array)>> {
    let malformed = || wrong(&format!("{what} is no mapping from names to arrays"), "return a dict of float32 arrays");
    let items = given.cast::<PyMapping>().ok().and_then(|mapping| mapping.items().ok()).ok_or_else(malformed)?;
    let named = |item: Bound<'_, PyAny>| {
        let (name, given) = item.extract::<(String, Bound<'_, PyAny>)>().map_err(|_| malformed())?;
        let read = array(&given, &format!("{what}, `{name}`"))?;
        Ok((name, read))
    };
    items.iter().map(named).collect()
}

/// An array of Python.
fn array(given: &Bound<'_, PyAny>, what: &str) -> Result<Array> {
    // Buffers without axes are not read; as a row of one number they are.
    let is_single = given.getattr("ndim").and_then(|axes| axes.extract::<usize>()).is_ok_and(|axes| axes == 0);
    let row = if is_single { given.call_method1("reshape", (1,)).ok() } else { None };
    let Ok(buffer) = PyBuffer::<f32>::get(row.as_ref().unwrap_or(given)) else {
        let kind = given.getattr("dtype").and_then(|kind| kind.str()?.extract::<String>());
        let kind = kind.or_else(|_| given.get_type().name()?.extract()).unwrap_or_default();
        return Err(wrong(&format!("{what} is `{kind}`"), "give numpy arrays of `float32`"));
    };
    let values =
        buffer.to_vec(given.py()).map_err(|error| wrong(&format!("{what} cannot be read: {error}"), "give a numpy array"))?;
    let shape = if is_single { Vec::new() } else { buffer.shape().to_vec() };
    Ok(Array::new(shape, values))
}

/// An array of numpy that nobody else holds.
fn numpy<'py, V, const N: usize>(
    py: Python<'py>,
    dtype: &str,
    shape: &[usize],
    values: &[V],
    bytes: impl Fn(&V) -> [u8; N],
) -> PyResult<Bound<'py, PyAny>> {
    let mut all = Vec::with_capacity(N * values.len());
    values.iter().for_each(|value| all.extend_from_slice(&bytes(value)));
    let flat = py.import("numpy")?.call_method1("frombuffer", (PyByteArray::new(py, &all), dtype))?;
    flat.call_method1("reshape", (PyTuple::new(py, shape)?,))
}

/// What the network sees: pictures `[samples, height, width, channels]` and vectors `[samples, width]` of float32, symbols `[samples, length]` of int64.
fn inputs<'py>(py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyAny>> {
    match &batch.inputs {
        Inputs::Dense { values, shape } => numpy(py, "<f4", shape, values, |value| value.to_le_bytes()),
        Inputs::Symbols { values, shape } => numpy(py, "<i8", shape, values, |&value| i64::from(value).to_le_bytes()),
    }
}

/// What it should say, as int64: a class a sample, or a symbol a position, which is -100 where it does not count.
fn targets<'py>(py: Python<'py>, batch: &Batch) -> PyResult<Bound<'py, PyAny>> {
    let (Targets::Classes(values) | Targets::Symbols { values, .. }) = &batch.targets;
    let mut classes: Vec<i64> = values.iter().map(|&class| class.into()).collect();
    if let Inputs::Symbols { values: symbols, .. } = &batch.inputs {
        classes.iter_mut().zip(symbols).filter(|(_, symbol)| **symbol == 0).for_each(|(class, _)| *class = IGNORED);
    }
    numpy(py, "<i8", &target_shape(batch), &classes, |class| class.to_le_bytes())
}

fn target_shape(batch: &Batch) -> Vec<usize> {
    match &batch.targets {
        Targets::Classes(values) => vec![values.len()],
        Targets::Symbols { shape, .. } => shape.clone(),
    }
}
