//! What happens to the samples of a chunk around the convolutions of a step.
use pulp::{Simd, WithSimd};

use crate::access::{Readable, Writable};
use crate::activation::{Function, Identity};
use crate::norm::passes::{Activate, Plain, Scaled, Sum};
use crate::norm::{Affine, Region, Workspace};

/// Where a result goes.
pub(super) enum CellOutput<'a> {
    /// Where its last intermediate value was, which is not needed any more.
    InPlace,
    /// To memory of its own.
    To(&'a mut [f32]),
    /// It is not needed.
    Nowhere,
}

impl CellOutput<'_> {
    /// Where the result of the region from `at` on goes, which may be where the value is.
    fn at<'a>(&'a mut self, at: usize, value: Writable<'a>) -> Option<Writable<'a>> {
        match self {
            Self::InPlace => Some(value),
            Self::To(to) => Some(Writable::from(&mut to[at..][..value.len()])),
            Self::Nowhere => None,
        }
    }
}

/// CellStatistics of consecutive regions, `[regions, groups]` each.
pub(super) struct CellStatistics<'a> {
    pub(super) mean: &'a mut [f32],
    pub(super) variance: &'a mut [f32],
}

impl CellStatistics<'_> {
    fn of(&mut self, index: usize, groups: usize) -> [&mut [f32]; 2] {
        let here = index * groups..(index + 1) * groups;
        [&mut self.mean[here.clone()], &mut self.variance[here]]
    }
}

/// `GN1(phi(a))` of what the first convolution gave.
pub(super) struct Inner<'a, F> {
    pub(super) region: Region,
    pub(super) phi: F,
    /// `a`, and `phi(a)` afterwards.
    pub(super) a: &'a mut [f32],
    pub(super) norm: Affine<'a>,
    pub(super) statistics: CellStatistics<'a>,
    pub(super) to: CellOutput<'a>,
    pub(super) work: &'a mut Workspace,
}

impl<F: Function> WithSimd for Inner<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let region = self.region;
        let size = region.pixels * region.channels;
        for (index, a) in self.a.chunks_exact_mut(size).enumerate() {
            let a = Writable::from(a);
            let to = self.to.at(index * size, a);
            let moments = self.statistics.of(index, region.groups);
            let activate = Activate::<_, _, 1> { source: Plain(a.into()), function: self.phi, to: a };
            region.sum(simd, &activate, &mut self.work.totals);
            measure(simd, region, a.into(), self.norm, moments, self.work);
            scale(simd, region, a.into(), self.norm, to, self.work);
        }
    }
}

/// `GN3(phi(z + GN2(u + b)))` of what the second convolution gave.
pub(super) struct Outer<'a, F> {
    pub(super) region: Region,
    pub(super) phi: F,
    /// `b`, and `u + b` afterwards, unless the rest happens in place too.
    pub(super) b: &'a mut [f32],
    pub(super) u: &'a [f32],
    pub(super) z: &'a [f32],
    pub(super) norms: [Affine<'a>; 2],
    pub(super) statistics: [CellStatistics<'a>; 2],
    /// Where `phi(z + GN2(u + b))` is kept.
    pub(super) activated: CellOutput<'a>,
    pub(super) to: CellOutput<'a>,
    pub(super) work: &'a mut Workspace,
}

impl<F: Function> WithSimd for Outer<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let region = self.region;
        let size = region.pixels * region.channels;
        let parts = self.b.chunks_exact_mut(size).zip(self.u.chunks_exact(size)).zip(self.z.chunks_exact(size));
        for (index, ((b, u), z)) in parts.enumerate() {
            let (b, u, z) = (Writable::from(b), u.into(), Readable::from(z));
            let activated = self.activated.at(index * size, b).unwrap_or(b);
            let to = self.to.at(index * size, activated);
            let [second, third] = &mut self.statistics;
            let (second, third) = (second.of(index, region.groups), third.of(index, region.groups));
            let add = Activate::<_, _, 1> { source: Sum { a: b.into(), b: u }, function: Identity, to: b };
            region.sum(simd, &add, &mut self.work.totals);
            measure(simd, region, b.into(), self.norms[0], second, self.work);
            let source = Scaled::new(b.into(), &self.work.constants, self.norms[0].offset, Some(z));
            let activate = Activate::<_, _, 1> { source, function: self.phi, to: activated };
            region.sum(simd, &activate, &mut self.work.totals);
            measure(simd, region, activated.into(), self.norms[1], third, self.work);
            scale(simd, region, activated.into(), self.norms[1], to, self.work);
        }
    }
}

/// CellStatistics of the values whose sums a first pass over a region left, with everything ready for scaling them.
#[inline(always)]
fn measure<S: Simd>(
    simd: S,
    region: Region,
    values: Readable<'_>,
    norm: Affine,
    [mean, variance]: [&mut [f32]; 2],
    work: &mut Workspace,
) {
    region.measure(simd, values, work, [mean, variance]);
    region.prepare(&mut work.constants, mean, variance, norm.scale);
}

/// `(values - mean) gain + offset`, if anybody needs it.
#[inline(always)]
pub(super) fn scale<S: Simd>(
    simd: S,
    region: Region,
    values: Readable<'_>,
    norm: Affine,
    to: Option<Writable<'_>>,
    work: &mut Workspace,
) {
    let Some(to) = to else { return };
    let source = Scaled::new(values, &work.constants, norm.offset, None);
    region.sum(simd, &Activate::<_, _, 0> { source, function: Identity, to }, &mut work.totals);
}
