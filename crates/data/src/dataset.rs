//! What every source yields: samples, their labels, and whose they are where the source knows.
use crate::source::DataSet;
use crate::source::arrays::TokenArrays;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A whole data set in memory, samples in the source's own order.
#[derive(Clone, Debug, PartialEq)]
pub struct Dataset {
    /// The name it goes by on the command line.
    pub name: String,
    /// The inputs, one entry a sample.
    pub samples: Samples,
    /// What is to be predicted, one entry a sample.
    pub labels: Labels,
    /// Who produced each sample, where the source knows (writers, speaking roles, folders).
    pub owners: Option<Owners>,
    /// The first sample of the publisher's own test set, where there is one: everything before it is for training.
    pub test_start: Option<usize>,
}

/// The inputs, stored as compactly as the source allows and turned into numbers only batch by batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Samples {
    /// Pictures of one size.
    Images(Images),
    /// Plain numbers.
    Vectors(Vectors),
    /// Sequences of symbols.
    Sequences(Sequences),
}

/// Pictures as bytes, row-major, channels last (NHWC).
#[derive(Clone, Debug, PartialEq)]
pub struct Images {
    /// Height, width, channels.
    pub shape: [usize; 3],
    /// One byte a value; `samples * height * width * channels` of them.
    pub pixels: Vec<u8>,
    /// The byte that stands for 1.0 (255 for photographs, 16 for the UCI digits).
    pub white: u8,
    /// Applied to the value in [0, 1] when a batch is made.
    pub scaling: Scaling,
}

/// How a value becomes the number a model sees: `(value - mean) / deviation`, with a mean and a deviation for every channel of a picture
/// (whose values are in [0, 1]) or for every column of a table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// Subtracted, one a channel or column.
    pub mean: Vec<f32>,
    /// Divided by, one a channel or column.
    pub deviation: Vec<f32>,
}

impl Scaling {
    /// Leaves values between 0 and 1 as they are.
    pub fn identity(channels: usize) -> Self {
        Self { mean: vec![0.0; channels], deviation: vec![1.0; channels] }
    }
}

/// Rows of numbers of one length.
#[derive(Clone, Debug, PartialEq)]
pub struct Vectors {
    /// How many numbers a sample has.
    pub width: usize,
    /// `samples * width` numbers.
    pub values: Vec<f32>,
}

/// Chunks of `length` symbols; the target of each position is the symbol that follows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sequences {
    /// Symbols a chunk.
    pub length: usize,
    /// Size of the vocabulary; symbol 0 is padding.
    pub vocabulary: usize,
    /// `samples * length` input symbols.
    pub symbols: Vec<u8>,
}

/// What is to be predicted.
#[derive(Clone, Debug, PartialEq)]
pub enum Labels {
    /// One class a sample.
    Classes {
        /// The class names, in order of their numbers.
        names: Vec<String>,
        /// One class number a sample.
        values: Vec<u16>,
    },
    /// One symbol a position: `samples * length` of them, padding where the input is padding.
    NextSymbols(Vec<u8>),
}

/// Who produced each sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Owners {
    /// Client names, in the source's order.
    pub names: Vec<String>,
    /// One index into `names` a sample.
    pub of: Vec<u32>,
}

impl Dataset {
    /// How many samples it holds.
    pub fn len(&self) -> usize {
        match &self.samples {
            Samples::Images(images) => images.pixels.len() / images.shape.iter().product::<usize>(),
            Samples::Vectors(vectors) => vectors.values.len() / vectors.width,
            Samples::Sequences(sequences) => sequences.symbols.len() / sequences.length,
        }
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The same samples with classes counted from the other end: of `c` classes, class `k` becomes `c - 1 - k`. Nothing where samples do not have one class
    /// each.
    pub fn with_classes_reversed(&self) -> Option<Self> {
        let Labels::Classes { names, values } = &self.labels else { return None };
        let last = (names.len() as u16).checked_sub(1)?;
        let values = values.iter().map(|class| last - class).collect();
        Some(Self { labels: Labels::Classes { names: names.clone(), values }, ..self.clone() })
    }

    /// Whether its symbols are the characters of the [vocabulary](crate::source::vocabulary). Tokens of arrays are numbers that only their owner can read.
    pub fn has_characters(&self) -> bool {
        matches!(self.samples, Samples::Sequences(_)) && self.name != TokenArrays::ENTRY.name
    }

    /// The class of each sample, where samples have one class each.
    pub fn classes(&self) -> Option<&[u16]> {
        match &self.labels {
            Labels::Classes { values, .. } => Some(values),
            Labels::NextSymbols(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_counted_from_the_other_end_and_text_has_none() {
        let names = ["a", "b", "c"].map(str::to_owned).to_vec();
        let labels = Labels::Classes { names, values: vec![0, 2, 1, 2] };
        let samples = Samples::Vectors(Vectors { width: 1, values: vec![1.0, 2.0, 3.0, 4.0] });
        let dataset = Dataset { name: "four".into(), samples, labels, owners: None, test_start: None };
        let reversed = dataset.with_classes_reversed().expect("classes");
        assert_eq!((reversed.classes(), &reversed.samples), (Some(&[2, 0, 1, 0][..]), &dataset.samples));
        assert_eq!(reversed.with_classes_reversed(), Some(dataset.clone()));
        assert_eq!(Dataset { labels: Labels::NextSymbols(vec![1; 4]), ..dataset }.with_classes_reversed(), None);
    }
}
