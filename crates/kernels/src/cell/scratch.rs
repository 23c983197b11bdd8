//! Memory that cells work in.
use crate::buffer::Buffer;
use crate::conv;
use crate::norm::{Moments, Sums, Workspace};

use super::{Linearisation, ResidualCell};

/// The numbers of a cache line.
pub const LINE: usize = crate::buffer::LINE;

/// Memory that cells work in: grown at the first step, then reused, so that repeating a step allocates nothing.
#[derive(Debug, Default)]
pub struct CellScratch {
    pub(super) conv: conv::ConvScratch,
    /// Twice the channels of a chunk of samples.
    pub(super) wide: Buffer,
    /// The channels of a chunk of samples.
    pub(super) narrow: Buffer,
    /// What the gradients of the weights are made of, for all samples: `GN1(...)` and the gradient of `conv_a(z)`.
    pub(super) batch: [Vec<f32>; 2],
    /// Statistics of a chunk for the three normalisations.
    pub(super) moments: [Moments; 3],
    pub(super) work: Workspace,
    /// Gradients of scales and offsets.
    pub(super) sums: [Sums; 3],
    /// Memory for the next linearisation.
    pub(super) spare: Linearisation,
}

impl CellScratch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory that the gradients of a batch need besides: for whoever uses it for something else between them, [`LINE`] numbers more than twice those of the states each.
    pub fn memory(&mut self) -> [&mut Vec<f32>; 2] {
        self.batch.each_mut()
    }

    /// What convolutions work in, which serves those outside of cells too.
    pub fn conv(&mut self) -> &mut conv::ConvScratch {
        &mut self.conv
    }

    /// Takes the memory of a linearisation that is not needed any more for the next one; memory fresh from the system costs a third of a
    /// step.
    pub fn recycle(&mut self, linearisation: Linearisation) {
        self.spare = linearisation;
    }

    /// Makes room for the statistics of some samples of a cell and what is known of its channels.
    pub(super) fn grow(&mut self, cell: &ResidualCell, samples: usize) {
        let count = samples * cell.statistics();
        for moments in &mut self.moments {
            moments.grow(count);
        }
        self.work.grow(2 * cell.channels);
        for (sums, channels) in self.sums.iter_mut().zip(cell.norm_channels()) {
            sums.reset(channels);
        }
    }
}
