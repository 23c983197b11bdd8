//! The cell of DEQ-ResNet: a residual block whose fixed point is the network's state.
//!
//! With `phi` the activation and `GN` group normalisation, on states `[B, H, W, C]`:
//!
//! `g(z; u) = GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))`
//!
//! `conv_a` goes from `C` to `2C` channels and `conv_b` back, both 3x3. A solver applies the cell dozens of times to the same `u`, so the
//! weights are [prepared](PreparedCell) once, and a [step](PreparedCell::step) takes a few samples through the whole cell before the
//! next ones, so that they stay in the cache. Samples never influence one another, not even by rounding.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::activation::Activation;
//! use fedeq_kernels::cell::{CellParameters, CellScratch, PreparedCell, ResidualCell};
//! use fedeq_kernels::norm::{Affine, NormScope};
//!
//! let cell = ResidualCell { height: 4, width: 4, channels: 8, groups: 8, activation: Activation::Softplus, scope: NormScope::Plane };
//! let (weights, ones, zeros) = (vec![0.01; 16 * 8 * 9], [1.0; 16], [0.0; 16]);
//! let wide = Affine { scale: &ones, offset: &zeros };
//! let narrow = Affine { scale: &ones[..8], offset: &zeros[..8] };
//! let parameters = CellParameters { conv_a: &weights, norm_1: wide, conv_b: &weights, norm_2: narrow, norm_3: narrow };
//! let prepared = PreparedCell::new(InstructionSet::best(), &cell, parameters);
//!
//! let u: Vec<f32> = (0..cell.state_len()).map(|at| (at % 7) as f32).collect();
//! let mut z = vec![0.0; u.len()];
//! prepared.step(&u, &u, &mut z, &mut CellScratch::new());
//! // The last normalisation has left mean 0 and variance 1.
//! let mean = |f: fn(f32) -> f32| z.iter().map(|&z| f(z)).sum::<f32>() / z.len() as f32;
//! assert!(mean(|z| z).abs() < 1e-4 && (mean(|z| z * z) - 1.0).abs() < 1e-3);
//! ```
mod backward;
mod forward;
mod linearisation;
mod scratch;

use std::sync::OnceLock;

use crate::InstructionSet;
use crate::activation::{Activation, Relu, Softplus};
use crate::conv::{self, ConvWeights, Geometry};
use crate::norm::{Affine, Moments, NormScope, Region, Workspace};
use crate::size::product;
use forward::{CellOutput, CellStatistics, Inner, Outer};

pub use linearisation::{CellGradients, CellTargets, Linearisation, ParameterTargets};
pub use scratch::{CellScratch, LINE};

/// What a residual cell is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResidualCell {
    /// Rows of a state.
    pub height: usize,
    /// Columns of a state.
    pub width: usize,
    /// Channels of a state; the cell works with twice as many inside.
    pub channels: usize,
    /// Groups of every normalisation; divides the channels.
    pub groups: usize,
    /// The nonlinearity.
    pub activation: Activation,
    /// What the normalisations take their statistics over: planes or rows.
    pub scope: NormScope,
}

impl ResidualCell {
    /// How many numbers the state of one sample has.
    ///
    /// # Panics
    ///
    /// If that is more than any memory holds.
    pub fn state_len(&self) -> usize {
        product([self.height, self.width, self.channels])
    }

    fn conv_a(&self, batch: usize) -> Geometry {
        let Self { height, width, channels, .. } = *self;
        Geometry { batch, height, width, from: channels, to: 2 * channels, window: 3, stride: 1 }
    }

    fn conv_b(&self, batch: usize) -> Geometry {
        let Self { height, width, channels, .. } = *self;
        Geometry { batch, height, width, from: 2 * channels, to: channels, window: 3, stride: 1 }
    }

    /// What shares its statistics, of a state with this many channels.
    fn region(&self, channels: usize) -> Region {
        let pixels = if self.scope == NormScope::Row { self.width } else { self.height * self.width };
        Region { pixels, channels, groups: self.groups }
    }

    /// How many means a normalisation takes of one sample.
    fn statistics(&self) -> usize {
        if self.scope == NormScope::Row { self.height * self.groups } else { self.groups }
    }

    fn norm_channels(&self) -> [usize; 3] {
        [2 * self.channels, self.channels, self.channels]
    }

