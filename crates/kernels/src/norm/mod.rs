//! Normalisation: to mean 0 and variance 1 over some of the axes, then a learned scale and offset a channel.
//!
//! `y = (x - mean) / sqrt(variance + 1e-5) * scale + offset`; what the mean and the (biased) variance are taken over is the
//! [`NormScope`]. An activation before or after it, and a shortcut added in between, cost no memory of their own.
//!
//! Variances are means of squared differences from the mean, in a pass of their own: the difference of two means of squares would
//! lose all digits where the mean is large.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::activation::Activation;
//! use fedeq_kernels::norm::{Affine, BatchShape, Fusion, Norm};
//!
//! let norm = Norm::batch(BatchShape { batch: 2, height: 1, width: 1, channels: 1 }, Fusion::After(Activation::Relu));
//! let affine = Affine { scale: &[2.0], offset: &[0.5] };
//! let mut y = [0.0; 2];
//! let moments = norm.forward(InstructionSet::best(), &[1.0, 7.0], affine, None, &mut y);
//! assert_eq!((moments.mean, moments.variance), (vec![4.0], vec![9.0]));
//! assert!(y[0] == 0.0 && (y[1] - 2.5).abs() < 1e-5);
//! ```
mod backward;
mod forward;
pub(crate) mod passes;
pub(crate) mod region;

use crate::InstructionSet;
use crate::activation::{Activation, Identity, Relu, Softplus};
use crate::size::product;

pub(crate) use region::{Region, Sums, Workspace};

/// What keeps the division finite.
pub const EPSILON: f32 = 1e-5;

/// How many groups group normalisation makes of the channels.
pub const GROUPS: usize = 8;

/// What the statistics are taken over; the enum of the same name in `fedeq-models` also says which statistics and how many groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NormScope {
    /// The plane of a group of channels of one image: textbook group normalisation.
    Plane,
    /// One row of a group of channels of one image, as in the authors' code.
    Row,
    /// All planes of the batch: batch normalisation, where every channel is a group of its own.
    Batch,
}

/// Which activation is computed along with a normalisation. In the enum of the same name in `fedeq-models`, which describes networks, it also names the shortcut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// None: `norm(x) + shortcut`.
    None,
    /// `norm(phi(x)) + shortcut`.
    Before(Activation),
    /// `phi(norm(x) + shortcut)`.
    After(Activation),
}

/// The extent of a batch of images in channels-last order; vectors are images of one pixel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchShape {
    /// How many images.
    pub batch: usize,
    /// Rows of an image.
    pub height: usize,
    /// Pixels of a row.
    pub width: usize,
    /// Numbers of a pixel.
    pub channels: usize,
}

impl BatchShape {
    /// How many numbers there are in all.
    ///
    /// # Panics
    ///
    /// If that is more than any memory holds.
    pub fn len(&self) -> usize {
        product([self.batch, self.height, self.width, self.channels])
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A normalisation layer with what surrounds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Norm {
    /// What it is applied to.
    pub shape: BatchShape,
    /// How many groups of neighbouring channels share their statistics; divides the channels.
    pub groups: usize,
    /// What the statistics are taken over.
    pub scope: NormScope,
    /// The activation around it.
    pub fusion: Fusion,
}

/// The learned parameters of a normalisation, `[C]` each: the numbers; in `fedeq-models` the same name says which parameters of a network these are.
#[derive(Clone, Copy, Debug)]
pub struct Affine<'a> {
    /// What the normalised values are multiplied by.
    pub scale: &'a [f32],
    /// What is added then.
    pub offset: &'a [f32],
}

/// The gradients of the learned parameters, `[C]` each.
#[derive(Clone, Debug, PartialEq)]
pub struct AffineGradient {
    /// Of the scale.
    pub scale: Vec<f32>,
    /// Of the offset.
    pub offset: Vec<f32>,
}

/// Memory that normalisations work in: grown when first used, so that repeating one allocates nothing. One for each thread serves all of them.
#[derive(Debug, Default)]
pub struct NormScratch {
    work: Workspace,
    sums: Sums,
}

impl NormScratch {
    /// Empty.
    pub fn new() -> Self {
        Self::default()
    }

