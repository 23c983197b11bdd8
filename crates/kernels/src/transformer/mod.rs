//! Transformer layers, fused: forward for a solver's inner loop, forward that remembers, and backward.
//!
//! Activations are `[batch, length, width]`, weights `[in, out]`. A few sequences at a time go through a whole layer, so that what is
//! computed on the way stays near.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::transformer::{Blocked, LayerParts, LayerScratch, LayerShape, Masks, PreparedLayer};
//!
//! let shape = LayerShape { batch: 1, length: 3, width: 4, heads: 2, hidden: 8 };
//! let zeros = LayerParts::lengths(&shape).map(|&length| vec![0.0; length]);
//! let layer = PreparedLayer::new(InstructionSet::best(), shape, &zeros.map(Vec::as_slice));
//!
//! let past_only = Blocked::new(3, &[false, true, true, false, false, true, false, false, false]);
//! let masks = Masks { blocked: &past_only, attention: None, mlp: None };
//! let mut out = [0.0; 12];
//! layer.forward(&[1.0; 12], &[0.5; 12], masks, &mut out, &mut LayerScratch::default());
//! assert_eq!(out, [1.5; 12], "without weights, a layer adds its two inputs");
//! ```
mod attention;
mod blocked;
mod layer;
mod layer_norm;
mod mlp;
mod parameters;
mod stack;
#[cfg(test)]
mod tests;

pub use blocked::Blocked;
pub use layer::{LayerSaved, LayerScratch, PreparedLayer};
pub use layer_norm::{Standardised, layer_norm, layer_norm_backward, layer_norm_saving};
pub use parameters::{DropoutMultipliers, LayerGradients, LayerParameters, LayerParts, LayerShape, Linear, Masks, NormParts};
pub use stack::{Stack, StackGradients, StackMasks, StackSaved, StackScratch};
