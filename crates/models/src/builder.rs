//! Writing a network down: layers appended one by one, under the paths of their parameters.
use std::fmt::Display;

use fedeq_equilibrium::Equilibrium;

use crate::choices::{Activation, GROUPS, GroupNormScope, NormKind};
use crate::error::{ModelError, Result};
use crate::graph::{
    Affine, Cell, Fusion, Graph, Layer, NormScope, Parameter, ParameterId, RunningStatistics, Shape, Transformer, ValueId,
};
use crate::init::Initializer;
use crate::part::{PERSONAL, Part, is_normalisation};
use crate::task::Task;

/// The values a network ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    /// See [`Graph::logits`].
    pub logits: ValueId,
    /// See [`Graph::embedding`].
    pub embedding: ValueId,
}

/// A place in a network that is being written down: every method appends a layer there, and gives the value that the layer computes.
///
/// A parameter's path is that of its place, the name of its layer and its own name: `stem.conv.weight`. A layer that does not fit what it
/// reads is reported by [`Graph::build`].
///
/// ```
/// use fedeq_models::graph::{Ends, Graph};
/// use fedeq_models::{Activation, Part, Task};
///
/// // logits = W_2 relu(W_1 x + b_1) + b_2, the second layer being personal
/// let graph = Graph::build(&Task::vector(20, 3), |net| {
///     let x = net.input();
///     let h = net.dense("layer", x, 8, Some(Activation::Relu));
///     Ends { logits: net.personal_dense(h), embedding: h }
/// })?;
/// assert_eq!(graph.count(Part::Shared), 20 * 8 + 8);
/// assert_eq!(graph.parameters[0].path, "layer.weight");
/// # Ok::<(), fedeq_models::ModelError>(())
/// ```
#[derive(Debug)]
pub struct Builder<'a> {
    draft: &'a mut Draft,
    path: String,
    part: Part,
}

/// A network that is not finished.
#[derive(Debug)]
struct Draft {
    graph: Graph,
    /// The first layer that did not fit.
    error: Option<ModelError>,
}

