//! What happens to the gradients of the samples of a chunk around the convolutions.
use pulp::{Simd, WithSimd};

use super::forward::scale;
use crate::access::{Readable, Writable};
use crate::activation::{Function, Identity};
use crate::norm::passes::{GradientSums, StoredGradient};
use crate::norm::{Affine, Region, Sums, Workspace};

/// Statistics of consecutive regions, `[regions, groups]` each.
#[derive(Clone, Copy)]
pub(super) struct Measured<'a> {
    pub(super) mean: &'a [f32],
    pub(super) variance: &'a [f32],
}

impl<'a> Measured<'a> {
    fn of(self, index: usize, groups: usize) -> Self {
        let here = index * groups..(index + 1) * groups;
        Self { mean: &self.mean[here.clone()], variance: &self.variance[here] }
    }
}

/// One normalisation with its statistics and the gradients of its parameters.
pub(super) struct NormGradient<'a> {
    pub(super) region: Region,
    pub(super) norm: Affine<'a>,
    pub(super) measured: Measured<'a>,
    pub(super) sums: &'a mut Sums,
}

impl NormGradient<'_> {
    /// The gradient in front of the normalisation and the activation before it, of the region with this index.
    #[inline(always)]
    fn pull_back<S: Simd, F: Function>(
        &mut self,
        simd: S,
        index: usize,
        stored: StoredGradient<'_>,
        phi: F,
        to: Writable<'_>,
        work: &mut Workspace,
    ) {
        let Measured { mean, variance } = self.measured.of(index, self.region.groups);
        self.region.prepare(&mut work.constants, mean, variance, self.norm.scale);
        let sums = GradientSums { source: stored, mean: work.constants.mean[..].into() };
        self.region.sum(simd, &sums, &mut work.totals);
        self.region.add_affine_gradients(work, variance, self.norm.scale, false, self.sums);
        self.region.pull_back(simd, stored, phi, to, work);
    }
}

/// From the gradient of the result to that of `u + b`, through `GN3(phi(z + GN2(u + b)))`.
pub(super) struct OuterBack<'a, F> {
    pub(super) phi: F,
    pub(super) second: NormGradient<'a>,
    pub(super) third: NormGradient<'a>,
    /// `u + b`
    pub(super) sum: &'a [f32],
    /// `phi(z + GN2(u + b))`
    pub(super) activated: &'a [f32],
    pub(super) gradient: &'a [f32],
    /// The gradient of `z` on the direct way.
    pub(super) dz: &'a mut [f32],
    /// The gradient of `u` and of `b`.
    pub(super) du: &'a mut [f32],
    pub(super) work: &'a mut Workspace,
}

impl<F: Function> WithSimd for OuterBack<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let size = self.second.region.pixels * self.second.region.channels;
        for index in 0..self.sum.len() / size {
            let here = index * size..(index + 1) * size;
            let [sum, activated, dy] = [self.sum, self.activated, self.gradient].map(|all| Readable::from(&all[here.clone()]));
            let (dz, du) = (Writable::from(&mut self.dz[here.clone()]), Writable::from(&mut self.du[here]));
            self.third.pull_back(simd, index, StoredGradient { value: activated, dy }, self.phi, dz, self.work);
            self.second.pull_back(simd, index, StoredGradient { value: sum, dy: dz.into() }, Identity, du, self.work);
        }
    }
}

/// From the gradient of `GN1(phi(a))` to that of `a`.
pub(super) struct InnerBack<'a, F> {
    pub(super) phi: F,
    pub(super) first: NormGradient<'a>,
    /// `phi(a)`
    pub(super) activated: &'a [f32],
    /// The gradient, changed in place.
    pub(super) gradient: &'a mut [f32],
    /// Where `GN1(phi(a))` is computed again, if anybody needs it.
    pub(super) normalized: Option<&'a mut [f32]>,
    pub(super) work: &'a mut Workspace,
}

impl<F: Function> WithSimd for InnerBack<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let region = self.first.region;
        let size = region.pixels * region.channels;
        for index in 0..self.activated.len() / size {
            let here = index * size..(index + 1) * size;
            let value = Readable::from(&self.activated[here.clone()]);
            let dy = Writable::from(&mut self.gradient[here.clone()]);
            self.first.pull_back(simd, index, StoredGradient { value, dy: dy.into() }, self.phi, dy, self.work);
            let normalized = self.normalized.as_mut().map(|all| Writable::from(&mut all[here]));
            scale(simd, region, value, self.first.norm, normalized, self.work);
        }
    }
}

/// `to += x`
pub(super) struct Add<'a> {
    pub(super) x: &'a [f32],
    pub(super) to: &'a mut [f32],
}

impl WithSimd for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((x, x_rest), (to, to_rest)) = (S::as_simd_f32s(self.x), S::as_mut_simd_f32s(self.to));
        for (to, x) in to.iter_mut().zip(x) {
            *to = simd.add_f32s(*to, *x);
        }
        for (to, x) in to_rest.iter_mut().zip(x_rest) {
            *to += x;
        }
    }
}
