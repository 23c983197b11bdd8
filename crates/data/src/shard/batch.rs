//! What a model is fed.

/// Some samples as numbers, in plain vectors that any tensor library can take over.
#[derive(Clone, Debug, Default, PartialEq)]
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

impl Default for Inputs {
    fn default() -> Self {
        Self::Dense { values: Vec::new(), shape: Vec::new() }
    }
}

impl Inputs {
    /// Becomes real numbers of this shape; where they go.
    pub(super) fn dense(&mut self, of: &[usize]) -> &mut Vec<f32> {
        if !matches!(self, Self::Dense { .. }) {
            *self = Self::default();
        }
        let Self::Dense { values, shape } = self else { unreachable!("it has just become one") };
        shape.clear();
        shape.extend_from_slice(of);
        values
    }

    /// Becomes symbols of this shape; where they go.
    pub(super) fn symbols(&mut self, of: [usize; 2]) -> &mut Vec<i32> {
        if !matches!(self, Self::Symbols { .. }) {
            *self = Self::Symbols { values: Vec::new(), shape: Vec::new() };
        }
        let Self::Symbols { values, shape } = self else { unreachable!("it has just become one") };
        shape.clear();
        shape.extend_from_slice(&of);
        values
    }
}

impl Default for Targets {
    fn default() -> Self {
        Self::Classes(Vec::new())
    }
}

impl Targets {
    /// Becomes class numbers; where they go.
    pub(super) fn classes(&mut self) -> &mut Vec<i32> {
        if !matches!(self, Self::Classes(_)) {
            *self = Self::default();
        }
        let Self::Classes(values) = self else { unreachable!("it has just become one") };
        values
    }

    /// Becomes symbols of this shape; where they go.
    pub(super) fn symbols(&mut self, of: [usize; 2]) -> &mut Vec<i32> {
        if !matches!(self, Self::Symbols { .. }) {
            *self = Self::Symbols { values: Vec::new(), shape: Vec::new() };
        }
        let Self::Symbols { values, shape } = self else { unreachable!("it has just become one") };
        shape.clear();
        shape.extend_from_slice(&of);
        values
    }
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
