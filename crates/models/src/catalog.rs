//! The networks by name: one line for each.
use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use fedeq_equilibrium::Equilibrium;
use serde::{Deserialize, Serialize};

use crate::deq_mlp::{DeqMlp, DeqMlpOptions};
use crate::deq_resnet::{DeqResNet, DeqResNetOptions, DeqResNetSize};
use crate::deq_transformer::{DeqTransformer, DeqTransformerOptions};
use crate::error::{ModelError, Result, ensure_room_between, ensure_within};
use crate::graph::Graph;
use crate::init::Blueprint;
use crate::mlp::{LinearOptions, Mlp, MlpOptions};
use crate::network::{Model, Network};
use crate::resnet::{ResNet, ResNetDepth, ResNetOptions};
use crate::task::{InputShape, Task};
use crate::transformer::{Text, Transformer, TransformerOptions, validate_dropout};

/// A kind of network: what its options make of a task. Networks of one kind that differ in size share their options.
///
/// Implemented by the options of every network, in the network's own file; the equation stands in its doc comment.
pub trait Architecture {
    /// What tells the members of the family apart.
    type Size;

    /// What it takes.
    const INPUTS: Inputs;

    /// The network for a task whose inputs it takes.
    fn graph(&self, task: &Task, size: Self::Size) -> Result<Graph>;

    /// How the fixed point is found, if it solves for one.
    fn equilibrium(&self) -> Option<&Equilibrium> {
        None
    }

    /// What the options leave open and the task decides, if somebody should know.
    fn note(&self, _task: &Task, _size: Self::Size) -> Option<String> {
        None
    }
}

/// What a kind of network takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inputs {
    /// Pictures.
    Images,
    /// Vectors, and pictures as vectors.
    Numbers,
    /// Sequences of symbols.
    Symbols,
}

impl Inputs {
    fn includes(self, input: &InputShape) -> bool {
        match self {
            Self::Images => matches!(input, InputShape::Image { .. }),
            Self::Numbers => !matches!(input, InputShape::Symbols { .. }),
            Self::Symbols => matches!(input, InputShape::Symbols { .. }),
        }
    }
}

impl fmt::Display for Inputs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Images => "images",
            Self::Numbers => "vectors and images",
            Self::Symbols => "sequences of symbols",
        })
    }
}

