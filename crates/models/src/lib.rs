//! Explicit and equilibrium networks for personalised federated learning, as plain data.
//!
//! A [`ModelConfig`] names a network and a [`Task`] describes the data; together they give a [`Graph`]: the parameters, which of them are [shared
//! and which personal](Part), and the layers, in the order in which they are computed. Nothing is computed here; engines do that.
//!
//! ```
//! use fedeq_models::{ModelConfig, Part, Task};
//!
//! let config: ModelConfig = "deq-resnet-xs".parse()?;
//! let graph = config.graph(&Task::image(8, 8, 1, 10))?;
//! assert_eq!(graph.count(Part::Shared), 15_824);
//! assert_eq!(graph.state_size(), Some(4 * 4 * 16));
//! let first = graph.initial_values(7); // The same seed gives the same values, bit for bit.
//! assert_eq!(first["stem.conv.weight"].len(), 16 * 9);
//! # Ok::<(), fedeq_models::ModelError>(())
//! ```
//!
//! # Layout
//!
//! | | |
//! |---|---|
//! | [`catalog`](ModelConfig), [`task`](Task) | what can be asked for: a line a network |
//! | `mlp`, `resnet`, `transformer` | explicit networks |
//! | `deq_mlp`, `deq_resnet`, `deq_transformer` | equilibrium networks |
//! | `explicit_resnet` | `deq_resnet` without its equilibrium, weight-tied and not |
//! | `external` | networks that are computed outside of fedeq |
//! | [`graph`], [`builder`](graph::Builder), `shapes` | what they are made of, how they are written down, what fits what |
//! | `choices`, [`init`](Initializer), [`part`](Part) | options, first values, to whom a parameter belongs |
//! | [`preset`](Preset) | where the paper and its authors' code differ |
//! | [`store`] | files |
mod builder;
mod catalog;
mod choices;
mod deq_mlp;
mod deq_resnet;
mod deq_transformer;
mod error;
mod explicit_resnet;
mod external;
pub mod graph;
mod init;
mod layer;
mod mlp;
mod part;
mod preset;
mod resnet;
mod shapes;
pub mod store;
mod task;
mod transformer;

pub use catalog::{Architecture, InputKind, ModelConfig};
pub use choices::{Activation, GroupNormScope, NormKind, Personal, Pooling};
pub use deq_mlp::DeqMlpOptions;
pub use deq_resnet::{DeqResNetOptions, DeqResNetSize};
pub use deq_transformer::DeqTransformerOptions;
pub use error::{ModelError, Result};
pub use explicit_resnet::{TiedResNetOptions, UntiedResNetOptions};
pub use external::ExternalOptions;
pub use graph::{Graph, Mode};
pub use init::{Initializer, normal_numbers};
pub use mlp::{LinearOptions, MlpOptions};
pub use part::{PERSONAL, Part, is_normalisation};
pub use preset::Preset;
pub use resnet::{Family, ResNetDepth, ResNetOptions};
pub use task::{InputShape, Task};
pub use transformer::TransformerOptions;

/// Numbers by name: parameters by path, statistics by `<path>.mean`, `<path>.variance` and `<path>.steps`.
pub type Values = std::collections::BTreeMap<String, Vec<f32>>;

/// The code on the page is compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/add-a-network.md")]
struct AddANetwork;
