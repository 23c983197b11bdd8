//! A network of any kind: input in, logits out.
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use fedeq_equilibrium::Equilibrium;

use crate::context::Context;
use crate::deq_mlp::DeqMlp;
use crate::deq_resnet::DeqResNet;
use crate::deq_transformer::DeqTransformer;
use crate::error::{ModelError, Result};
use crate::layers::Dense;
use crate::mlp::Mlp;
use crate::representation::{Equilibrated, Features, Representation};
use crate::resnet::ResNet;
use crate::task::{InputShape, Task};
use crate::transformer::{Player, Transformer};

/// A network for one task, built by [`ModelConfig::build`](crate::ModelConfig::build).
///
/// It is a burn module: `network.valid()` is the same without autodiff, optimisers and visitors work as on any other.
/// [`forward`](Self::forward) is [`represent`](Self::represent), the shared part, followed by [`predict`](Self::predict), the
/// personal part; to train the personal part alone, represent with `network.valid()` and predict with the network itself.
#[derive(Module, Debug)]
pub struct Network {
    #[module(skip)]
    task: Task,
    model: Model,
}

/// The kinds of network.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant)] // There is one of them to a program, not a list.
pub(crate) enum Model {
    /// Dense layers.
    Mlp(Mlp),
    /// A dense equilibrium.
    DeqMlp(DeqMlp),
    /// Residual blocks.
    ResNet(ResNet),
    /// A convolutional equilibrium.
    DeqResNet(DeqResNet),
    /// Attention layers.
    Transformer(Transformer),
    /// An equilibrium of attention layers.
    DeqTransformer(DeqTransformer),
}

/// A batch of `B` inputs.
#[derive(Clone, Debug)]
pub enum Input {
    /// Images, `[B, height, width, channels]`.
    Image(Tensor<4>),
    /// Vectors, `[B, width]`.
    Vector(Tensor<2>),
    /// Sequences of symbols, `[B, T]`, with 0 for padding; every symbol must be below the vocabulary.
    Symbols(Tensor<2, Int>),
}

/// What a network makes of a batch.
#[derive(Clone, Debug)]
pub struct Output {
    /// Unnormalised log-probabilities: `[B, classes]`, for text `[B * T, classes]` position by position.
    pub logits: Tensor<2>,
    /// What stands for a sample (for text, a position) in nearest-neighbour methods: one row for each row of logits.
    pub embedding: Tensor<2>,
    /// The fixed point on the way, in an equilibrium network.
    pub equilibrium: Option<Equilibrated>,
}

impl Network {
    pub(crate) fn new(task: Task, model: Model) -> Self {
        Self { task, model }
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    /// What the network was built for.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// Whether the network solves for a fixed point.
    pub fn is_equilibrium(&self) -> bool {
        matches!(self.model, Model::DeqMlp(_) | Model::DeqResNet(_) | Model::DeqTransformer(_))
    }

    /// The path of the matrix `B` of a cell `z = phi(B z + C x + b)`, stored as `[input, output]`, if the network has one: keeping it small keeps the cell contractive.
    pub fn recurrent_matrix(&self) -> Option<&'static str> {
        matches!(self.model, Model::DeqMlp(_)).then_some(DeqMlp::RECURRENT_MATRIX)
    }

    /// How the network finds and differentiates its fixed point, if it solves for one.
    pub fn equilibrium(&self) -> Option<&Equilibrium> {
        match &self.model {
            Model::DeqMlp(model) => Some(&model.equilibrium),
            Model::DeqResNet(model) => Some(&model.equilibrium),
            Model::DeqTransformer(model) => Some(&model.equilibrium),
            Model::Mlp(_) | Model::ResNet(_) | Model::Transformer(_) => None,
        }
    }

    /// The same network, finding and differentiating its fixed point in another way; one that solves for none stays as it is.
    pub fn with_equilibrium(mut self, equilibrium: Equilibrium) -> Self {
        match &mut self.model {
            Model::DeqMlp(model) => model.equilibrium = equilibrium,
            Model::DeqResNet(model) => model.equilibrium = equilibrium,
            Model::DeqTransformer(model) => model.equilibrium = equilibrium,
            Model::Mlp(_) | Model::ResNet(_) | Model::Transformer(_) => {}
        }
        self
    }

