//! The networks of fedeq run by burn: plain tensor operations and automatic differentiation, in single and in double precision.
//!
//! This is not for training. It is what the tests of the engines compare with, so it is written to be read: every layer is its formula, nothing
//! is fused, and every gradient is burn's, except that of an equilibrium, which is that of `fedeq-equilibrium`.
//!
//! ```
//! use fedeq_models::{ModelConfig, Task};
//! use fedeq_reference::{FloatPrecision, InputValues, Pass, Reference, widened};
//!
//! let config: ModelConfig = "deq-resnet-xs".parse()?;
//! let graph = config.graph(&Task::image(8, 8, 1, 10))?;
//! let (values, statistics) = (widened(&graph.initial_values(7)), widened(&graph.initial_statistics()));
//!
//! let reference = Reference::new(&graph, FloatPrecision::Double);
//! let digits = InputValues { samples: 2, values: vec![0.5; 2 * 64] };
//! let output = reference.forward(&values, &statistics, &digits, &Pass::evaluate());
//! assert_eq!(output.logits.len(), 2 * 10);
//! let (loss, gradient) = reference.gradient(&values, &statistics, &digits, &Pass::train(1), &[3, 7]);
//! assert!(loss > 0.0 && gradient.len() == graph.parameters.len());
//! # Ok::<(), fedeq_models::ModelError>(())
//! ```
//!
//! Whatever does not fit the network is a mistake in a test, and panics.
mod cell;
mod operations;
mod parameters;
mod run;

use std::collections::BTreeMap;

use burn::tensor::activation::log_softmax;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use fedeq_equilibrium::SolveReport;
use fedeq_models::{Graph, Mode};

use crate::parameters::Parameters;
use crate::run::ForwardPass;

/// Numbers by name, as [`fedeq_models::Values`] but in double precision.
pub type Values = BTreeMap<String, Vec<f64>>;

/// Numbers by name as a network draws them, in double precision.
pub fn widened(values: &BTreeMap<String, Vec<f32>>) -> Values {
    values.iter().map(|(name, numbers)| (name.clone(), numbers.iter().map(|&number| number.into()).collect())).collect()
}

/// How exactly to compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FloatPrecision {
    /// 32 bits.
    Single,
    /// 64 bits.
    Double,
}

/// A batch: the numbers, or the symbols, of its samples one after the other.
#[derive(Clone, Debug, PartialEq)]
pub struct InputValues {
    /// How many samples.
    pub samples: usize,
    /// Their numbers.
    pub values: Vec<f64>,
}

/// What a pass needs besides the network and its input.
#[derive(Clone, Debug, PartialEq)]
pub struct Pass {
    /// Training or evaluation.
    pub mode: Mode,
    /// The seed of the dropout masks, or none for no dropout.
    pub dropout: Option<u64>,
    /// Where the equilibrium solve starts, the states of the samples one after the other; where the cell says if none.
    pub start: Option<Vec<f64>>,
}

impl Pass {
    /// A training pass with dropout.
    pub fn train(seed: u64) -> Self {
        Self { mode: Mode::Train, dropout: Some(seed), start: None }
    }

    /// An evaluation pass, without dropout.
    pub fn evaluate() -> Self {
        Self { mode: Mode::Evaluate, dropout: None, start: None }
    }

    /// The same without dropout.
    pub fn without_dropout(self) -> Self {
        Self { dropout: None, ..self }
    }

    /// The same with the equilibrium solve started from a state.
    pub fn starting_at(self, state: &[f64]) -> Self {
        Self { start: Some(state.to_vec()), ..self }
    }
}

/// What a network makes of a batch.
#[derive(Clone, Debug)]
pub struct Outputs {
    /// One row a sample, for text one a position.
    pub logits: Vec<f64>,
    /// One row for each row of logits.
    pub embedding: Vec<f64>,
    /// The fixed points of the samples, in an equilibrium network.
    pub state: Option<Vec<f64>>,
    /// How the solve went.
    pub report: Option<SolveReport>,
    /// The running statistics after the pass.
    pub statistics: Values,
}

