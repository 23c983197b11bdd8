//! Explicit and equilibrium networks for personalised federated learning, as plain data.
//!
//! A [`ModelConfig`] names a network and a [`Task`] describes the data; together they give a [`Graph`]: its parameters, which of them are [shared
//! and which are personal](Part), and its layers in their order. Engines run it.
//!
//! ```
//! use fedeq_models::{ModelConfig, Part, Task};
//!
//! let config: ModelConfig = "deq-resnet-xs".parse()?;
//! let graph = config.graph(&Task::image(8, 8, 1, 10))?;
//! assert_eq!(graph.count(Part::Personal), 330);
//! assert_eq!(graph.initial_values(7)["stem.conv.weight"].len(), 16 * 9);
//! # Ok::<(), fedeq_models::ModelError>(())
//! ```
//!
//! # Layout
//!
//! | | |
//! |---|---|
//! | [`catalog`](ModelConfig), [`task`](Task) | what can be asked for |
//! | [`graph`], `builder`, `shapes` | a network as data, how it is written down, and what is sound |
//! | `mlp`, `resnet`, `transformer` | explicit networks |
//! | `deq_mlp`, `deq_resnet`, `deq_transformer` | equilibrium networks |
//! | `vision`, `layers`, `init`, `parameters` | what they are made of |
mod builder;
mod catalog;
mod deq_mlp;
mod deq_resnet;
mod deq_transformer;
mod error;
pub mod graph;
mod init;
mod layers;
mod mlp;
mod parameters;
mod resnet;
mod shapes;
mod task;
mod transformer;
mod vision;

pub use catalog::{Architecture, Inputs, ModelConfig};
pub use deq_mlp::DeqMlpOptions;
pub use deq_resnet::{DeqResNetOptions, DeqResNetSize};
pub use deq_transformer::DeqTransformerOptions;
pub use error::{ModelError, Result};
pub use graph::Graph;
pub use init::{Initializer, normal_numbers};
pub use layers::{Activation, NormKind, Reach};
pub use mlp::{LinearOptions, MlpOptions};
pub use parameters::Part;
pub use resnet::{Family, ResNetDepth, ResNetOptions};
pub use task::{InputShape, Task};
pub use transformer::TransformerOptions;

/// The page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-network.md")]
struct AddANetwork;