    /// Room for sums over so many channels.
    pub(crate) fn totals(&mut self, channels: usize) -> &mut [Vec<f64>; 2] {
        self.work.grow(channels);
        &mut self.work.totals
    }
}

/// Where the gradients of the learned parameters go, `[C]` each, if they are wanted.
#[derive(Debug, Default)]
pub struct AffineTargets<'a> {
    /// That of the scale.
    pub scale: Option<&'a mut [f32]>,
    /// That of the offset.
    pub offset: Option<&'a mut [f32]>,
}

/// Statistics, `[B, groups]` over planes, `[B, H, groups]` over rows and `[groups]` over a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moments {
    /// The mean.
    pub mean: Vec<f32>,
    /// The biased variance.
    pub variance: Vec<f32>,
}

impl Moments {
    /// Makes room for at least this many.
    pub(crate) fn grow(&mut self, count: usize) {
        for moments in [&mut self.mean, &mut self.variance] {
            moments.resize(moments.len().max(count), 0.0);
        }
    }
}

/// What a backward pass starts from.
#[derive(Clone, Copy, Debug)]
pub struct NormSaved<'a> {
    /// The input of the forward pass.
    pub x: &'a [f32],
    /// Its output; only needed with an activation after the normalisation, may be empty otherwise.
    pub y: &'a [f32],
    /// The statistics it used.
    pub moments: &'a Moments,
    /// Whether these were [given](Norm::apply) and not those of `x`: then no gradient flows through them.
    pub given: bool,
}

impl Norm {
    /// Group normalisation of [`GROUPS`] groups.
    pub fn group(shape: BatchShape, scope: NormScope, fusion: Fusion) -> Self {
        Self { shape, groups: GROUPS, scope, fusion }
    }

    /// Batch normalisation.
    pub fn batch(shape: BatchShape, fusion: Fusion) -> Self {
        Self { shape, groups: shape.channels, scope: NormScope::Batch, fusion }
    }

    /// Normalises `x` with its own statistics, adds a shortcut if there is one, and returns the statistics.
    ///
    /// # Panics
    ///
    /// If the lengths of the slices do not fit the shape, or the groups do not divide the channels.
    pub fn forward(&self, set: InstructionSet, x: &[f32], affine: Affine, shortcut: Option<&[f32]>, y: &mut [f32]) -> Moments {
        let mut moments = Moments::default();
        self.forward_to(set, (x, shortcut), affine, y, &mut moments, &mut NormScratch::new());
        moments
    }

    /// The same in memory that is kept: the statistics are written where others were, `x` comes with the shortcut.
    ///
    /// # Panics
    ///
    /// As [`forward`](Norm::forward).
    pub fn forward_to(
        &self,
        set: InstructionSet,
        (x, shortcut): (&[f32], Option<&[f32]>),
        affine: Affine,
        y: &mut [f32],
        moments: &mut Moments,
        scratch: &mut NormScratch,
    ) {
        self.check(x, affine);
        let count = self.regions() * self.groups;
        for moments in [&mut moments.mean, &mut moments.variance] {
            moments.clear();
            moments.resize(count, 0.0);
        }
        self.run_forward(set, forward::Statistics::Own(moments), (x, shortcut), affine, y, scratch);
    }

    /// Normalises `x` with given statistics, such as running ones, and adds the shortcut if there is one.
    ///
    /// # Panics
    ///
    /// As [`forward`](Norm::forward).
    pub fn apply(
        &self,
        set: InstructionSet,
        (x, shortcut): (&[f32], Option<&[f32]>),
        affine: Affine,
        moments: &Moments,
        y: &mut [f32],
        scratch: &mut NormScratch,
    ) {
        self.check(x, affine);
        self.check_moments(moments);
        self.run_forward(set, forward::Statistics::Given(moments), (x, shortcut), affine, y, scratch);
    }

    /// The gradients of the input, of the shortcut if `d_shortcut` is there, and of the parameters, given that of the output.
    ///
    /// # Panics
    ///
    /// As [`forward`](Norm::forward).
    pub fn backward(
        &self,
        set: InstructionSet,
        saved: NormSaved,
        affine: Affine,
        dy: &[f32],
        dx: &mut [f32],
        d_shortcut: Option<&mut [f32]>,
    ) -> AffineGradient {
        self.check(saved.x, affine);
        let zeros = || vec![0.0; self.shape.channels];
        let mut found = AffineGradient { scale: zeros(), offset: zeros() };
        let to = AffineTargets { scale: Some(&mut found.scale), offset: Some(&mut found.offset) };
        self.backward_to(set, saved, affine, dy, (dx, d_shortcut), to, &mut NormScratch::new());
        found
    }

