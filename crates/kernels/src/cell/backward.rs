//! What happens to the gradients of the samples of a chunk around the convolutions.
use pulp::{Simd, WithSimd};

use super::forward::scaled;
use crate::activation::{Function, Identity};
use crate::norm::passes::{Activate, Known, Project};
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
pub(super) struct Layer<'a> {
    pub(super) region: Region,
    pub(super) norm: Affine<'a>,
    pub(super) measured: Measured<'a>,
    pub(super) sums: &'a mut Sums,
}

impl Layer<'_> {
    /// The gradient in front of the normalisation and the activation before it, of the region with this index.
    ///
    /// # Safety
    ///
    /// The pointers must be good for the whole region.
    #[inline(always)]
    unsafe fn pull_back<S: Simd, F: Function>(
        &mut self,
        simd: S,
        index: usize,
        known: Known,
        phi: F,
        to: *mut f32,
        work: &mut Workspace,
    ) {
        let Measured { mean, variance } = self.measured.of(index, self.region.groups);
        self.region.prepare(work, mean, variance, self.norm.scale);
        // SAFETY: as the caller guarantees.
        unsafe {
            self.region.sum(simd, &Project { behind: known, mean: work.mean.as_ptr() }, work);
            self.region.project(work, variance, self.norm.scale, false, self.sums);
            self.region.pull_back(simd, known, phi, to, work);
        }
    }
}

/// From the gradient of the result to that of `u + b`, through `GN3(phi(z + GN2(u + b)))`.
pub(super) struct OuterBack<'a, F> {
    pub(super) phi: F,
    pub(super) second: Layer<'a>,
    pub(super) third: Layer<'a>,
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
            let (sum, activated) = (self.sum[here.clone()].as_ptr(), self.activated[here.clone()].as_ptr());
            let dy = self.gradient[here.clone()].as_ptr();
            let (dz, du) = (self.dz[here.clone()].as_mut_ptr(), self.du[here].as_mut_ptr());
            // SAFETY: all pointers are to whole regions.
            unsafe {
                self.third.pull_back(simd, index, Known { value: activated, dy }, self.phi, dz, self.work);
                self.second.pull_back(simd, index, Known { value: sum, dy: dz }, Identity, du, self.work);
            }
        }
    }
}

/// From the gradient of `GN1(phi(a))` to that of `a`.
pub(super) struct InnerBack<'a, F> {
    pub(super) phi: F,
    pub(super) first: Layer<'a>,
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
            let (value, dy) = (self.activated[here.clone()].as_ptr(), self.gradient[here.clone()].as_mut_ptr());
            // SAFETY: all pointers are to whole regions.
            unsafe {
                self.first.pull_back(simd, index, Known { value, dy }, self.phi, dy, self.work);
                if let Some(normalized) = &mut self.normalized {
                    let (source, to) = (scaled(value, self.first.norm, None, self.work), normalized[here].as_mut_ptr());
                    region.sum(simd, &Activate::<_, _, 0> { source, function: Identity, to }, self.work);
                }
            }
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
