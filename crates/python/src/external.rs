//! An object of Python as the network of a run: `fedeq.networks.Network`.
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use fedeq_core::{Array, Error, Params, Result};
use fedeq_cpu::{ExternalNetwork, FeatureLoss};
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
    /// Whether `loss_and_gradient` and `features_and_pullback` do.
    take_seeds: [bool; 2],
    has_features: bool,
    has_pullback: bool,
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
        let has = |method: &str| PyResult::Ok(object.getattr_opt(method)?.is_some_and(|found| !found.is_none()));
        let has_pullback = has(PULLBACK)?;
        let network = Arc::new(Self {
            take_seeds: [takes_seed(object, "loss_and_gradient")?, has_pullback && takes_seed(object, PULLBACK)?],
            has_features: has("features")?,
            has_pullback,
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
        read: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<Result<V>>,
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
                let keywords = keywords.as_ref().map(|keywords| keywords.bind(py));
                read(&self.object.bind(py).call_method(method, PyTuple::new(py, given)?, keywords)?)
            });
            match called {
                Ok(found) => found.map_err(|error| at_client(client, error)),
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

fn takes_seed(object: &Bound<'_, PyAny>, method: &str) -> PyResult<bool> {
    let inspect = object.py().import("inspect")?;
    let signature = inspect.call_method1("signature", (object.getattr(method)?,))?;
    signature.getattr("parameters")?.contains("seed")
}

impl ExternalNetwork for PythonNetwork {
    fn computed_by(&self) -> &str {
        "Python"
    }

    fn loss_and_gradient(&self, client: &str, parameters: &Params, batch: &Batch, seed: Option<u64>) -> Result<(f64, Params)> {
        let more = |py: Python<'_>| Ok((vec![targets(py, batch)?.unbind()], seeded(py, self.take_seeds[0], seed)?));
        let read = |given: &Bound<'_, PyAny>| {
            let pair = given.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>();
            let (loss, gradient) =
                pair.map_err(|_| wrong("`loss_and_gradient` gave no pair", "return the loss and its gradient"))?;
            let loss: f64 =
                loss.extract().map_err(|_| wrong("the loss is no number", "return a float, and then the gradient"))?;
            Ok((loss, self.gradient(&gradient, parameters)?))
        };
        self.call(("loss_and_gradient", client), parameters, batch, more, |given| Ok(read(given)))
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

    fn has_feature_gradient(&self) -> bool {
        self.has_pullback
    }

    fn feature_gradient(
        &self,
        client: &str,
        parameters: &Params,
        batch: &Batch,
        seed: Option<u64>,
        loss: &mut FeatureLoss<'_>,
    ) -> Result<(f64, Params)> {
        let more = |py: Python<'_>| Ok((Vec::new(), seeded(py, self.take_seeds[1], seed)?));
        self.call((PULLBACK, client), parameters, batch, more, |given| {
            // What Python raises while it pulls back is an exception of the network, as any other.
            let asked = features_and_pullback(given, &target_shape(batch)).and_then(|(Array { shape, values }, pullback)| {
                let mut slope = vec![0.0; values.len()];
                Ok((loss(&values, &mut slope)?, shape, slope, pullback))
            });
            let (value, shape, slope, pullback) = match asked {
                Ok(asked) => asked,
                Err(error) => return Ok(Err(error)),
            };
            let gradient = pullback.call1((numpy(given.py(), "<f4", &shape, &slope, |value| value.to_le_bytes())?,))?;
            Ok(self.gradient(&gradient, parameters).map(|gradient| (value, gradient)))
        })
    }
}

/// Gives features, and a function that makes a gradient of parameters of a gradient of them.
const PULLBACK: &str = "features_and_pullback";

/// What [`PULLBACK`] gave.
fn features_and_pullback<'py>(given: &Bound<'py, PyAny>, expected: &[usize]) -> Result<(Array, Bound<'py, PyAny>)> {
    let pair = given.extract::<(Bound<'py, PyAny>, Bound<'py, PyAny>)>();
    let hint = "return the features, and a function that takes their gradient and gives that of every parameter";
    let (features, pullback) = pair.map_err(|_| wrong(&format!("`{PULLBACK}` gave no pair"), hint))?;
    if !pullback.is_callable() {
        return Err(wrong(&format!("the second that `{PULLBACK}` gave cannot be called"), hint));
    }
    Ok((row_by_row(&features, expected, PULLBACK)?, pullback))
}

/// The seed as an argument by its name, where it is taken.
fn seeded(py: Python<'_>, is_taken: bool, seed: Option<u64>) -> PyResult<Option<Py<PyDict>>> {
    let keywords = PyDict::new(py);
    if is_taken {
        keywords.set_item("seed", seed)?;
    }
    Ok(Some(keywords.unbind()))
}

impl PythonNetwork {
    /// A gradient, which has the names and shapes of the parameters.
    fn gradient(&self, given: &Bound<'_, PyAny>, parameters: &Params) -> Result<Params> {
        let paths: BTreeMap<&str, &str> = self.names.iter().map(|(path, name)| (name.as_str(), path.as_str())).collect();
        let mut found = Vec::new();
        for (name, array) in arrays(given, "the gradient")? {
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
        let lacking = paths.iter().find(|(_, path)| !found.iter().any(|(found, _)| found == *path));
        lacking.map_or(Ok(()), |(name, _)| Err(wrong(&format!("the gradient lacks `{name}`"), LIKE)))?;
        Ok(found.into_iter().collect())
    }

    /// What a method says of every prediction: an array with one axis more than the targets.
    fn rows(&self, method: &'static str, client: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>> {
        let read = |given: &Bound<'_, PyAny>| {
            row_by_row(given, &target_shape(batch), method).map(|Array { values, .. }| Arc::unwrap_or_clone(values))
        };
        self.call((method, client), parameters, batch, |_| Ok((Vec::new(), None)), |given| Ok(read(given)))
    }
}

/// An array with one axis more than the targets.
fn row_by_row(given: &Bound<'_, PyAny>, expected: &[usize], method: &str) -> Result<Array> {
    let found = array(given, &format!("what `{method}` gave"))?;
    if found.shape.len() == expected.len() + 1 && found.shape.starts_with(expected) {
        return Ok(found);
    }
    let axes = expected.iter().map(usize::to_string).chain(["..".into()]).collect::<Vec<_>>().join(", ");
    let problem = format!("`{method}` gave an array of the shape `{:?}`", found.shape);
    Err(wrong(&problem, &format!("return one of the shape `[{axes}]`")))
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
