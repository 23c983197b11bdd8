//! The networks by name: one line for each.
use std::fmt;
use std::str::FromStr;

use fedeq_equilibrium::Equilibrium;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::deq_mlp::DeqMlpOptions;
use crate::deq_resnet::{DeqResNetOptions, DeqResNetSize};
use crate::deq_transformer::DeqTransformerOptions;
use crate::error::{ModelError, Result, ensure_within};
use crate::explicit_resnet::{TiedResNetOptions, UntiedResNetOptions};
use crate::external::ExternalOptions;
use crate::graph::Graph;
use crate::mlp::{LinearOptions, MlpOptions};
use crate::preset::Preset;
use crate::resnet::{ResNetDepth, ResNetOptions};
use crate::task::{InputShape, Task};
use crate::transformer::TransformerOptions;

/// A kind of network: what its options make of a task. Networks of one kind that differ in size share their options.
///
/// Implemented by the options of every network, in the network's own file; the equation stands in its doc comment.
pub trait Architecture {
    /// What tells the members of the family apart.
    type Size;

    /// What it takes.
    const INPUTS: InputKind;

    /// The network for a task whose inputs it takes.
    fn graph(&self, task: &Task, size: Self::Size) -> Result<Graph>;

    /// How the fixed point is found, if it solves for one.
    fn equilibrium(&self) -> Option<&Equilibrium> {
        None
    }

    /// Takes on what a preset says of these options, where it says anything.
    fn apply_preset(&mut self, _preset: Preset) {}

    /// Whether the network has a matrix that a projection can keep small, see [`Graph::projected_matrix`].
    fn has_projected_matrix(&self) -> bool {
        false
    }

    /// What the options leave open and the task decides, if it should be known.
    fn note(&self, _task: &Task, _size: Self::Size) -> Option<String> {
        None
    }
}

/// What a kind of network takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// Pictures.
    Images,
    /// Vectors, and pictures as vectors.
    Numbers,
    /// Sequences of symbols.
    Symbols,
}

impl InputKind {
    fn includes(self, input: &InputShape) -> bool {
        match self {
            Self::Images => matches!(input, InputShape::Image { .. }),
            Self::Numbers => !matches!(input, InputShape::Symbols { .. }),
            Self::Symbols => matches!(input, InputShape::Symbols { .. }),
        }
    }
}

impl fmt::Display for InputKind {
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
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "name")]
        pub enum ModelConfig {
            $($(#[$doc])+ #[serde(rename = $name)] $variant($options),)+
            /// A network that is computed outside of fedeq. It has no line of its own, since it is not chosen by its name, but by bringing the network.
            #[serde(rename = "external")]
            #[schemars(skip)]
            External(ExternalOptions),
        }

        impl ModelConfig {
            /// Every name that can be chosen.
            pub const NAMES: [&str; [$($name),+].len()] = [$($name),+];

            const INPUTS: [InputKind; Self::NAMES.len()] = [$($options::INPUTS),+];

            /// The name, as in a configuration file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant(_) => $name,)+
                    Self::External(_) => Self::EXTERNAL,
                }
            }

            /// How the network finds and differentiates its fixed point, if it solves for one.
            pub fn equilibrium(&self) -> Option<&Equilibrium> {
                match self {
                    $(Self::$variant(options) => options.equilibrium(),)+
                    Self::External(_) => None,
                }
            }

            /// Takes on what a preset says of this network, where it says anything.
            pub fn apply_preset(&mut self, preset: Preset) {
                match self {
                    $(Self::$variant(options) => options.apply_preset(preset),)+
                    Self::External(_) => {}
                }
            }

            /// Whether the network has a matrix that a projection can keep small, see [`Graph::projected_matrix`].
            pub fn has_projected_matrix(&self) -> bool {
                match self {
                    $(Self::$variant(options) => options.has_projected_matrix(),)+
                    Self::External(_) => false,
                }
            }

            fn graph_for(&self, task: &Task) -> Result<Graph> {
                match self {
                    $(Self::$variant(options) => options.graph(task, $size),)+
                    Self::External(options) => Err(options.not_ours()),
                }
            }

            fn note_on(&self, task: &Task) -> Option<String> {
                match self {
                    $(Self::$variant(options) => options.note(task, $size),)+
                    Self::External(_) => None,
                }
            }

            /// What it takes; whatever there is, where the network is not ours.
            pub fn inputs(&self) -> Option<InputKind> {
                match self {
                    $(Self::$variant(_) => Some($options::INPUTS),)+
                    Self::External(_) => None,
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
    /// `deq-resnet-xs` with its cell applied a fixed number of times.
    TiedResNetXs(TiedResNetOptions, DeqResNetSize::XS) = "tied-resnet-xs",
    /// `deq-resnet-s` with its cell applied a fixed number of times.
    TiedResNetS(TiedResNetOptions, DeqResNetSize::S) = "tied-resnet-s",
    /// `deq-resnet-m` with its cell applied a fixed number of times.
    TiedResNetM(TiedResNetOptions, DeqResNetSize::M) = "tied-resnet-m",
    /// `deq-resnet-xs` with blocks of the same size in all in place of its equilibrium.
    UntiedResNetXs(UntiedResNetOptions, DeqResNetSize::XS) = "untied-resnet-xs",
    /// `deq-resnet-s` with blocks of the same size in all in place of its equilibrium.
    UntiedResNetS(UntiedResNetOptions, DeqResNetSize::S) = "untied-resnet-s",
    /// `deq-resnet-m` with blocks of the same size in all in place of its equilibrium.
    UntiedResNetM(UntiedResNetOptions, DeqResNetSize::M) = "untied-resnet-m",
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
    /// The name of a network that is not ours. It is none of those that can be chosen.
    pub const EXTERNAL: &str = "external";

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
        if let Some(takes) = takes.filter(|takes| !takes.includes(&task.input)) {
            return Err(self.unfitting(task, takes));
        }
        if let (Some(InputKind::Numbers), Some(width)) = (takes, task.input.flat_width()) {
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
        let note = self.note_on(task).filter(|_| self.inputs().is_some_and(|takes| takes.includes(&task.input)))?;
        Some(format!("{self} was not made for {task}: {note}"))
    }

    fn unfitting(&self, task: &Task, takes: InputKind) -> ModelError {
        let suited = Self::NAMES.iter().zip(Self::INPUTS).filter(|(_, takes)| takes.includes(&task.input));
        let names: Vec<String> = suited.map(|(name, _)| format!("`{name}`")).collect();
        let problem = format!("`{self}` takes {takes}, not {}", task.input);
        ModelError::unfitting(problem, format!("choose one of {} for this data", names.join(", ")))
    }
}

impl fmt::Display for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::External(options) => write!(f, "{}:{}", Self::EXTERNAL, options.network),
            _ => f.write_str(self.name()),
        }
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
