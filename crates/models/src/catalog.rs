//! The networks by name, and how to build one.
use std::fmt;
use std::str::FromStr;

use burn::tensor::Device;
use serde::{Deserialize, Serialize};

use crate::deq_mlp::{DeqMlp, DeqMlpOptions};
use crate::deq_resnet::{self, DeqResNet, DeqResNetOptions};
use crate::deq_transformer::{DeqTransformer, DeqTransformerOptions};
use crate::error::{ModelError, Result, ensure_room};
use crate::init::Blueprint;
use crate::mlp::{LinearOptions, Mlp, MlpOptions};
use crate::network::{Model, Network};
use crate::resnet::{Depth, Family, ResNet, ResNetOptions};
use crate::task::{InputShape, Task};
use crate::transformer::{Text, Transformer, TransformerOptions, validate_dropout};

/// A network by name, with its options. Plain data; [`build`](Self::build) makes it live.
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
    /// One dense layer.
    #[serde(rename = "linear")]
    Linear(LinearOptions),
    /// Dense layers.
    #[serde(rename = "mlp")]
    Mlp(MlpOptions),
    /// A dense equilibrium.
    #[serde(rename = "deq-mlp")]
    DeqMlp(DeqMlpOptions),
    /// The convolutional equilibrium for small images and small devices.
    #[serde(rename = "deq-resnet-xs")]
    DeqResNetXs(DeqResNetOptions),
    /// The paper's equilibrium network for FEMNIST.
    #[serde(rename = "deq-resnet-s")]
    DeqResNetS(DeqResNetOptions),
    /// The paper's equilibrium network for CIFAR.
    #[serde(rename = "deq-resnet-m")]
    DeqResNetM(DeqResNetOptions),
    /// An explicit network for small images, 2.7 times as large as `deq-resnet-xs` on digits.
    #[serde(rename = "resnet-xs")]
    ResNetXs(ResNetOptions),
    /// Explicit, 14 layers.
    #[serde(rename = "resnet-14")]
    ResNet14(ResNetOptions),
    /// Explicit, 20 layers.
    #[serde(rename = "resnet-20")]
    ResNet20(ResNetOptions),
    /// Explicit, 34 layers.
    #[serde(rename = "resnet-34")]
    ResNet34(ResNetOptions),
    /// The paper's equilibrium network for Shakespeare.
    #[serde(rename = "deq-transformer")]
    DeqTransformer(DeqTransformerOptions),
    /// Explicit, 4 layers.
    #[serde(rename = "transformer-4")]
    Transformer4(TransformerOptions),
    /// Explicit, 8 layers.
    #[serde(rename = "transformer-8")]
    Transformer8(TransformerOptions),
    /// Explicit, 12 layers.
    #[serde(rename = "transformer-12")]
    Transformer12(TransformerOptions),
}

impl ModelConfig {
    /// Every name.
    pub const NAMES: [&str; 14] = [
        "linear",
        "mlp",
        "deq-mlp",
        "deq-resnet-xs",
        "deq-resnet-s",
        "deq-resnet-m",
        "resnet-xs",
        "resnet-14",
        "resnet-20",
        "resnet-34",
        "deq-transformer",
        "transformer-4",
        "transformer-8",
        "transformer-12",
    ];

