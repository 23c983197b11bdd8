//! What the data looks like: the shape of an input and the number of answers.
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::{Result, ensure_within};

/// What a network is to do: map inputs of one shape to one of `classes` answers.
///
/// ```
/// use fedeq_models::Task;
/// let digits = Task::image(8, 8, 1, 10);
/// assert_eq!(digits.to_string(), "8x8x1 images, 10 classes");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Task {
    /// The shape of one input.
    pub input: InputShape,
    /// How many answers there are; for text, how many symbols may come next.
    pub classes: usize,
}

/// The shape of one input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum InputShape {
    /// An image, rows first, channels last.
    Image {
        /// Rows of pixels.
        height: usize,
        /// Pixels a row.
        width: usize,
        /// Numbers a pixel.
        channels: usize,
    },
    /// A plain vector of numbers.
    Vector {
        /// How many.
        width: usize,
    },
    /// A sequence of symbols, 0 being padding.
    Symbols {
        /// The longest sequence.
        length: usize,
        /// Symbols are 0 to `vocabulary - 1`.
        vocabulary: usize,
    },
}

impl Task {
    /// Images of `height` x `width` x `channels`.
    pub fn image(height: usize, width: usize, channels: usize, classes: usize) -> Self {
        Self { input: InputShape::Image { height, width, channels }, classes }
    }

    /// Vectors of `width` numbers.
    pub fn vector(width: usize, classes: usize) -> Self {
        Self { input: InputShape::Vector { width }, classes }
    }

    /// The next symbol after each of up to `length` symbols.
    pub fn next_symbol(length: usize, vocabulary: usize) -> Self {
        Self { input: InputShape::Symbols { length, vocabulary }, classes: vocabulary }
    }

    /// Refuses shapes without content and shapes beyond reason, before anything is allocated for them.
    pub(crate) fn validate(&self) -> Result<()> {
        ensure_within("number of classes", self.classes, 2..=100_000)?;
        match self.input {
            InputShape::Image { height, width, channels } => {
                ensure_within("image height", height, 1..=1024)?;
                ensure_within("image width", width, 1..=1024)?;
                ensure_within("number of channels", channels, 1..=16)
            }
            InputShape::Vector { width } => ensure_within("vector width", width, 1..=1_000_000),
            InputShape::Symbols { length, vocabulary } => {
                ensure_within("sequence length", length, 1..=4096)?;
                ensure_within("vocabulary", vocabulary, 2..=100_000)
            }
        }
    }
}

impl InputShape {
    /// How many numbers one input holds, if it is made of numbers.
    pub(crate) fn flat_width(&self) -> Option<usize> {
        match *self {
            Self::Image { height, width, channels } => Some(height * width * channels),
            Self::Vector { width } => Some(width),
            Self::Symbols { .. } => None,
        }
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} classes", self.input, self.classes)
    }
}

impl fmt::Display for InputShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image { height, width, channels } => write!(f, "{height}x{width}x{channels} images"),
            Self::Vector { width } => write!(f, "vectors of {width}"),
            Self::Symbols { length, vocabulary } => write!(f, "sequences of up to {length} out of {vocabulary} symbols"),
        }
    }
}
