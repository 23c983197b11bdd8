//! Networks as files, and run by the engine: what `fedeq.torch` and `fedeq.onnx` read and are compared with.
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{Array, Error, Metadata, Params, Result, Weights};
use fedeq_cpu::{Context, Executor, Input, RunningMoments, Start};
use fedeq_models::graph::{ParameterId, Shape};
use fedeq_models::{Graph, InputShape, Mode, ModelConfig, Task};
use fedeq_python_macros::sheltered;
use fedeq_run::export::model_file;
use fedeq_run::run::{RunFolder, Trained};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::without_python;
use crate::fork::require_no_fork;

/// The safetensors file of a client of a finished run, as `fedeq export` writes it. With no client named there must be one client only.
#[sheltered]
#[pyfunction]
#[pyo3(signature = (folder, client = None))]
pub(crate) fn client_file<'py>(py: Python<'py>, folder: PathBuf, client: Option<String>) -> PyResult<Bound<'py, PyBytes>> {
    let bytes = without_python(py, || {
        require_no_fork()?;
        let trained = Trained::open(&RunFolder::open(&folder)?, |_| {})?;
        let client = match client {
            Some(name) => trained.client(&name)?,
            None if trained.prepared().names().count() == 1 => 0,
            None => {
                let problem = format!("`{}` has several clients, and none was named", folder.display());
                return Err(Error::invalid(problem, "name one, such as `client=\"client-00\"`"));
            }
        };
        model_file(&trained, &trained.model(client)?)
    })?;
    Ok(PyBytes::new(py, &bytes))
}

/// A network of the catalog for a task, run by the CPU engine.
#[pyclass(frozen, module = "fedeq._native")]
pub(crate) struct Engine {
    graph: Graph,
}

#[sheltered]
#[pymethods]
impl Engine {
    /// `model` is a name or a model's settings as JSON, `task` the shape of inputs and the number of classes as JSON.
    #[new]
    fn new(py: Python<'_>, model: &str, task: &str) -> PyResult<Self> {
        let graph = without_python(py, || {
            let config: ModelConfig = match model.trim_start().starts_with('{') {
                true => serde_json::from_str(model).map_err(|error| malformed("model", &error))?,
                false => model.parse()?,
            };
            let task: Task = serde_json::from_str(task).map_err(|error| malformed("task", &error))?;
            Ok(config.graph(&task)?)
        })?;
        Ok(Self { graph })
    }

    /// A safetensors file with the network's first values.
    fn file<'py>(&self, py: Python<'py>, seed: u64) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = without_python(py, || {
            let network = serde_json::to_string(&self.graph).map_err(|error| malformed("network", &error))?;
            let weights = Weights::initial(&self.graph, seed);
            let mut arrays = weights.params;
            arrays.overwrite(&weights.statistics);
            arrays.to_bytes(&Metadata::from([("network".to_owned(), network)]))
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// The logits of a batch: `x` is what the network sees, as 32-bit floats (symbols as 32-bit integers), `size` the number of samples and the length of sequences, which is 1 for
    /// everything else.
    fn logits<'py>(&self, py: Python<'py>, file: &[u8], x: &[u8], size: [usize; 2]) -> PyResult<Bound<'py, PyBytes>> {
        let logits = without_python(py, || {
            let batch = self.batch(x, size)?;
            let mut state = self.state(file)?;
            let mut executor = Executor::new(&self.graph, size[0], size[1], Mode::Evaluate, |_| false);
            executor.forward(batch.input(), &mut state.context());
            Ok(executor.logits().to_vec())
        })?;
        Ok(PyBytes::new(py, &little_endian(&logits)))
    }

    /// A training pass without dropout: the logits, and a safetensors file of the gradients of all parameters, given that of the logits, with the statistics after the pass.
    fn pull_back<'py>(
        &self,
        py: Python<'py>,
        file: &[u8],
        x: &[u8],
        size: [usize; 2],
        of_logits: &[u8],
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let (logits, gradients) = without_python(py, || {
            let (batch, given) = (self.batch(x, size)?, words(of_logits, f32::from_le_bytes)?);
            expect("gradients of logits", given.len(), size[0] * size[1] * self.graph.task.classes)?;
            let mut state = self.state(file)?;
            let mut executor = Executor::new(&self.graph, size[0], size[1], Mode::Train, |_| true);
            executor.forward(batch.input(), &mut state.context());
            let logits = executor.logits().to_vec();
            executor.differentiate(|_, gradient| gradient.copy_from_slice(&given));
            let mut gradients = vec![0.0; executor.trained().len()];
            executor.backward(batch.input(), &mut state.context(), &mut gradients);
            let of = |(index, parameter): (usize, &fedeq_models::graph::Parameter)| {
                let values = gradients[executor.trained().range(ParameterId(index))].to_vec();
                (parameter.path.clone(), Array::new(parameter.shape.clone(), values))
            };
            let mut arrays: Params = self.graph.parameters.iter().enumerate().map(of).collect();
            arrays.overwrite(&self.named(&state.statistics));
            Ok((logits, arrays.to_bytes(&Metadata::new())?))
        })?;
        Ok((PyBytes::new(py, &little_endian(&logits)), PyBytes::new(py, &gradients)))
    }
}