    /// As [`Network::recurrent_matrix`], before it is built.
    pub fn recurrent_matrix(&self) -> Option<&'static str> {
        matches!(self, Self::DeqMlp(_)).then_some(DeqMlp::RECURRENT_MATRIX)
    }

    /// The name, as in a configuration file.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Linear(_) => "linear",
            Self::Mlp(_) => "mlp",
            Self::DeqMlp(_) => "deq-mlp",
            Self::DeqResNetXs(_) => "deq-resnet-xs",
            Self::DeqResNetS(_) => "deq-resnet-s",
            Self::DeqResNetM(_) => "deq-resnet-m",
            Self::ResNetXs(_) => "resnet-xs",
            Self::ResNet14(_) => "resnet-14",
            Self::ResNet20(_) => "resnet-20",
            Self::ResNet34(_) => "resnet-34",
            Self::DeqTransformer(_) => "deq-transformer",
            Self::Transformer4(_) => "transformer-4",
            Self::Transformer8(_) => "transformer-8",
            Self::Transformer12(_) => "transformer-12",
        }
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
            Self::DeqResNetXs(options) => self.build_deq_resnet(&at, task, deq_resnet::Size::XS, options)?,
            Self::DeqResNetS(options) => self.build_deq_resnet(&at, task, deq_resnet::Size::S, options)?,
            Self::DeqResNetM(options) => self.build_deq_resnet(&at, task, deq_resnet::Size::M, options)?,
            Self::ResNetXs(options) => self.build_resnet(&at, task, Depth::Xs, options)?,
            Self::ResNet14(options) => self.build_resnet(&at, task, Depth::D14, options)?,
            Self::ResNet20(options) => self.build_resnet(&at, task, Depth::D20, options)?,
            Self::ResNet34(options) => self.build_resnet(&at, task, Depth::D34, options)?,
            Self::DeqTransformer(options) => self.build_deq_transformer(&at, task, options)?,
            Self::Transformer4(options) => self.build_transformer(&at, task, 4, options)?,
            Self::Transformer8(options) => self.build_transformer(&at, task, 8, options)?,
            Self::Transformer12(options) => self.build_transformer(&at, task, 12, options)?,
        };
        Ok(Network::new(*task, model))
    }

    /// Which family of explicit networks a task gets, for the networks that come in families.
    pub fn family(&self, task: &Task) -> Option<Family> {
        match self {
            Self::ResNet14(options) | Self::ResNet20(options) | Self::ResNet34(options) => {
                Family::of(task).map(|nearest| options.family.unwrap_or(nearest))
            }
            _ => None,
        }
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
        let family = self.family(task).filter(|family| !family.is_made_for(task))?;
        Some(format!("{self} was not made for {task}: using its {family} family"))
    }

    fn build_mlp(&self, at: &Blueprint, task: &Task, options: &MlpOptions) -> Result<Model> {
        options.validate()?;
        let widths = [&[self.flat_width(task)?], options.hidden.as_slice(), &[task.classes]].concat();
        ensure_room(&widths)?;
        Ok(Model::Mlp(Mlp::new(at, self.flat_width(task)?, task.classes, options)))
    }

    fn build_deq_mlp(&self, at: &Blueprint, task: &Task, options: &DeqMlpOptions) -> Result<Model> {
        options.validate()?;
        let colour = matches!(task.input, InputShape::Image { channels: 3, .. });
        let hidden = options.hidden.unwrap_or(if colour { 1024 } else { 512 });
        ensure_room(&[self.flat_width(task)?, hidden, hidden, options.dense, task.classes])?;
        Ok(Model::DeqMlp(DeqMlp::new(at, self.flat_width(task)?, hidden, task.classes, options)))
    }

    fn build_deq_resnet(&self, at: &Blueprint, task: &Task, size: deq_resnet::Size, options: &DeqResNetOptions) -> Result<Model> {
        options.equilibrium.validate()?;
        let [flat, dense] = size.largest_layer(self.image(task)?);
        ensure_room(&[flat, dense])?;
        Ok(Model::DeqResNet(DeqResNet::new(at, size, self.image(task)?, task.classes, options)))
    }

    fn build_resnet(&self, at: &Blueprint, task: &Task, depth: Depth, options: &ResNetOptions) -> Result<Model> {
        let [_, _, channels] = self.image(task)?;
        let family = self.family(task).unwrap_or(Family::Femnist);
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
            _ => Err(self.unfitting(task, "images")),
        }
    }

    fn flat_width(&self, task: &Task) -> Result<usize> {
        let width = task.input.flat_width().ok_or_else(|| self.unfitting(task, "vectors and images"))?;
        crate::error::ensure_within("flattened input width", width, 1..=1_000_000)?;
        Ok(width)
    }

    fn text(&self, task: &Task) -> Result<Text> {
        match task.input {
            InputShape::Symbols { length, vocabulary } => Ok(Text { length, vocabulary, classes: task.classes }),
            _ => Err(self.unfitting(task, "sequences of symbols")),
        }
    }

    fn unfitting(&self, task: &Task, takes: &str) -> ModelError {
        let suited = match task.input {
            InputShape::Image { .. } => "`deq-resnet-s`, `resnet-20` or `deq-mlp`",
            InputShape::Vector { .. } => "`deq-mlp`, `mlp` or `linear`",
            InputShape::Symbols { .. } => "`deq-transformer` or `transformer-8`",
        };
        let problem = format!("`{self}` takes {takes}, not {}", task.input);
        ModelError::unfitting(problem, format!("choose {suited} for this data"))
    }
}

impl fmt::Display for ModelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Femnist => "FEMNIST",
            Self::Cifar10 => "CIFAR-10",
            Self::Cifar100 => "CIFAR-100",
        })
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
