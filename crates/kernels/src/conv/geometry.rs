//! The sizes of a convolution.
use crate::padding::{same_padding, same_size};
use crate::size::product;

/// The sizes of a convolution: `x` is `[batch, height, width, from]`, `y` is `[batch, output, to]`, channels last; the weights are
/// `[to, from, window, window]`.
///
/// The padding is TensorFlow's `SAME`: the output has `ceil(input / stride)` rows, and where an odd number of rows of zeros is needed,
/// the odd one is at the bottom; columns alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Samples.
    pub batch: usize,
    /// Rows of the input.
    pub height: usize,
    /// Columns of the input.
    pub width: usize,
    /// Channels of the input.
    pub from: usize,
    /// Channels of the output.
    pub to: usize,
    /// Rows and columns of the window.
    pub window: usize,
    /// Pixels from one window to the next.
    pub stride: usize,
}

impl Geometry {
    /// Rows and columns of the output.
    pub fn output(&self) -> [usize; 2] {
        [self.height, self.width].map(|size| same_size(size, self.stride))
    }

    /// Numbers in the input.
    ///
    /// # Panics
    ///
    /// If that is more than any memory holds; so do the others.
    pub fn input_len(&self) -> usize {
        product([self.batch, self.height, self.width, self.from])
    }

    /// Numbers in the output.
    pub fn output_len(&self) -> usize {
        let [height, width] = self.output();
        product([self.batch, height, width, self.to])
    }

    /// Numbers in the weights.
    pub fn weight_len(&self) -> usize {
        product([self.to, self.window, self.window, self.from])
    }

    /// Pixels of the output, of all samples.
    pub(super) fn output_pixels(&self) -> usize {
        let [height, width] = self.output();
        self.batch * height * width
    }

    /// Numbers under one window.
    pub(super) fn patch_len(&self) -> usize {
        self.window * self.window * self.from
    }

    /// Rows of zeros above the input and columns of zeros left of it.
    pub(super) fn padding(&self) -> [usize; 2] {
        [self.height, self.width].map(|size| same_padding(size, self.window, self.stride).0)
    }

    /// Whether each output pixel depends on the input pixel at its place alone.
    pub(super) fn is_pointwise(&self) -> bool {
        self.window == 1 && self.stride == 1
    }

    /// The convolution of the input gradient, where the stride is one: channels change their roles.
    pub(super) fn reversed(&self) -> Self {
        Self { from: self.to, to: self.from, ..*self }
    }

    /// Whether weights prepared for this fit the other: only the batch may differ.
    pub(super) fn fits(&self, other: &Self) -> bool {
        Self { batch: 0, ..*self } == Self { batch: 0, ..*other }
    }
}