/// A network, run by burn.
#[derive(Clone, Debug)]
pub struct Reference {
    graph: Graph,
    dtype: DType,
}

impl Reference {
    /// Runs a network in this precision.
    ///
    /// # Panics
    /// If the network is not sound.
    pub fn new(graph: &Graph, precision: FloatPrecision) -> Self {
        graph.validate().expect("a sound network");
        let dtype = match precision {
            FloatPrecision::Single => DType::F32,
            FloatPrecision::Double => DType::F64,
        };
        Self { graph: graph.clone(), dtype }
    }

    /// Runs the whole network.
    pub fn forward(&self, values: &Values, statistics: &Values, input: &InputValues, pass: &Pass) -> Outputs {
        let mut run = self.begin(values, statistics, input, pass, &Device::default());
        run.layers();
        let (logits, embedding) = (host(run.rows(self.graph.logits)), host(run.rows(self.graph.embedding)));
        let (state, report) = run.solved.unzip();
        Outputs { logits, embedding, state: state.map(host), report, statistics: run.statistics }
    }

    /// The mean cross-entropy of the batch and its gradient by the path of every parameter. There is a target for every row of logits; positions whose
    /// symbol is padding (0) do not count.
    pub fn gradient(
        &self,
        values: &Values,
        statistics: &Values,
        input: &InputValues,
        pass: &Pass,
        targets: &[i32],
    ) -> (f64, Values) {
        let mut run = self.begin(values, statistics, input, pass, &Device::default().autodiff());
        run.layers();
        let loss = cross_entropy(run.logits(), targets, run.symbols.clone());
        let mean = host(loss.clone())[0];
        let gradients = loss.backward();
        let by_path = self.graph.parameters.iter().zip(run.parameters.all()).map(|(parameter, tensor)| {
            let gradient = tensor.grad(&gradients).map_or_else(|| vec![0.0; parameter.count()], host);
            (parameter.path.clone(), gradient)
        });
        (mean, by_path.collect())
    }

    /// The spectral radius of the Jacobian of the cell at some states, for every sample; none for a network without an equilibrium.
    pub fn spectral_radius(
        &self,
        values: &Values,
        statistics: &Values,
        input: &InputValues,
        pass: &Pass,
        states: &[f64],
        seed: u64,
    ) -> Option<Vec<f64>> {
        self.begin(values, statistics, input, pass, &Device::default()).spectral_radius(states, seed)
    }

    fn begin<'a>(
        &'a self,
        values: &Values,
        statistics: &Values,
        input: &InputValues,
        pass: &'a Pass,
        device: &Device,
    ) -> ForwardPass<'a> {
        let parameters = Parameters::new(&self.graph, values, device, self.dtype);
        ForwardPass::new(&self.graph, parameters, statistics.clone(), input, pass, self.dtype)
    }
}

/// The mean over the rows that count.
fn cross_entropy(logits: Tensor<2>, targets: &[i32], symbols: Option<Tensor<2, Int>>) -> Tensor<1> {
    let [rows, _] = logits.dims();
    assert_eq!(rows, targets.len(), "a target for every row of logits");
    let device = logits.device().without_autodiff();
    let wanted = Tensor::<2, Int>::from_data(TensorData::new(targets.to_vec(), [rows, 1]), &device);
    let chosen = log_softmax(logits, 1).gather(1, wanted).squeeze_dim::<1>(1);
    let (counted, count) = match symbols {
        Some(symbols) => {
            let padding = symbols.reshape([rows]).equal_elem(0);
            let padded: i64 = padding.clone().int().sum().into_scalar();
            (chosen.mask_fill(padding, 0.0), rows - padded as usize)
        }
        None => (chosen, rows),
    };
    counted.sum().neg().div_scalar(count.max(1) as f64)
}

/// The entries of a tensor.
pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}
