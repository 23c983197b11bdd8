//! The gradients of a normalisation.
use pulp::{Simd, WithSimd};

use super::passes::{ActivatedAfter, ActivatedBefore, Known, Project};
use super::{Affine, AffineGradient, Norm, Region, Saved, Sums, Workspace};
use crate::InstructionSet;
use crate::activation::{Function, Identity};

/// What the backward pass works on.
pub(super) struct Arguments<'a> {
    pub(super) norm: &'a Norm,
    pub(super) saved: Saved<'a>,
    pub(super) affine: Affine<'a>,
    pub(super) dy: &'a [f32],
    pub(super) dx: &'a mut [f32],
    pub(super) d_shortcut: Option<&'a mut [f32]>,
}

/// An activation before the normalisation.
pub(super) struct Before<F>(pub(super) F);

/// An activation after the normalisation.
pub(super) struct After<F>(pub(super) F);

/// One region of all that is read and written.
pub(super) struct Part<'a> {
    region: Region,
    x: &'a [f32],
    y: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    d_shortcut: Option<&'a mut [f32]>,
}

/// The two passes over a region: sums over the pixels, then the gradients.
pub(super) trait Passes {
    const NEEDS_OUTPUT: bool;

    /// Leaves the sums in the workspace.
    fn project<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace);

    /// Writes the gradient of the input.
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace);
}

impl<F: Function> Passes for Before<F> {
    const NEEDS_OUTPUT: bool = false;

    #[inline(always)]
    fn project<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        let (x, dy, kept, mean) = (part.x.as_ptr(), part.dy.as_ptr(), part.dx.as_mut_ptr(), work.mean.as_ptr());
        if let Some(d_shortcut) = &mut part.d_shortcut {
            d_shortcut.copy_from_slice(part.dy);
        }
        // SAFETY: the slices of a part are whole regions.
        unsafe {
            if F::IDENTITY {
                part.region.sum(simd, &Project { behind: Known { value: x, dy }, mean }, work);
            } else {
                part.region.sum(simd, &Project { behind: ActivatedBefore { function: self.0, x, dy, kept }, mean }, work);
            }
        }
    }

    #[inline(always)]
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        let dx = part.dx.as_mut_ptr();
        // The first pass left the activated values there.
        let value = if F::IDENTITY { part.x.as_ptr() } else { dx.cast_const() };
        // SAFETY: the slices of a part are whole regions.
        unsafe { part.region.pull_back(simd, Known { value, dy: part.dy.as_ptr() }, self.0, dx, work) };
    }
}

impl<F: Function> Passes for After<F> {
    const NEEDS_OUTPUT: bool = true;

    #[inline(always)]
    fn project<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        let (x, y, dy, kept) = (part.x.as_ptr(), part.y.as_ptr(), part.dy.as_ptr(), part.dx.as_mut_ptr());
        let shortcut = part.d_shortcut.as_mut().map(|shortcut| shortcut.as_mut_ptr());
        let behind = ActivatedAfter { function: self.0, x, y, dy, kept, shortcut };
        // SAFETY: the slices of a part are whole regions.
        unsafe { part.region.sum(simd, &Project { behind, mean: work.mean.as_ptr() }, work) };
    }

    #[inline(always)]
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        let dx = part.dx.as_mut_ptr();
        // The first pass left the gradient in front of the activation there. SAFETY: the slices of a part are whole regions.
        unsafe { part.region.pull_back(simd, Known { value: part.x.as_ptr(), dy: dx }, Identity, dx, work) };
    }
}

impl Arguments<'_> {
    pub(super) fn run<P: Passes>(self, set: InstructionSet, passes: P) -> AffineGradient {
        let count = self.norm.shape.len();
        assert!([self.saved.x.len(), self.dy.len(), self.dx.len()] == [count; 3], "all slices have the layer's shape");
        assert!(!P::NEEDS_OUTPUT || self.saved.y.len() == count, "the output has the layer's shape");
        assert!(self.d_shortcut.as_ref().is_none_or(|shortcut| shortcut.len() == count), "the shortcut has the layer's shape");
        if count == 0 {
            return Sums::new(self.norm.shape.channels).into();
        }
        set.run(Kernel { arguments: self, passes })
    }
}

struct Kernel<'a, P> {
    arguments: Arguments<'a>,
    passes: P,
}

impl<P: Passes> WithSimd for Kernel<'_, P> {
    type Output = AffineGradient;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> AffineGradient {
        let Self { arguments: Arguments { norm, saved, affine, dy, dx, mut d_shortcut }, passes } = self;
        let region = norm.region();
        let size = region.pixels * region.channels;
        let (mut work, mut sums) = (Workspace::new(region.channels), Sums::new(region.channels));
        for (index, dx) in dx.chunks_exact_mut(size).enumerate() {
            let here = index * size..(index + 1) * size;
            let groups = index * norm.groups..(index + 1) * norm.groups;
            let (mean, variance) = (&saved.moments.mean[groups.clone()], &saved.moments.variance[groups]);
            let y = if P::NEEDS_OUTPUT { &saved.y[here.clone()] } else { &[] };
            let d_shortcut = d_shortcut.as_mut().map(|shortcut| &mut shortcut[here.clone()]);
            let mut part = Part { region, x: &saved.x[here.clone()], y, dy: &dy[here], dx, d_shortcut };
            region.prepare(&mut work, mean, variance, affine.scale);
            passes.project(simd, &mut part, &mut work);
            region.project(&mut work, variance, affine.scale, saved.given, &mut sums);
            passes.pull_back(simd, &mut part, &mut work);
        }
        sums.into()
    }
}
