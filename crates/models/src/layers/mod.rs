//! The building blocks of the networks: what burn-nn does not have in the shape needed here.
//!
//! All of them are pure: whatever changes during training lives in the [`Context`](crate::Context), not in the layer.
mod activation;
mod attention;
mod conv;
mod dense;
mod dropout;
mod embedding;
mod norm;

pub use activation::Activation;
pub(crate) use activation::gelu;
pub(crate) use attention::{Attention, blocked_positions};
pub(crate) use conv::Conv;
pub(crate) use dense::Dense;
pub(crate) use dropout::dropout_mask;
pub(crate) use embedding::Embedding;
pub(crate) use norm::{Around, GROUPS, GroupNorm, LayerNorm, Norm};
pub use norm::{NormKind, Reach};
