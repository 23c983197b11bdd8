//! Convolutions and their gradients, channels last.
//!
//! `y[b, i, j, o] = sum w[o, c, u, v] x[b, i s + u - p, j s + v - p, c]`: 3x3 windows at stride one by Winograd's `F(4x4, 3x3)`, all others
//! as a product with gathered patches. Weights are prepared once ([`ConvWeights`]) and used many times, since an equilibrium solver applies
//! the same convolution again and again.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::conv::{self, ConvScratch, ConvWeights, Geometry};
//!
//! let set = InstructionSet::best();
//! let geometry = Geometry { batch: 2, height: 5, width: 5, from: 1, to: 1, window: 3, stride: 1 };
//! let blur = ConvWeights::forward(set, &geometry, &[1.0; 9]);
//! let (x, mut y) = (vec![1.0; geometry.input_len()], vec![0.0; geometry.output_len()]);
//! conv::forward(set, &geometry, &x, &blur, &mut y, &mut ConvScratch::new());
//! assert_eq!((y[0], y[12]), (4.0, 9.0));
//! ```
mod gather;
mod geometry;
mod panels;
mod patches;
mod scratch;
mod weights;
mod winograd;

pub use geometry::Geometry;
pub use scratch::ConvScratch;
pub use weights::ConvWeights;

use crate::InstructionSet;
use weights::{Direction, Way};

/// `y = x * w`; what was in `y` is overwritten.
///
/// # Panics
///
/// If a slice has the wrong length, or if the weights were not prepared by [`ConvWeights::forward`] for this geometry and these instructions.
pub fn forward(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    weights: &ConvWeights,
    y: &mut [f32],
    scratch: &mut ConvScratch,
) {
    weights.check(set, geometry, Direction::Forward);
    check(geometry, x, y);
    Pass { set, geometry, direction: Direction::Forward }.run(weights.way, x, weights.data(), y, scratch);
}

/// The same with weights `[to, from, window, window]` that are not prepared and not used again.
///
/// # Panics
///
/// If a slice has the wrong length.
pub fn forward_once(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    weight: &[f32],
    y: &mut [f32],
    scratch: &mut ConvScratch,
) {
    check(geometry, x, y);
    Pass { set, geometry, direction: Direction::Forward }.run_once(x, weight, y, scratch);
}

/// The gradient in `x` of `<dy, x * w>`; what was in `dx` is overwritten.
///
/// # Panics
///
/// If a slice has the wrong length, or if the weights were not prepared by [`ConvWeights::backward`] for this geometry and these instructions.
pub fn input_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    dy: &[f32],
    weights: &ConvWeights,
    dx: &mut [f32],
    scratch: &mut ConvScratch,
) {
    weights.check(set, geometry, Direction::Backward);
    check(geometry, dx, dy);
    Pass { set, geometry, direction: Direction::Backward }.run(weights.way, dy, weights.data(), dx, scratch);
}

/// The same with weights `[to, from, window, window]` that are not prepared and not used again.
///
/// # Panics
///
/// If a slice has the wrong length.
pub fn input_gradient_once(
    set: InstructionSet,
    geometry: &Geometry,
    dy: &[f32],
    weight: &[f32],
    dx: &mut [f32],
    scratch: &mut ConvScratch,
) {
    check(geometry, dx, dy);
    Pass { set, geometry, direction: Direction::Backward }.run_once(dy, weight, dx, scratch);
}

/// A convolution in one of its directions: from inputs to outputs, or from gradients of outputs to those of inputs. The geometry is that of the forward direction.
struct Pass<'a> {
    set: InstructionSet,
    geometry: &'a Geometry,
    direction: Direction,
}

impl Pass<'_> {
    fn run(&self, way: Way, from: &[f32], prepared: &[f32], to: &mut [f32], scratch: &mut ConvScratch) {
        let &Self { set, geometry, direction } = self;
        match (way, direction) {
            (Way::Winograd, Direction::Forward) => winograd::convolve(set, geometry, from, prepared, to, scratch),
            (Way::Winograd, Direction::Backward) => winograd::convolve(set, &geometry.reversed(), from, prepared, to, scratch),
            (Way::Patches, Direction::Forward) => patches::forward(set, geometry, from, prepared, to, scratch),
            (Way::Patches, Direction::Backward) => patches::input_gradient(set, geometry, from, prepared, to, scratch),
        }
    }

    /// Prepares the weights on the way, in memory that is used again.
    fn run_once(&self, from: &[f32], weight: &[f32], to: &mut [f32], scratch: &mut ConvScratch) {
        let &Self { set, geometry, direction } = self;
        assert_eq!(weight.len(), geometry.weight_len(), "numbers in the weights");
        let way = Way::of(geometry);
        if way == Way::Winograd && winograd::goes_by_pieces(geometry) {
            return winograd::convolve_once(set, geometry, direction, from, weight, to, scratch);
        }
        let mut prepared = std::mem::take(&mut scratch.prepared);
        way.prepare(set, geometry, direction, weight, &mut prepared);
        self.run(way, from, prepared.all(), to, scratch);
        scratch.prepared = prepared;
    }
}

/// The gradient in `w` of `<dy, x * w>`, as `[to, from, window, window]`; what was in `dw` is overwritten.
///
/// # Panics
///
/// If a slice has the wrong length.
pub fn weight_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut ConvScratch,
) {
    check(geometry, x, dy);
    assert_eq!(dw.len(), geometry.weight_len(), "numbers in the gradient of the weights");
    match Way::of(geometry) {
        Way::Winograd => winograd::weight_gradient(set, geometry, x, dy, dw, scratch),
        Way::Patches => patches::weight_gradient(set, geometry, x, dy, dw, scratch),
    }
}

fn check(geometry: &Geometry, input: &[f32], output: &[f32]) {
    assert_eq!(input.len(), geometry.input_len(), "numbers in the input or its gradient");
    assert_eq!(output.len(), geometry.output_len(), "numbers in the output or its gradient");
}