/// Makes [`ModelConfig`] of lines `Variant(Options, size) = "name"`.
macro_rules! networks {
    ($($(#[$doc:meta])+ $variant:ident($options:ident, $size:expr) = $name:literal,)+) => {
        /// A network by name, with its options. Plain data; [`graph`](Self::graph) says what it computes.
        ///
        /// In a configuration file the options stand beside the name and may be left out:
        ///
        /// ```
        /// use fedeq_models::{Activation, DeqResNetOptions, ModelConfig};
        ///
        /// let config: ModelConfig = serde_json::from_str(r#"{ "name": "deq-resnet-s", "activation": "relu" }"#).unwrap();
        /// assert_eq!(config, ModelConfig::DeqResNetS(DeqResNetOptions { activation: Activation::Relu, ..Default::default() }));
        /// assert_eq!("deq-resnet-s".parse::<ModelConfig>().unwrap().name(), "deq-resnet-s");
        /// ```
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum ModelConfig {
            $($(#[$doc])+ #[serde(rename = $name)] $variant($options),)+
        }

        impl ModelConfig {
            /// Every name.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            const INPUTS: [Inputs; Self::NAMES.len()] = [$($options::INPUTS),+];

            /// The name, as in a configuration file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                }
            }

            /// How the network finds and differentiates its fixed point, if it solves for one.
            pub fn equilibrium(&self) -> Option<&Equilibrium> {
                match self {
                    $(Self::$variant(options) => options.equilibrium(),)+
                }
            }

            fn graph_for(&self, task: &Task) -> Result<Graph> {
                match self {
                    $(Self::$variant(options) => options.graph(task, $size),)+
                }
            }

            fn note_on(&self, task: &Task) -> Option<String> {
                match self {
                    $(Self::$variant(options) => options.note(task, $size),)+
                }
            }
        }
    };
}

networks! {
    /// One dense layer.
    Linear(LinearOptions, ()) = "linear",
    /// Dense layers.
    Mlp(MlpOptions, ()) = "mlp",
    /// A dense equilibrium.
    DeqMlp(DeqMlpOptions, ()) = "deq-mlp",
    /// The convolutional equilibrium for small images and small devices.
    DeqResNetXs(DeqResNetOptions, DeqResNetSize::XS) = "deq-resnet-xs",
    /// The paper's equilibrium network for FEMNIST.
    DeqResNetS(DeqResNetOptions, DeqResNetSize::S) = "deq-resnet-s",
    /// The paper's equilibrium network for CIFAR.
    DeqResNetM(DeqResNetOptions, DeqResNetSize::M) = "deq-resnet-m",
    /// An explicit network for small images, 2.7 times as large as `deq-resnet-xs` on digits.
    ResNetXs(ResNetOptions, ResNetDepth::Xs) = "resnet-xs",
    /// Explicit, 14 layers.
    ResNet14(ResNetOptions, ResNetDepth::D14) = "resnet-14",
    /// Explicit, 20 layers.
    ResNet20(ResNetOptions, ResNetDepth::D20) = "resnet-20",
    /// Explicit, 34 layers.
    ResNet34(ResNetOptions, ResNetDepth::D34) = "resnet-34",
    /// The paper's equilibrium network for Shakespeare.
    DeqTransformer(DeqTransformerOptions, ()) = "deq-transformer",
    /// Explicit, 4 layers.
    Transformer4(TransformerOptions, 4) = "transformer-4",
    /// Explicit, 8 layers.
    Transformer8(TransformerOptions, 8) = "transformer-8",
    /// Explicit, 12 layers.
    Transformer12(TransformerOptions, 12) = "transformer-12",
}

impl ModelConfig {
    /// As [`Network::recurrent_matrix`], before it is built.
    pub fn recurrent_matrix(&self) -> Option<&'static str> {
        matches!(self, Self::DeqMlp(_)).then_some(DeqMlp::RECURRENT_MATRIX)
    }

    /// The network for a task, as data. Nothing is drawn or allocated for its parameters yet.
    ///
    /// ```
    /// use fedeq_models::{ModelConfig, Part, Task};
    ///
    /// let config: ModelConfig = "deq-resnet-s".parse()?;
    /// let graph = config.graph(&Task::image(28, 28, 1, 62))?;
    /// assert_eq!(graph.count(Part::Shared), 984_896);
    /// assert_eq!(graph.count(Part::Personal), 7_998);
    /// # Ok::<(), fedeq_models::ModelError>(())
    /// ```
    pub fn graph(&self, task: &Task) -> Result<Graph> {
        task.validate()?;
        let takes = self.inputs();
        if !takes.includes(&task.input) {
            return Err(self.unfitting(task, takes));
        }
        if let (Inputs::Numbers, Some(width)) = (takes, task.input.flat_width()) {
            ensure_within("flattened input width", width, 1..=1_000_000)?;
        }
        self.graph_for(task)
    }

    /// Whether the network solves for a fixed point, and so can be started warm.
    pub fn is_equilibrium(&self) -> bool {
        self.equilibrium().is_some()
    }

    /// What the configuration leaves open and the task decides, in words; nothing if there is nothing to say.
    ///
    /// ```
    /// use fedeq_models::{ModelConfig, Task};
    /// let config: ModelConfig = "resnet-20".parse().unwrap();
    /// let note = config.note(&Task::image(8, 8, 1, 10)).unwrap();
    /// assert_eq!(note, "resnet-20 was not made for 8x8x1 images, 10 classes: using its FEMNIST family");
    /// ```
    pub fn note(&self, task: &Task) -> Option<String> {
        let note = self.note_on(task).filter(|_| self.inputs().includes(&task.input))?;
        Some(format!("{self} was not made for {task}: {note}"))
    }

    /// Builds the network for a task. The same configuration, task and seed give the same weights, bit for bit.
    ///
    /// On a device with autodiff (`device.autodiff()`) its parameters want gradients; on a plain one it can only be used.
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use fedeq_models::{ModelConfig, Part, Task};
    ///
    /// let config: ModelConfig = "deq-resnet-s".parse().unwrap();
    /// let network = config.build(&Task::image(28, 28, 1, 62), &Device::default(), 7).unwrap();
    /// assert_eq!(network.count(Part::Shared), 984_896);
    /// assert_eq!(network.count(Part::Personal), 7_998);
    /// ```
    pub fn build(&self, task: &Task, device: &Device, seed: u64) -> Result<Network> {
        task.validate()?;
        let at = Blueprint::new(device, seed);
        let model = match self {
            Self::Linear(options) => self.build_mlp(&at, task, &MlpOptions::linear(options))?,
            Self::Mlp(options) => self.build_mlp(&at, task, options)?,
            Self::DeqMlp(options) => self.build_deq_mlp(&at, task, options)?,
            Self::DeqResNetXs(options) => self.build_deq_resnet(&at, task, DeqResNetSize::XS, options)?,
            Self::DeqResNetS(options) => self.build_deq_resnet(&at, task, DeqResNetSize::S, options)?,
            Self::DeqResNetM(options) => self.build_deq_resnet(&at, task, DeqResNetSize::M, options)?,
            Self::ResNetXs(options) => self.build_resnet(&at, task, ResNetDepth::Xs, options)?,
            Self::ResNet14(options) => self.build_resnet(&at, task, ResNetDepth::D14, options)?,
            Self::ResNet20(options) => self.build_resnet(&at, task, ResNetDepth::D20, options)?,
            Self::ResNet34(options) => self.build_resnet(&at, task, ResNetDepth::D34, options)?,
            Self::DeqTransformer(options) => self.build_deq_transformer(&at, task, options)?,
            Self::Transformer4(options) => self.build_transformer(&at, task, 4, options)?,
            Self::Transformer8(options) => self.build_transformer(&at, task, 8, options)?,
            Self::Transformer12(options) => self.build_transformer(&at, task, 12, options)?,
        };
        Ok(Network::new(*task, model))
    }

    fn build_mlp(&self, at: &Blueprint, task: &Task, options: &MlpOptions) -> Result<Model> {
        options.validate()?;
        let widths = [&[self.flat_width(task)?], options.hidden.as_slice(), &[task.classes]].concat();
        ensure_room_between(&widths)?;
        Ok(Model::Mlp(Mlp::new(at, self.flat_width(task)?, task.classes, options)))
    }

    fn build_deq_mlp(&self, at: &Blueprint, task: &Task, options: &DeqMlpOptions) -> Result<Model> {
        options.validate()?;
        let hidden = options.hidden_for(task);
        ensure_room_between(&[self.flat_width(task)?, hidden, hidden, options.dense, task.classes])?;
        Ok(Model::DeqMlp(DeqMlp::new(at, self.flat_width(task)?, hidden, task.classes, options)))
    }

    fn build_deq_resnet(&self, at: &Blueprint, task: &Task, size: DeqResNetSize, options: &DeqResNetOptions) -> Result<Model> {
        options.equilibrium.validate()?;
        let [flat, dense] = size.largest_layer(self.image(task)?);
        ensure_room_between(&[flat, dense])?;
        Ok(Model::DeqResNet(DeqResNet::new(at, size, self.image(task)?, task.classes, options)))
    }

    fn build_resnet(&self, at: &Blueprint, task: &Task, depth: ResNetDepth, options: &ResNetOptions) -> Result<Model> {
        let [_, _, channels] = self.image(task)?;
        let family = options.family_for(task);
        Ok(Model::ResNet(ResNet::new(at, depth, family, channels, task.classes, options)))
    }

    fn build_transformer(&self, at: &Blueprint, task: &Task, depth: usize, options: &TransformerOptions) -> Result<Model> {
        validate_dropout(options.dropout)?;
        Ok(Model::Transformer(Transformer::new(at, depth, self.text(task)?, options.dropout)))
    }

    fn build_deq_transformer(&self, at: &Blueprint, task: &Task, options: &DeqTransformerOptions) -> Result<Model> {
        validate_dropout(options.dropout)?;
        options.equilibrium.validate()?;
        Ok(Model::DeqTransformer(DeqTransformer::new(at, self.text(task)?, options)))
    }

    fn image(&self, task: &Task) -> Result<[usize; 3]> {
        match task.input {
            InputShape::Image { height, width, channels } => Ok([height, width, channels]),
            _ => Err(self.unfitting(task, Inputs::Images)),
        }
    }

    fn flat_width(&self, task: &Task) -> Result<usize> {
        let width = task.input.flat_width().ok_or_else(|| self.unfitting(task, Inputs::Numbers))?;
        crate::error::ensure_within("flattened input width", width, 1..=1_000_000)?;
        Ok(width)
    }

    fn text(&self, task: &Task) -> Result<Text> {
        match task.input {
            InputShape::Symbols { length, vocabulary } => Ok(Text { length, vocabulary, classes: task.classes }),
            _ => Err(self.unfitting(task, Inputs::Symbols)),
        }
    }

    fn inputs(&self) -> Inputs {
        let place = Self::NAMES.iter().position(|name| *name == self.name());
        Self::INPUTS[place.expect("a network has one of the names")]
    }

    fn unfitting(&self, task: &Task, takes: Inputs) -> ModelError {
        let suited = Self::NAMES.iter().zip(Self::INPUTS).filter(|(_, takes)| takes.includes(&task.input));
        let names: Vec<String> = suited.map(|(name, _)| format!("`{name}`")).collect();
        let problem = format!("`{self}` takes {takes}, not {}", task.input);
        ModelError::unfitting(problem, format!("choose one of {} for this data", names.join(", ")))
    }
}

impl fmt::Display for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for ModelConfig {
    type Err = ModelError;

    /// The network of that name with its default options.
    fn from_str(name: &str) -> Result<Self> {
        serde_json::from_value(serde_json::json!({ "name": name })).map_err(|_| {
            ModelError::unfitting(format!("there is no model `{name}`"), format!("choose one of {}", Self::NAMES.join(", ")))
        })
    }
}