    fn check(&self) {
        assert!(self.scope != NormScope::Batch, "the samples of a cell do not influence one another");
        // Inside a cell there are twice as many numbers.
        product([2, self.height, self.width, self.channels]);
        assert!(self.groups > 0 && self.channels.is_multiple_of(self.groups), "the groups must divide the channels");
        assert!(self.state_len() > 0, "a state has at least one number");
    }
}

/// The parameters of a cell; convolutions as `[to, from, 3, 3]`.
#[derive(Clone, Copy, Debug)]
pub struct CellParameters<'a> {
    /// `[2C, C, 3, 3]`
    pub conv_a: &'a [f32],
    /// `[2C]` each.
    pub norm_1: Affine<'a>,
    /// `[C, 2C, 3, 3]`
    pub conv_b: &'a [f32],
    /// `[C]` each.
    pub norm_2: Affine<'a>,
    /// `[C]` each.
    pub norm_3: Affine<'a>,
}

/// A cell with its parameters, ready to be applied many times.
#[derive(Debug)]
pub struct PreparedCell {
    set: InstructionSet,
    cell: ResidualCell,
    /// `conv_a` and `conv_b` as they came, for when gradients are asked for.
    weights: [Vec<f32>; 2],
    forward: [ConvWeights; 2],
    backward: OnceLock<[ConvWeights; 2]>,
    norms: [OwnedAffine; 3],
}

#[derive(Debug)]
struct OwnedAffine {
    scale: Vec<f32>,
    offset: Vec<f32>,
}

impl OwnedAffine {
    fn new(affine: Affine, channels: usize) -> Self {
        assert!(affine.scale.len() == channels && affine.offset.len() == channels, "scale and offset have one number a channel");
        Self { scale: affine.scale.to_vec(), offset: affine.offset.to_vec() }
    }

    fn get(&self) -> Affine<'_> {
        Affine { scale: &self.scale, offset: &self.offset }
    }
}

/// Numbers in the intermediate values of a chunk of samples; with them, a step stays in the second-level cache.
const CHUNK: usize = 1 << 17;

impl PreparedCell {
    /// Brings the weights into the form that steps read.
    ///
    /// # Panics
    ///
    /// If the cell is not one, or the parameters have other shapes than it says.
    pub fn new(set: InstructionSet, cell: &ResidualCell, parameters: CellParameters) -> Self {
        let weights = [parameters.conv_a.to_vec(), parameters.conv_b.to_vec()];
        Self { weights, ..Self::for_steps(set, cell, parameters) }
    }

    /// The same for steps only, without the memory that gradients would need, until [`turn`](PreparedCell::turn) prepares for these.
    ///
    /// # Panics
    ///
    /// As [`new`](PreparedCell::new).
    pub fn for_steps(set: InstructionSet, cell: &ResidualCell, parameters: CellParameters) -> Self {
        cell.check();
        let CellParameters { conv_a, norm_1, conv_b, norm_2, norm_3 } = parameters;
        let [first, second, third] = cell.norm_channels();
        Self {
            set,
            cell: *cell,
            weights: Default::default(),
            forward: [ConvWeights::forward(set, &cell.conv_a(1), conv_a), ConvWeights::forward(set, &cell.conv_b(1), conv_b)],
            backward: OnceLock::new(),
            norms: [OwnedAffine::new(norm_1, first), OwnedAffine::new(norm_2, second), OwnedAffine::new(norm_3, third)],
        }
    }

    /// Other parameters for steps, in the same memory.
    ///
    /// # Panics
    ///
    /// If the parameters have other shapes.
    pub fn update(&mut self, parameters: CellParameters) {
        let weights = [parameters.conv_a, parameters.conv_b];
        let mut index = 0;
        match self.backward.take() {
            Some(turned) => {
                self.forward = turned.map(|turned| {
                    index += 1;
                    turned.turned(self.set, weights[index - 1])
                })
            }
            None => self.forward.iter_mut().zip(weights).for_each(|(forward, weight)| forward.update(self.set, weight)),
        }
        for (norm, from) in self.norms.iter_mut().zip([parameters.norm_1, parameters.norm_2, parameters.norm_3]) {
            norm.scale.copy_from_slice(from.scale);
            norm.offset.copy_from_slice(from.offset);
        }
    }