/// What a pass reads and changes.
struct State {
    parameters: Vec<Arc<Vec<f32>>>,
    statistics: Vec<RunningMoments>,
}

impl State {
    fn context(&mut self) -> Context<'_> {
        Context { parameters: &self.parameters, statistics: &mut self.statistics, dropout: None, start: Start::Model }
    }
}

/// Inputs that fit the network.
enum Batch {
    Numbers(Vec<f32>),
    Symbols(Vec<i32>),
}

impl Batch {
    fn input(&self) -> Input<'_> {
        match self {
            Self::Numbers(numbers) => Input::Numbers(numbers),
            Self::Symbols(symbols) => Input::Symbols(symbols),
        }
    }
}

impl Engine {
    fn batch(&self, x: &[u8], [samples, length]: [usize; 2]) -> Result<Batch> {
        let longest = self.graph.longest();
        if samples == 0 || samples > 100_000 || !(1..=longest).contains(&length) {
            let problem = format!("a batch of `{samples}` samples of length `{length}` does not fit");
            return Err(Error::invalid(problem, format!("give 1 to 100,000 samples of length 1 to {longest}")));
        }
        expect("numbers in the batch", x.len() / 4, samples * self.graph.shape(self.graph.input()).count(length))?;
        match (self.graph.shape(self.graph.input()), self.graph.task.input) {
            (Shape::Symbols, InputShape::Symbols { vocabulary, .. }) => {
                let symbols = words(x, i32::from_le_bytes)?;
                match symbols.iter().find(|&&symbol| usize::try_from(symbol).map_or(true, |symbol| symbol >= vocabulary)) {
                    Some(symbol) => {
                        let hint = format!("use symbols from 0 to {}", vocabulary - 1);
                        Err(Error::invalid(format!("the symbol `{symbol}` is not below {vocabulary}"), hint))
                    }
                    None => Ok(Batch::Symbols(symbols)),
                }
            }
            _ => words(x, f32::from_le_bytes).map(Batch::Numbers),
        }
    }

    fn state(&self, file: &[u8]) -> Result<State> {
        let (arrays, _) = Params::from_bytes(file)?;
        let expected = Weights::initial(&self.graph, 0);
        let part = |of: &Params| arrays.filter(|name| of.get(name).is_some());
        let weights = Weights { params: part(&expected.params), statistics: part(&expected.statistics) };
        weights.ensure_like(&expected)?;
        let values = |from: &Params, name: &str| from.get(name).map(|array| array.values.to_vec()).unwrap_or_default();
        let parameters = self.graph.parameters.iter().map(|parameter| Arc::new(values(&weights.params, &parameter.path)));
        let statistics = self.graph.statistics.iter().map(|layer| {
            let mut running = RunningMoments::fresh(layer.channels);
            let [mean, variance, steps] = layer.names().map(|name| values(&weights.statistics, &name));
            running.steps = steps.first().copied().unwrap_or_default();
            (running.moments.mean, running.moments.variance) = (mean, variance);
            running
        });
        Ok(State { parameters: parameters.collect(), statistics: statistics.collect() })
    }

    fn named(&self, statistics: &[RunningMoments]) -> Params {
        let layers = self.graph.statistics.iter().zip(statistics);
        let arrays = layers.flat_map(|(layer, running)| {
            let values = [running.moments.mean.clone(), running.moments.variance.clone(), vec![running.steps]];
            layer.names().into_iter().zip(values.map(|values| Array::new(vec![values.len()], values)))
        });
        arrays.collect()
    }
}

fn words<T>(bytes: &[u8], word: impl Fn([u8; 4]) -> T) -> Result<Vec<T>> {
    let (words, rest) = bytes.as_chunks::<4>();
    expect("bytes beyond whole numbers", rest.len(), 0)?;
    Ok(words.iter().map(|bytes| word(*bytes)).collect())
}

fn expect(what: &str, found: usize, wanted: usize) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::invalid(format!("there are `{found}` {what} instead of {wanted}"), "give arrays of the shape that the task says"))
}

fn malformed(what: &str, error: &serde_json::Error) -> Error {
    Error::invalid(format!("the {what} is malformed: {error}"), "write it as in `export.json`")
}

fn little_endian(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}