impl Graph {
    /// Writes down a network for a task.
    pub fn build(task: &Task, network: impl FnOnce(&mut Builder<'_>) -> Ends) -> Result<Self> {
        task.validate()?;
        let input = ValueId(0);
        let graph = Self {
            task: *task,
            parameters: Vec::new(),
            statistics: Vec::new(),
            values: vec![Shape::of_input(task)],
            layers: Vec::new(),
            logits: input,
            embedding: input,
        };
        let mut draft = Draft { graph, error: None };
        let ends = network(&mut Builder { draft: &mut draft, path: String::new(), part: Part::Shared });
        let graph = Self { logits: ends.logits, embedding: ends.embedding, ..draft.graph };
        draft.error.map_or(Ok(()), Err)?;
        graph.validate()?;
        Ok(graph)
    }
}

impl Builder<'_> {
    /// The place called `name` inside this one.
    pub fn at(&mut self, name: impl Display) -> Builder<'_> {
        let path = self.path_of(name);
        Builder { draft: self.draft, path, part: self.part }
    }

    /// The place of what stays with its client.
    pub fn personal(&mut self) -> Builder<'_> {
        Builder { part: Part::Personal, ..self.at(PERSONAL) }
    }

    /// What the network is for.
    pub fn task(&self) -> Task {
        self.draft.graph.task
    }

    /// The input.
    pub fn input(&self) -> ValueId {
        self.draft.graph.input()
    }

    /// The shape of a value.
    pub fn shape(&self, value: ValueId) -> Shape {
        self.draft.graph.shape(value)
    }

    /// A parameter of this place.
    pub fn parameter(&mut self, name: &str, shape: &[usize], init: Initializer) -> ParameterId {
        self.add(name, shape, init, false)
    }

    /// A parameter of this place. Messages have names alone, so its name must tell whether it is a normalisation's.
    fn add(&mut self, name: &str, shape: &[usize], init: Initializer, normalises: bool) -> ParameterId {
        let parameter = Parameter { path: self.path_of(name), shape: shape.to_vec(), part: self.part, init, normalises };
        if is_normalisation(&parameter.path) != normalises {
            self.draft.error.get_or_insert_with(|| misnamed(&parameter));
        }
        self.draft.graph.parameters.push(parameter);
        ParameterId(self.draft.graph.parameters.len() - 1)
    }

    /// A convolution to so many channels, drawn with deviation `1 / sqrt(fan_in)`.
    pub fn conv(&mut self, name: &str, x: ValueId, to: usize, window: usize, stride: usize) -> ValueId {
        let init = Initializer::fan_in(self.channels(x) * window * window);
        let weight = self.kernels(name, [self.channels(x), to], window, init);
        self.push(|y| Layer::Conv { x, weight, stride, y })
    }

    /// A 3 x 3 convolution drawn from `N(0, 0.01^2)`, as in the equilibrium networks.
    pub fn small_conv(&mut self, name: &str, x: ValueId, to: usize) -> ValueId {
        let weight = self.small_kernels(name, [self.channels(x), to]);
        self.push(|y| Layer::Conv { x, weight, stride: 1, y })
    }

    /// A normalisation, with what is computed in the same pass.
    pub fn norm(&mut self, name: &str, x: ValueId, kind: NormKind, fusion: Fusion) -> ValueId {
        let channels = self.channels(x);
        let affine = self.affine(name, channels);
        let over = match kind {
            NormKind::Batch => {
                let path = self.path_of(name);
                self.draft.graph.statistics.push(RunningStatistics { path, channels });
                NormScope::Batch { statistics: self.draft.graph.statistics.len() - 1 }
            }
            NormKind::Group => NormScope::Groups(GROUPS),
        };
        self.push(|y| Layer::Norm { x, affine, over, fusion, y })
    }

    /// The largest number of the 3 x 3 pixels around every second one.
    pub fn max_pool(&mut self, x: ValueId) -> ValueId {
        self.push(|y| Layer::MaxPool { x, y })
    }

    /// The mean over the plane.
    pub fn mean_pool(&mut self, x: ValueId) -> ValueId {
        self.push(|y| Layer::MeanPool { x, y })
    }

    /// Every second pixel, with channels of zero on both sides up to `channels`.
    pub fn widen(&mut self, x: ValueId, channels: usize) -> ValueId {
        let shape = match self.shape(x) {
            Shape::Image([height, width, _]) => Shape::Image([height.div_ceil(2), width.div_ceil(2), channels]),
            other => other,
        };
        // Its output says how many channels it adds.
        self.draft.graph.values.push(shape);
        let layer = Layer::Widen { x, y: ValueId(self.draft.graph.values.len() - 1) };
        let fitting = self.draft.graph.output_shape(&layer);
        self.append(layer, fitting.map(|_| ()))
    }

    /// `phi(x W + b)`, drawn with deviation `1 / sqrt(inputs)`.
    pub fn dense(&mut self, name: &str, x: ValueId, to: usize, activation: Option<Activation>) -> ValueId {
        let init = Initializer::fan_in(self.width(x));
        self.drawn_dense(name, x, to, activation, init)
    }

    /// `phi(x W + b)` with weights drawn as given and a bias of zero.
    pub fn drawn_dense(
        &mut self,
        name: &str,
        x: ValueId,
        to: usize,
        activation: Option<Activation>,
        init: Initializer,
    ) -> ValueId {
        let [weight, bias] = self.weight_and_bias(name, [self.width(x), to], init);
        self.push(|y| Layer::Dense { x, weight, bias: Some(bias), activation, y })
    }

    /// `x W`
    pub fn matrix(&mut self, name: &str, x: ValueId, to: usize) -> ValueId {
        let from = self.width(x);
        let weight = self.at(name).parameter("weight", &[from, to], Initializer::fan_in(from));
        self.push(|y| Layer::Dense { x, weight, bias: None, activation: None, y })
    }

    /// The personal layer: dense, one output a class.
    pub fn personal_dense(&mut self, x: ValueId) -> ValueId {
        self.drawn_personal_dense(x, Initializer::fan_in(self.width(x)))
    }

    /// The personal layer with weights drawn as given.
    pub fn drawn_personal_dense(&mut self, x: ValueId, init: Initializer) -> ValueId {
        let (classes, mut head) = (self.task().classes, self.personal());
        // The layer is the place itself: `weight` and `bias` lie directly in it.
        head.drawn_dense("", x, classes, None, init)
    }

    /// The learned vectors of symbols, and of their positions where given.
    pub fn embed(&mut self, tokens: ParameterId, positions: Option<ParameterId>) -> ValueId {
        self.push(|y| Layer::Embed { tokens, positions, y })
    }

    /// `factor x`; with a factor of 1 the value itself.
    pub fn scale(&mut self, x: ValueId, factor: f64) -> ValueId {
        if factor == 1.0 { x } else { self.push(|y| Layer::Scale { x, factor, y }) }
    }

    /// Transformer layers one after the other, from zero if there is no `h`.
    pub fn transformer(&mut self, h: Option<ValueId>, injection: ValueId, layers: Transformer) -> ValueId {
        self.push(|y| Layer::Transformer { h, injection, layers, y })
    }

    /// Normalisation of every position of a sequence.
    pub fn layer_norm(&mut self, name: &str, x: ValueId) -> ValueId {
        let affine = self.affine(name, self.width(x));
        self.push(|y| Layer::LayerNorm { x, affine, y })
    }

    /// The fixed point of a cell.
    pub fn equilibrium(&mut self, injection: ValueId, cell: Cell, settings: &Equilibrium) -> ValueId {
        self.push(|y| Layer::Equilibrium { injection, cell, settings: settings.clone(), y })
    }

    /// A cell applied so many times.
    pub fn repeat(&mut self, injection: ValueId, cell: Cell, times: usize) -> ValueId {
        self.push(|y| Layer::Repeat { injection, cell, times, y })
    }

    /// The parameters of a [`Cell::Dense`] of so many numbers.
    pub fn dense_cell(&mut self, name: &str, width: usize, activation: Activation) -> Cell {
        let weight = self.at(name).parameter("weight", &[width, width], Initializer::fan_in(width));
        Cell::Dense { weight, activation }
    }

    /// The parameters of a [`Cell::Residual`] of so many channels.
    pub fn residual_cell(&mut self, channels: usize, scope: GroupNormScope, activation: Activation) -> Cell {
        Cell::Residual {
            conv_a: self.small_kernels("conv_a", [channels, 2 * channels]),
            norm_1: self.affine("norm_1", 2 * channels),
            conv_b: self.small_kernels("conv_b", [2 * channels, channels]),
            norm_2: self.affine("norm_2", channels),
            norm_3: self.affine("norm_3", channels),
            over: match scope {
                GroupNormScope::Textbook => NormScope::Groups(GROUPS),
                GroupNormScope::RowWise => NormScope::RowGroups(GROUPS),
            },
            activation,
        }
    }

    /// The parameters of a transformer layer of that width; `init` says how a matrix of so many inputs is drawn.
    pub fn transformer_layer(&mut self, width: usize, hidden: usize, init: impl Fn(usize) -> Initializer) -> [ParameterId; 16] {
        let norm_1 = self.affine("norm_1", width);
        let mut attention = self.at("attention");
        let projections = ["query", "key", "value", "output"];
        let [query, key, value, output] = projections.map(|name| attention.weight_and_bias(name, [width, width], init(width)));
        let norm_2 = self.affine("norm_2", width);
        let widen = self.weight_and_bias("widen", [width, hidden], init(width));
        let narrow = self.weight_and_bias("narrow", [hidden, width], init(hidden));
        let pairs = [[norm_1.scale, norm_1.offset], query, key, value, output, [norm_2.scale, norm_2.offset], widen, narrow];
        std::array::from_fn(|index| pairs[index / 2][index % 2])
    }

    /// The scale of ones and the offset of zeros of a normalisation, whose name begins or ends with `norm`.
    pub fn affine(&mut self, name: &str, channels: usize) -> Affine {
        let mut at = self.at(name);
        Affine {
            scale: at.add("scale", &[channels], Initializer::Ones, true),
            offset: at.add("offset", &[channels], Initializer::Zeros, true),
        }
    }

    fn weight_and_bias(&mut self, name: &str, [from, to]: [usize; 2], init: Initializer) -> [ParameterId; 2] {
        let mut at = self.at(name);
        [at.parameter("weight", &[from, to], init), at.parameter("bias", &[to], Initializer::Zeros)]
    }

    fn small_kernels(&mut self, name: &str, channels: [usize; 2]) -> ParameterId {
        self.kernels(name, channels, 3, Initializer::Normal { deviation: 0.01 })
    }

    fn kernels(&mut self, name: &str, [from, to]: [usize; 2], window: usize, init: Initializer) -> ParameterId {
        self.at(name).parameter("weight", &[to, from, window, window], init)
    }

    fn push(&mut self, layer: impl FnOnce(ValueId) -> Layer) -> ValueId {
        let layer = layer(ValueId(self.draft.graph.values.len()));
        let shape = self.draft.graph.output_shape(&layer);
        // A layer that does not fit gives nothing; the network is refused in the end.
        self.draft.graph.values.push(*shape.as_ref().unwrap_or(&Shape::Vector(0)));
        self.append(layer, shape.map(|_| ()))
    }

    fn append(&mut self, layer: Layer, fitting: Result<()>) -> ValueId {
        if let (Err(error), None) = (fitting, &self.draft.error) {
            self.draft.error = Some(error);
        }
        let y = layer.output();
        self.draft.graph.layers.push(layer);
        y
    }

    /// The numbers of a sample that a dense layer reads at a time.
    fn width(&self, x: ValueId) -> usize {
        self.shape(x).count(1)
    }

    fn channels(&self, x: ValueId) -> usize {
        match self.shape(x) {
            Shape::Vector(channels) | Shape::Image([_, _, channels]) | Shape::Sequence(channels) => channels,
            Shape::Symbols => 0,
        }
    }

    fn path_of(&self, name: impl Display) -> String {
        match (self.path.as_str(), name.to_string()) {
            ("", name) => name,
            (path, name) if name.is_empty() => path.to_owned(),
            (path, name) => format!("{path}.{name}"),
        }
    }
}

fn misnamed(parameter: &Parameter) -> ModelError {
    let path = &parameter.path;
    let (is, remedy) = if parameter.normalises {
        ("belongs to a normalisation, which its layer's name does not tell", "let the name begin or end with `norm`")
    } else {
        ("belongs to no normalisation, and its layer's name says it does", "let the name neither begin nor end with `norm`")
    };
    ModelError::unfitting(format!("the parameter `{path}` {is}"), remedy)
}
