//! Transformer layers, fused: forward for a solver's inner loop, forward that remembers, and backward.
//!
//! Activations are `[batch, length, width]`, weights `[in, out]`. A few sequences at a time go through a whole layer, so that what is
//! computed on the way stays near.
mod attention;
mod blocked;
mod dense;
mod layer;
mod layer_norm;
mod mlp;
mod parameters;
mod stack;
#[cfg(test)]
mod tests;
mod vectors;

pub use blocked::Blocked;
pub use layer::{Prepared, Saved, Scratch};
pub use layer_norm::{Standardised, layer_norm, layer_norm_backward, layer_norm_saving};
pub use parameters::{Dropout, LayerGradients, LayerParameters, LayerParts, LayerShape, Linear, Masks, Norm};
pub use stack::{Stack, StackGradients, StackMasks, StackSaved, StackScratch};
