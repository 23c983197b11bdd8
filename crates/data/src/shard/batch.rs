//! What a model is fed.

/// Some samples as numbers, in plain vectors that any tensor library can take over.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// What the model sees.
    pub inputs: Inputs,
    /// What it should answer.
    pub targets: Targets,
    /// Which samples of the data set these are: the same number for the same sample in every epoch.
    pub ids: Vec<u64>,
}

/// The inputs of a batch, row-major; the first entry of a shape is the number of samples.
#[derive(Clone, Debug, PartialEq)]
pub enum Inputs {
    /// Real numbers: scaled pictures `[samples, height, width, channels]` or vectors `[samples, width]`.
    Dense {
        /// As many as the shape multiplies to.
        values: Vec<f32>,
        /// See above.
        shape: Vec<usize>,
    },
    /// Symbols `[samples, length]`.
    Symbols {
        /// As many as the shape multiplies to.
        values: Vec<i32>,
        /// See above.
        shape: Vec<usize>,
    },
}

/// The targets of a batch.
#[derive(Clone, Debug, PartialEq)]
pub enum Targets {
    /// One class number a sample.
    Classes(Vec<i32>),
    /// One symbol a position, `[samples, length]` row-major.
    Symbols {
        /// As many as the shape multiplies to.
        values: Vec<i32>,
        /// Samples, then positions.
        shape: Vec<usize>,
    },
}

impl Batch {
    /// How many samples it holds.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Whether it holds none; the batches of a [`Shard`](super::Shard) never do.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
