//! Normalisation itself.
use pulp::{Simd, WithSimd};

use super::passes::{Activate, Plain, Scaled, Total};
use super::{Affine, Moments, Norm, NormScope, Region, Workspace};
use crate::InstructionSet;
use crate::access::{Readable, Writable};
use crate::activation::Function;

/// Where the statistics come from.
pub(super) enum Statistics<'a> {
    /// From the data; they are written here.
    Own(&'a mut Moments),
    /// From elsewhere.
    Given(&'a Moments),
}

/// What a normalisation works on.
pub(super) struct NormForward<'a> {
    pub(super) norm: &'a Norm,
    pub(super) statistics: Statistics<'a>,
    pub(super) x: &'a [f32],
    pub(super) affine: Affine<'a>,
    pub(super) shortcut: Option<&'a [f32]>,
    pub(super) y: &'a mut [f32],
    pub(super) work: &'a mut Workspace,
}

impl NormForward<'_> {
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
    arguments: NormForward<'a>,
    before: F,
    after: G,
}

impl<F: Function, G: Function> WithSimd for Kernel<'_, F, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { arguments: NormForward { norm, mut statistics, x, affine, shortcut, y, work }, before, after } = self;
        // Statistics of a batch, once given, apply to each image on its own, which then stays in the cache.
        let shared = norm.scope == NormScope::Batch && matches!(statistics, Statistics::Given(_));
        let region = if shared { norm.image() } else { norm.region() };
        let size = region.pixels * region.channels;
        for (index, (x, y)) in x.chunks_exact(size).zip(y.chunks_exact_mut(size)).enumerate() {
            let first = if shared { 0 } else { index * norm.groups };
            let groups = first..first + norm.groups;
            let shortcut = shortcut.map(|shortcut| shortcut[index * size..][..size].into());
            let (x, y) = (Readable::from(x), Writable::from(y));
            let values = match &mut statistics {
                Statistics::Own(moments) => {
                    let moments = [&mut moments.mean[groups.clone()], &mut moments.variance[groups.clone()]];
                    measure(simd, region, before, x, y, work, moments)
                }
                Statistics::Given(_) => activate(simd, region, before, x, y, work),
            };
            let moments = match &statistics {
                Statistics::Own(moments) => &**moments,
                Statistics::Given(moments) => moments,
            };
            region.prepare(&mut work.constants, &moments.mean[groups.clone()], &moments.variance[groups], affine.scale);
            scale(simd, region, values, affine.offset, shortcut, after, y, work);
        }
    }
}

/// Statistics of `before(x)`, which is returned: in `y` unless it is `x`.
#[inline(always)]
fn measure<'a, S: Simd, F: Function>(
    simd: S,
    region: Region,
    before: F,
    x: Readable<'a>,
    y: Writable<'a>,
    work: &mut Workspace,
    moments: [&mut [f32]; 2],
) -> Readable<'a> {
    let values = if F::IDENTITY {
        region.sum(simd, &Total { x }, &mut work.totals);
        x
    } else {
        region.sum(simd, &Activate::<_, _, 1> { source: Plain(x), function: before, to: y }, &mut work.totals);
        y.into()
    };
    region.measure(simd, values, work, moments);
    values
}

/// The same without statistics.
#[inline(always)]
fn activate<'a, S: Simd, F: Function>(
    simd: S,
    region: Region,
    before: F,
    x: Readable<'a>,
    y: Writable<'a>,
    work: &mut Workspace,
) -> Readable<'a> {
    if F::IDENTITY {
        return x;
    }
    region.sum(simd, &Activate::<_, _, 0> { source: Plain(x), function: before, to: y }, &mut work.totals);
    y.into()
}

/// The last pass.
#[allow(clippy::too_many_arguments, reason = "all of them are what the pass is about")]
#[inline(always)]
fn scale<S: Simd, G: Function>(
    simd: S,
    region: Region,
    values: Readable<'_>,
    offset: &[f32],
    shortcut: Option<Readable<'_>>,
    after: G,
    y: Writable<'_>,
    work: &mut Workspace,
) {
    let source = Scaled::new(values, &work.constants, offset, shortcut);
    region.sum(simd, &Activate::<_, _, 0> { source, function: after, to: y }, &mut work.totals);
}
