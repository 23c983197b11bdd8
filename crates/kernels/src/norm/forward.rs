//! Normalisation itself.
use pulp::{Simd, WithSimd};

use super::passes::{Activate, Plain, Scaled, Total};
use super::{Affine, Moments, Norm, Reach, Region, Workspace};
use crate::InstructionSet;
use crate::activation::Function;

/// Where the statistics come from.
pub(super) enum Statistics<'a> {
    /// From the data; they are written here.
    Own(&'a mut Moments),
    /// From somebody else.
    Given(&'a Moments),
}

/// What a normalisation works on.
pub(super) struct Arguments<'a> {
    pub(super) norm: &'a Norm,
    pub(super) statistics: Statistics<'a>,
    pub(super) x: &'a [f32],
    pub(super) affine: Affine<'a>,
    pub(super) shortcut: Option<&'a [f32]>,
    pub(super) y: &'a mut [f32],
}

impl Arguments<'_> {
    /// `y = after(norm(before(x)) + shortcut)`
    pub(super) fn run<F: Function, G: Function>(self, set: InstructionSet, before: F, after: G) {
        let count = self.norm.shape.len();
        assert!(self.x.len() == count && self.y.len() == count, "input and output have the layer's shape");
        assert!(self.shortcut.is_none_or(|shortcut| shortcut.len() == count), "the shortcut has the layer's shape");
        if count > 0 {
            set.run(Kernel { arguments: self, before, after });
        }
    }
}

struct Kernel<'a, F, G> {
    arguments: Arguments<'a>,
    before: F,
    after: G,
}

impl<F: Function, G: Function> WithSimd for Kernel<'_, F, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { arguments: Arguments { norm, mut statistics, x, affine, shortcut, y }, before, after } = self;
        // Statistics of a batch, once given, apply to each image on its own, which then stays in the cache.
        let shared = norm.reach == Reach::Batch && matches!(statistics, Statistics::Given(_));
        let region = if shared { norm.image() } else { norm.region() };
        let mut work = Workspace::new(region.channels);
        let size = region.pixels * region.channels;
        for (index, (x, y)) in x.chunks_exact(size).zip(y.chunks_exact_mut(size)).enumerate() {
            let first = if shared { 0 } else { index * norm.groups };
            let groups = first..first + norm.groups;
            let shortcut = shortcut.map(|shortcut| &shortcut[index * size..][..size]);
            let values = match &mut statistics {
                Statistics::Own(moments) => {
                    let moments = [&mut moments.mean[groups.clone()], &mut moments.variance[groups.clone()]];
                    measure(simd, region, before, x, y, &mut work, moments)
                }
                Statistics::Given(_) => activate(simd, region, before, x, y, &mut work),
            };
            let moments = match &statistics {
                Statistics::Own(moments) => &**moments,
                Statistics::Given(moments) => moments,
            };
            region.prepare(&mut work, &moments.mean[groups.clone()], &moments.variance[groups], affine.scale);
            scale(simd, region, values, affine.offset, shortcut, after, y, &mut work);
        }
    }
}

/// Statistics of `before(x)`; that is where the pointer points to, in `y` unless it is `x`.
#[inline(always)]
fn measure<S: Simd, F: Function>(
    simd: S,
    region: Region,
    before: F,
    x: &[f32],
    y: &mut [f32],
    work: &mut Workspace,
    moments: [&mut [f32]; 2],
) -> *const f32 {
    // SAFETY: `x` and `y` are whole regions.
    unsafe {
        if F::IDENTITY {
            region.measure(simd, &Total { x: x.as_ptr() }, x.as_ptr(), work, moments);
            return x.as_ptr();
        }
        let to = y.as_mut_ptr();
        region.measure(simd, &Activate::<_, _, 1> { source: Plain(x.as_ptr()), function: before, to }, to, work, moments);
        to
    }
}

/// The same without statistics.
#[inline(always)]
fn activate<S: Simd, F: Function>(
    simd: S,
    region: Region,
    before: F,
    x: &[f32],
    y: &mut [f32],
    work: &mut Workspace,
) -> *const f32 {
    if F::IDENTITY {
        return x.as_ptr();
    }
    let to = y.as_mut_ptr();
    // SAFETY: `x` and `y` are whole regions.
    unsafe { region.sum(simd, &Activate::<_, _, 0> { source: Plain(x.as_ptr()), function: before, to }, work) };
    to
}

/// The last pass.
#[allow(clippy::too_many_arguments, reason = "all of them are what the pass is about")]
#[inline(always)]
fn scale<S: Simd, G: Function>(
    simd: S,
    region: Region,
    values: *const f32,
    offset: &[f32],
    shortcut: Option<&[f32]>,
    after: G,
    y: &mut [f32],
    work: &mut Workspace,
) {
    let (mean, gain, offset) = (work.mean.as_ptr(), work.gain.as_ptr(), offset.as_ptr());
    let source = Scaled { x: values, mean, gain, offset, shortcut: shortcut.map(<[f32]>::as_ptr) };
    // SAFETY: `values` points to `x` or `y`, which are whole regions as is the shortcut; constants are there for all channels.
    unsafe { region.sum(simd, &Activate::<_, _, 0> { source, function: after, to: y.as_mut_ptr() }, work) };
}
