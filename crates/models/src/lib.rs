//! Explicit and equilibrium networks for personalised federated learning, as burn modules.
//!
//! A [`ModelConfig`] names a network and a [`Task`] describes the data; together they [build](ModelConfig::build) a [`Network`],
//! which maps an [`Input`] to an [`Output`] in a [`Context`]. A network says which of its parameters are [shared and which are
//! personal](Part), and holds no state: the running [`Statistics`] of batch normalisation are a value of their own.
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use fedeq_models::{Context, Input, ModelConfig, Task};
//!
//! let device = Device::default();
//! let config: ModelConfig = "deq-resnet-xs".parse()?;
//! let network = config.build(&Task::image(8, 8, 1, 10), &device, 7)?;
//!
//! let digits = Input::Image(Tensor::ones([2, 8, 8, 1], &device));
//! let output = network.forward(&digits, &mut Context::evaluate(network.fresh_statistics()))?;
//! assert_eq!(output.logits.dims(), [2, 10]);
//! assert_eq!(output.equilibrium.unwrap().report.len(), 2);
//! # Ok::<(), fedeq_models::ModelError>(())
//! ```
//!
//! # Layout
//!
//! | | |
//! |---|---|
//! | [`catalog`](ModelConfig), [`task`](Task) | what can be asked for |
//! | [`network`](Network), [`context`](Context), [`representation`](Representation) | how it is run |
//! | [`parameters`](ParameterInfo), [`statistics`](Statistics), [`store`] | what it consists of, by name, in memory and on disk |
//! | `mlp`, `resnet`, `transformer` | explicit networks |
//! | `deq_mlp`, `deq_resnet`, `deq_transformer` | equilibrium networks |
//! | `vision`, `layers`, `init` | what they are made of |
mod builder;
mod catalog;
mod context;
mod deq_mlp;
mod deq_resnet;
mod deq_transformer;
mod error;
pub mod graph;
mod init;
mod layers;
mod mlp;
mod network;
mod parameters;
mod probe;
mod representation;
mod resnet;
mod shapes;
mod statistics;
pub mod store;
mod task;
mod transformer;
mod vision;

pub use catalog::{Architecture, Inputs, ModelConfig};
pub use context::{Context, Mode, Start};
pub use deq_mlp::DeqMlpOptions;
pub use deq_resnet::{DeqResNetOptions, DeqResNetSize};
pub use deq_transformer::DeqTransformerOptions;
pub use error::{ModelError, Result};
pub use graph::Graph;
pub use init::{Initializer, normal_numbers};
pub use layers::{Activation, NormKind, Reach};
pub use mlp::{LinearOptions, MlpOptions};
pub use network::{Input, Network, Output};
pub use parameters::{ParameterInfo, Part, PathTracker};
pub use probe::random_start;
pub use representation::{Equilibrated, Features, Representation};
pub use resnet::{Family, ResNetDepth, ResNetOptions};
pub use statistics::{Moments, Statistics};
pub use task::{InputShape, Task};
pub use transformer::TransformerOptions;

/// The page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-network.md")]
struct AddANetwork;