    /// How many numbers the fixed point of one sample has at most, if the network solves for one.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use fedeq_models::{ModelConfig, Task};
    ///
    /// let config: ModelConfig = "deq-resnet-m".parse().unwrap();
    /// let network = config.build(&Task::image(32, 32, 3, 10), &Device::default(), 7).unwrap();
    /// assert_eq!(network.state_size(), Some(16 * 16 * 128));
    /// ```
    pub fn state_size(&self) -> Option<usize> {
        match (&self.model, self.task.input) {
            (Model::DeqMlp(model), _) => Some(model.state_size()),
            (Model::DeqResNet(model), InputShape::Image { height, width, .. }) => Some(model.state_size(height, width)),
            (Model::DeqTransformer(_), InputShape::Symbols { length, .. }) => Some(DeqTransformer::state_size(length)),
            _ => None,
        }
    }

    /// Runs the whole network; in training, the context's statistics move.
    pub fn forward(&self, input: &Input, context: &mut Context) -> Result<Output> {
        let representation = self.represent(input, context)?;
        self.predict(&representation, context)
    }

    /// Runs the shared part.
    pub fn represent(&self, input: &Input, context: &mut Context) -> Result<Representation> {
        input.ensure_fits(&self.task.input)?;
        match (&self.model, input) {
            (Model::ResNet(model), Input::Image(x)) => Ok(model.represent(x.clone(), context)),
            (Model::DeqResNet(model), Input::Image(x)) => model.represent(x.clone(), context),
            (Model::Transformer(model), Input::Symbols(x)) => Ok(model.represent(x.clone(), context)),
            (Model::DeqTransformer(model), Input::Symbols(x)) => model.represent(x.clone(), context),
            (Model::Mlp(model), Input::Image(x)) => Ok(model.represent(x.clone().flatten(1, 3))),
            (Model::Mlp(model), Input::Vector(x)) => Ok(model.represent(x.clone())),
            (Model::DeqMlp(model), Input::Image(x)) => model.represent(x.clone().flatten(1, 3), context),
            (Model::DeqMlp(model), Input::Vector(x)) => model.represent(x.clone(), context),
            _ => unreachable!("a network is built for a task it fits, and the input fits the task"),
        }
    }

    /// Runs the personal part on a representation made by this network or another of the same configuration.
    pub fn predict(&self, representation: &Representation, context: &Context) -> Result<Output> {
        let [logits, embedding] = match (self.model.end(), &representation.features) {
            (End::Dense(layer), Features::Vector { features, embedding }) => [layer.forward(features.clone()), embedding.clone()],
            (End::Attention(player), Features::Sequence { hidden, injection, blocked }) => {
                player.predict(hidden.clone(), injection, blocked, context)
            }
            _ => return Err(foreign_representation()),
        };
        Ok(Output { logits, embedding, equilibrium: representation.equilibrium.clone() })
    }
}

/// How networks end.
enum End<'a> {
    Dense(&'a Dense),
    Attention(&'a Player),
}

impl Model {
    fn end(&self) -> End<'_> {
        match self {
            Self::Mlp(model) => End::Dense(model.last()),
            Self::DeqMlp(model) => End::Dense(&model.player),
            Self::ResNet(model) => End::Dense(&model.player),
            Self::DeqResNet(model) => End::Dense(&model.player),
            Self::Transformer(model) => End::Attention(&model.player),
            Self::DeqTransformer(model) => End::Attention(&model.player),
        }
    }
}

impl Input {
    /// How many samples.
    pub fn len(&self) -> usize {
        match self {
            Self::Image(x) => x.dims()[0],
            Self::Vector(x) => x.dims()[0],
            Self::Symbols(x) => x.dims()[0],
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn ensure_fits(&self, shape: &InputShape) -> Result<()> {
        let fits = match (self, *shape) {
            (Self::Image(x), InputShape::Image { height, width, channels }) => x.dims()[1..] == [height, width, channels],
            (Self::Vector(x), InputShape::Vector { width }) => x.dims()[1] == width,
            (Self::Symbols(x), InputShape::Symbols { length, .. }) => (1..=length).contains(&x.dims()[1]),
            _ => false,
        };
        if fits && !self.is_empty() {
            return Ok(());
        }
        Err(ModelError::unfitting(
            format!("an input of shape `{}` does not fit a network for {shape}", self.described()),
            format!("pass a batch of at least one of {shape}"),
        ))
    }

    fn described(&self) -> String {
        match self {
            Self::Image(x) => format!("{:?}", x.dims()),
            Self::Vector(x) => format!("{:?}", x.dims()),
            Self::Symbols(x) => format!("{:?} (symbols)", x.dims()),
        }
    }
}

fn foreign_representation() -> ModelError {
    ModelError::unfitting(
        "a representation of another kind of network cannot be read",
        "predict from what `represent` of the same network gave",
    )
}