    /// The same, as far as they are wanted, to where they are wanted.
    ///
    /// # Panics
    ///
    /// As [`forward`](Norm::forward), or if there is not a place for every number of what is wanted.
    #[allow(clippy::too_many_arguments, reason = "all of them are what the pass is about")]
    pub fn backward_to(
        &self,
        set: InstructionSet,
        saved: NormSaved,
        affine: Affine,
        dy: &[f32],
        (dx, d_shortcut): (&mut [f32], Option<&mut [f32]>),
        to: AffineTargets<'_>,
        scratch: &mut NormScratch,
    ) {
        self.check(saved.x, affine);
        self.check_moments(saved.moments);
        scratch.work.grow(self.shape.channels);
        scratch.sums.reset(self.shape.channels);
        self.run_backward(set, backward::NormBackward { norm: self, saved, affine, dy, dx, d_shortcut, scratch });
        for (to, sums) in [(to.scale, &scratch.sums.scale), (to.offset, &scratch.sums.offset)] {
            if let Some(to) = to {
                sums_to(sums, to);
            }
        }
    }

    fn run_backward(&self, set: InstructionSet, arguments: backward::NormBackward<'_>) {
        match self.fusion {
            Fusion::None => arguments.run(set, backward::Before(Identity)),
            Fusion::Before(Activation::Relu) => arguments.run(set, backward::Before(Relu)),
            Fusion::Before(Activation::Softplus) => arguments.run(set, backward::Before(Softplus)),
            Fusion::After(Activation::Relu) => arguments.run(set, backward::After(Relu)),
            Fusion::After(Activation::Softplus) => arguments.run(set, backward::After(Softplus)),
        }
    }

    fn run_forward(
        &self,
        set: InstructionSet,
        statistics: forward::Statistics,
        (x, shortcut): (&[f32], Option<&[f32]>),
        affine: Affine,
        y: &mut [f32],
        scratch: &mut NormScratch,
    ) {
        scratch.work.grow(self.shape.channels);
        let arguments = forward::NormForward { norm: self, statistics, x, affine, shortcut, y, work: &mut scratch.work };
        match self.fusion {
            Fusion::None => arguments.run(set, Identity, Identity),
            Fusion::Before(Activation::Relu) => arguments.run(set, Relu, Identity),
            Fusion::Before(Activation::Softplus) => arguments.run(set, Softplus, Identity),
            Fusion::After(Activation::Relu) => arguments.run(set, Identity, Relu),
            Fusion::After(Activation::Softplus) => arguments.run(set, Identity, Softplus),
        }
    }

    /// How many regions have statistics of their own.
    fn regions(&self) -> usize {
        match self.scope {
            NormScope::Plane => self.shape.batch,
            NormScope::Row => self.shape.batch * self.shape.height,
            NormScope::Batch => 1,
        }
    }

    /// A region with statistics of its own.
    fn region(&self) -> Region {
        let image = self.image();
        match self.scope {
            NormScope::Plane => image,
            NormScope::Row => Region { pixels: self.shape.width, ..image },
            NormScope::Batch => Region { pixels: self.shape.batch * image.pixels, ..image },
        }
    }

    /// One image.
    fn image(&self) -> Region {
        Region { pixels: self.shape.height * self.shape.width, channels: self.shape.channels, groups: self.groups }
    }

    /// Before anything is allocated for them: the sizes are those of numbers that exist.
    fn check(&self, x: &[f32], affine: Affine) {
        let channels = self.shape.channels;
        assert_eq!(x.len(), self.shape.len(), "input and output have the layer's shape");
        let groups = 1..=channels.max(1);
        assert!(groups.contains(&self.groups) && channels.is_multiple_of(self.groups), "the groups must divide the channels");
        assert!(affine.scale.len() == channels && affine.offset.len() == channels, "scale and offset have one number a channel");
    }

    fn check_moments(&self, moments: &Moments) {
        let count = self.regions() * self.groups;
        assert!(moments.mean.len() == count && moments.variance.len() == count, "there is a moment for every region and group");
    }
}

/// Sums as the numbers that they are kept in.
pub(crate) fn sums_to(sums: &[f64], to: &mut [f32]) {
    assert_eq!(sums.len(), to.len(), "a gradient for every channel");
    to.iter_mut().zip(sums).for_each(|(to, sum)| *to = *sum as f32);
}
