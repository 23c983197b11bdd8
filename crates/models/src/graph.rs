//! A network as plain data: its parameters, and layers that say what is computed from what.
//!
//! A network is written once, in a file of its own, as a function that lists its layers. Every engine runs that list: the CPU engine by kernels on
//! memory planned ahead, a GPU engine for many clients at once, the reference engine of the tests by automatic differentiation.
//!
//! Everything here leaves out the batch axis: a layer acts on every sample of a batch. Pictures are `[height, width, channels]`.
use std::collections::BTreeMap;

use fedeq_equilibrium::Equilibrium;
use serde::Serialize;

pub use crate::builder::{Builder, Ends};
use crate::init::{Initializer, stream};
pub use crate::layer::{Affine, Cell, Dropout, Fusion, Layer, NormScope, Transformer};
use crate::part::Part;
use crate::task::{InputShape, Task};

/// A network for one task.
///
/// Its form as JSON is what `docs/pytorch.md` says, and other programs rely on it: a field or a kind of layer may be added, none changes its meaning.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Graph {
    /// What it is for.
    pub task: Task,
    /// Every parameter; a [`ParameterId`] is an index into this.
    pub parameters: Vec<Parameter>,
    /// The path and the number of channels of every batch normalisation, whose running statistics are kept beside the parameters.
    pub statistics: Vec<RunningStatistics>,
    /// The shape of every value; a [`ValueId`] is an index into this. The first one is the input.
    pub values: Vec<Shape>,
    /// What is computed, in this order.
    pub layers: Vec<Layer>,
    /// Unnormalised log-probabilities of the classes: `Shape::Vector`, for text `Shape::Sequence`.
    pub logits: ValueId,
    /// What stands for a sample (for text, a position) in nearest-neighbour methods.
    pub embedding: ValueId,
}

impl Graph {
    /// Whether the network solves for a fixed point.
    pub fn is_equilibrium(&self) -> bool {
        self.equilibrium().is_some()
    }

    /// How the network finds and differentiates its fixed point, if it solves for one.
    pub fn equilibrium(&self) -> Option<&Equilibrium> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Equilibrium { settings, .. } => Some(settings),
            _ => None,
        })
    }

    /// The same network, finding and differentiating its fixed point in another way; one that solves for none stays as it is.
    pub fn with_equilibrium(mut self, equilibrium: &Equilibrium) -> Self {
        for layer in &mut self.layers {
            if let Layer::Equilibrium { settings, .. } = layer {
                *settings = equilibrium.clone();
            }
        }
        self
    }

    /// How many numbers the fixed point of one sample has at most, if the network solves for one.
    ///
    /// ```
    /// use fedeq_models::{ModelConfig, Task};
    ///
    /// let config: ModelConfig = "deq-resnet-m".parse()?;
    /// let graph = config.graph(&Task::image(32, 32, 3, 10))?;
    /// assert_eq!(graph.state_size(), Some(16 * 16 * 128));
    /// # Ok::<(), fedeq_models::ModelError>(())
    /// ```
    pub fn state_size(&self) -> Option<usize> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Equilibrium { y, .. } => Some(self.shape(*y).count(self.longest())),
            _ => None,
        })
    }

    /// The longest sequence of symbols, or 1 where the input is none.
    pub fn longest(&self) -> usize {
        match self.task.input {
            InputShape::Symbols { length, .. } => length,
            _ => 1,
        }
    }

    /// The input.
    pub fn input(&self) -> ValueId {
        ValueId(0)
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> Shape {
        self.values[value.0]
    }

    /// Of every value, whether one of these parameters has a say in it: where gradients flow when they are trained.
    pub fn influenced_by(&self, trained: impl Fn(ParameterId) -> bool) -> Vec<bool> {
        let mut influenced = vec![false; self.values.len()];
        for layer in &self.layers {
            let of_parameters = layer.parameters().into_iter().any(&trained);
            influenced[layer.output().0] = of_parameters || layer.inputs().into_iter().any(|x| influenced[x.0]);
        }
        influenced
    }

    /// A parameter.
    pub fn parameter(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0]
    }

    /// The parameters of one part, in their order.
    pub fn parameters_of(&self, part: Part) -> impl Iterator<Item = &Parameter> {
        self.parameters.iter().filter(move |parameter| parameter.part == part)
    }

    /// How many numbers the parameters of one part hold.
    pub fn count(&self, part: Part) -> usize {
        self.parameters_of(part).map(Parameter::count).sum()
    }

    /// The matrix `B` of a cell `phi(z B + u)`, stored as `[input, output]`: what a projection keeps small, so that the cell is a contraction.
    pub fn projected_matrix(&self) -> Option<&Parameter> {
        self.layers.iter().find_map(|layer| match layer {
            Layer::Equilibrium { cell: Cell::Dense { weight, .. }, .. } => Some(self.parameter(*weight)),
            _ => None,
        })
    }

    /// The values of a fresh network by path. The same seed gives the same values, bit for bit.
    pub fn initial_values(&self, seed: u64) -> BTreeMap<String, Vec<f32>> {
        self.parameters.iter().map(|parameter| (parameter.path.clone(), parameter.initial_values(seed))).collect()
    }

    /// The statistics of a fresh network by name: for every batch normalisation `<path>.mean` (zeros), `<path>.variance` (ones) and
    /// `<path>.steps` (none).
    pub fn initial_statistics(&self) -> BTreeMap<String, Vec<f32>> {
        let named = |running: &RunningStatistics| {
            running.names().into_iter().zip([vec![0.0; running.channels], vec![1.0; running.channels], vec![0.0]])
        };
        self.statistics.iter().flat_map(named).collect()
    }
}

