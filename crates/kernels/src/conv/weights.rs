//! Weights, prepared once and used many times.
use super::{Geometry, patches, winograd};
use crate::InstructionSet;
use crate::buffer::Buffer;

/// How a convolution is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Winograd's `F(4x4, 3x3)`: a quarter of the multiplications.
    Winograd,
    /// A matrix product with what lies under each window.
    Patches,
}

impl Way {
    /// The faster one, as measured.
    pub(super) fn of(geometry: &Geometry) -> Self {
        // Below that the transforms cost more than they save, and so they do in tiles that are mostly outside of the image.
        let enough_channels = geometry.from >= 3;
        let tiles = geometry.height.div_ceil(4).saturating_mul(geometry.width.div_ceil(4));
        let enough_pixels = tiles.saturating_mul(16) <= geometry.height.saturating_mul(geometry.width).saturating_mul(3);
        let possible = geometry.window == 3 && geometry.stride == 1;
        if possible && enough_channels && enough_pixels { Self::Winograd } else { Self::Patches }
    }

    /// Brings weights into the order its inner loop reads them.
    pub(super) fn prepare(
        self,
        set: InstructionSet,
        geometry: &Geometry,
        direction: Direction,
        weight: &[f32],
        data: &mut Buffer,
    ) {
        match (self, direction) {
            (Self::Winograd, direction) => winograd::prepare(set, geometry, direction, weight, data),
            (Self::Patches, Direction::Forward) => patches::prepare_forward(set, geometry, weight, data),
            (Self::Patches, Direction::Backward) => patches::prepare_backward(set, geometry, weight, data),
        }
    }
}

/// What the weights are prepared for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forward,
    Backward,
}

/// The weights of a convolution in the order its inner loop reads them.
#[derive(Clone, Debug)]
pub struct ConvWeights {
    pub(super) geometry: Geometry,
    pub(super) direction: Direction,
    pub(super) way: Way,
    lanes: usize,
    data: Buffer,
}

impl ConvWeights {
    /// Weights `[to, from, window, window]` for [`forward`](super::forward); the batch may be another there.
    ///
    /// # Panics
    ///
    /// If there are not [`Geometry::weight_len`] numbers.
    pub fn forward(set: InstructionSet, geometry: &Geometry, weight: &[f32]) -> Self {
        Self::prepared(set, geometry, weight, Direction::Forward)
    }

    /// Weights `[to, from, window, window]` for [`input_gradient`](super::input_gradient): flipped and transposed.
    ///
    /// # Panics
    ///
    /// If there are not [`Geometry::weight_len`] numbers.
    pub fn backward(set: InstructionSet, geometry: &Geometry, weight: &[f32]) -> Self {
        Self::prepared(set, geometry, weight, Direction::Backward)
    }

    fn prepared(set: InstructionSet, geometry: &Geometry, weight: &[f32], direction: Direction) -> Self {
        let (way, lanes) = (Way::of(geometry), set.lanes());
        let mut weights = Self { geometry: *geometry, direction, way, lanes, data: Buffer::default() };
        weights.update(set, weight);
        weights
    }

    /// Prepares other weights for the same convolution and purpose, in the same memory.
    ///
    /// # Panics
    ///
    /// If there are not [`Geometry::weight_len`] numbers, or if the instructions are others.
    pub fn update(&mut self, set: InstructionSet, weight: &[f32]) {
        assert_eq!(weight.len(), self.geometry.weight_len(), "numbers in the weights");
        assert_eq!(set.lanes(), self.lanes, "weights are prepared for one instruction set");
        self.way.prepare(set, &self.geometry, self.direction, weight, &mut self.data);
    }

    /// The same memory with weights prepared for the other purpose: [`forward`](super::forward) or
    /// [`input_gradient`](super::input_gradient).
    pub(crate) fn turned(mut self, set: InstructionSet, weight: &[f32]) -> Self {
        self.direction = match self.direction {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        };
        self.update(set, weight);
        self
    }

    /// The same weights, whose memory is gone from here.
    pub(crate) fn take(&mut self) -> Self {
        let data = std::mem::take(&mut self.data);
        Self { data, ..self.clone() }
    }

    pub(super) fn data(&self) -> &[f32] {
        self.data.all()
    }

    pub(super) fn check(&self, set: InstructionSet, geometry: &Geometry, direction: Direction) {
        assert!(self.geometry.fits(geometry), "weights prepared for {:?}, used for {geometry:?}", self.geometry);
        assert_eq!(self.direction, direction, "what the weights are prepared for");
        assert_eq!(set.lanes(), self.lanes, "weights are prepared for one instruction set");
    }
}