    /// The same cell prepared for gradients instead of steps, in the same memory. No step can be taken, nor a linearisation, until the next
    /// [`update`](PreparedCell::update).
    ///
    /// # Panics
    ///
    /// If the parameters have other shapes.
    pub fn turn(&mut self, parameters: CellParameters) {
        if self.backward.get().is_none() {
            let [conv_a, conv_b] = &mut self.forward;
            let turned = [conv_a.take().turned(self.set, parameters.conv_a), conv_b.take().turned(self.set, parameters.conv_b)];
            self.backward = OnceLock::from(turned);
        }
    }

    /// What the cell is like.
    pub fn cell(&self) -> &ResidualCell {
        &self.cell
    }

    /// `out = g(z; u)` for any number of samples.
    ///
    /// # Panics
    ///
    /// If the slices are not equally many whole states.
    pub fn step(&self, z: &[f32], u: &[f32], out: &mut [f32], scratch: &mut CellScratch) {
        self.check(&[z.len(), u.len(), out.len()]);
        let chunk = self.chunk();
        let size = chunk * self.cell.state_len();
        scratch.grow(&self.cell, chunk);
        for ((z, u), out) in z.chunks(size).zip(u.chunks(size)).zip(out.chunks_mut(size)) {
            let CellScratch { conv, wide, moments, work, .. } = scratch;
            let samples = z.len() / self.cell.state_len();
            let wide = wide.take(2 * z.len());
            let [first, second, third] = moments;
            conv::forward(self.set, &self.cell.conv_a(samples), z, &self.forward[0], wide, conv);
            self.inner(wide, first.statistics(), CellOutput::InPlace, work);
            conv::forward(self.set, &self.cell.conv_b(samples), wide, &self.forward[1], out, conv);
            let statistics = [second.statistics(), third.statistics()];
            self.outer(Middle { b: out, u, z, statistics }, CellOutput::InPlace, CellOutput::InPlace, work);
        }
    }

    /// How many samples go through the cell together.
    fn chunk(&self) -> usize {
        (CHUNK / (2 * self.cell.state_len())).max(1)
    }

    fn inner(&self, a: &mut [f32], statistics: CellStatistics, to: CellOutput, work: &mut Workspace) {
        let (region, norm) = (self.cell.region(2 * self.cell.channels), self.norms[0].get());
        match self.cell.activation {
            Activation::Relu => self.set.run(Inner { region, phi: Relu, a, norm, statistics, to, work }),
            Activation::Softplus => self.set.run(Inner { region, phi: Softplus, a, norm, statistics, to, work }),
        }
    }

    fn outer(&self, middle: Middle, activated: CellOutput, to: CellOutput, work: &mut Workspace) {
        let (region, norms) = (self.cell.region(self.cell.channels), [self.norms[1].get(), self.norms[2].get()]);
        let Middle { b, u, z, statistics } = middle;
        match self.cell.activation {
            Activation::Relu => self.set.run(Outer { region, phi: Relu, b, u, z, norms, statistics, activated, to, work }),
            Activation::Softplus => {
                self.set.run(Outer { region, phi: Softplus, b, u, z, norms, statistics, activated, to, work })
            }
        }
    }

    fn backward_weights(&self) -> &[ConvWeights; 2] {
        self.backward.get_or_init(|| {
            let [conv_a, conv_b] = &self.weights;
            [
                ConvWeights::backward(self.set, &self.cell.conv_a(1), conv_a),
                ConvWeights::backward(self.set, &self.cell.conv_b(1), conv_b),
            ]
        })
    }

    fn check(&self, lengths: &[usize]) {
        let whole = lengths[0].is_multiple_of(self.cell.state_len());
        assert!(whole && lengths.iter().all(|len| *len == lengths[0]), "all arguments are equally many whole states");
    }
}

/// What the second half of a step starts from.
struct Middle<'a> {
    /// What the second convolution gave.
    b: &'a mut [f32],
    u: &'a [f32],
    z: &'a [f32],
    statistics: [CellStatistics<'a>; 2],
}

impl Moments {
    fn statistics(&mut self) -> CellStatistics<'_> {
        CellStatistics { mean: &mut self.mean, variance: &mut self.variance }
    }
}