/// A parameter of a network.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Its path, such as `stem.conv.weight`, which also names its stream of random numbers.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// To whom it belongs.
    pub part: Part,
    /// How its first values are drawn.
    pub init: Initializer,
    /// Whether it is the scale or the offset of a normalisation, which some methods leave with their clients. Where only names are known, as in messages, they
    /// [tell the same](crate::is_normalisation).
    #[serde(skip)]
    pub normalises: bool,
}

impl Parameter {
    /// How many numbers it holds.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its values in a fresh network, which depend on nothing but the seed and its path.
    pub fn initial_values(&self, seed: u64) -> Vec<f32> {
        self.init.draw(self.count(), stream(seed, &self.path))
    }
}

/// The running statistics of a batch normalisation: a mean and a variance for each channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RunningStatistics {
    /// The path of the layer.
    pub path: String,
    /// How many channels.
    pub channels: usize,
}

impl RunningStatistics {
    /// The names of the mean, of the variance and of the number of batches seen, in files and messages.
    pub fn names(&self) -> [String; 3] {
        STATISTICS.map(|name| format!("{}.{name}", self.path))
    }

    /// Whether a statistic of this [name](Self::names) may be negative, which a variance and a count may not.
    pub fn may_be_negative(name: &str) -> bool {
        name.rsplit('.').next() == Some(STATISTICS[0])
    }
}

/// What running statistics are called below the path of their layer.
const STATISTICS: [&str; 3] = ["mean", "variance", "steps"];

/// Whether a network is being trained or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Batch normalisation takes the statistics of the batch, the running ones move, and there is dropout.
    Train,
    /// Batch normalisation takes the running statistics, which stay as they are, and there is no dropout.
    Evaluate,
}

/// Which parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ParameterId(pub usize);

/// Which value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct ValueId(pub usize);

/// The shape of a value of one sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Shape {
    /// `[width]`
    Vector(usize),
    /// `[height, width, channels]`
    Image([usize; 3]),
    /// `[length, width]`, for sequences as long as those of the batch.
    Sequence(usize),
    /// `[length]` symbols, as integers.
    Symbols,
}

impl Shape {
    /// How many numbers it has, where sequences are so long.
    pub fn count(self, length: usize) -> usize {
        match self {
            Self::Vector(width) => width,
            Self::Image([height, width, channels]) => height * width * channels,
            Self::Sequence(width) => length * width,
            Self::Symbols => length,
        }
    }
}
