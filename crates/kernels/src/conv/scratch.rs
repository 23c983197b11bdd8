//! Memory that convolutions work in.
use crate::buffer::Buffer;

/// Memory that convolutions work in: grown when a larger convolution comes, never shrunk, so that repeating a convolution allocates
/// nothing. One for each thread serves all of its convolutions.
#[derive(Clone, Debug, Default)]
pub struct ConvScratch {
    /// The input, transformed or gathered.
    pub(super) input: Buffer,
    /// The output or its gradient, transformed.
    pub(super) output: Buffer,
    /// The gradient of prepared weights.
    pub(super) weights: Buffer,
    /// Weights that are used once, or a piece of them.
    pub(super) prepared: Buffer,
    /// Zeros, read for pixels outside of the image.
    pub(super) zeros: Buffer,
    /// Written for pixels outside of the image.
    pub(super) waste: Buffer,
}

impl ConvScratch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }
}
