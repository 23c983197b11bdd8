//! The gradients of a normalisation.
use pulp::{Simd, WithSimd};

use super::passes::{ActivatedAfter, ActivatedBefore, GradientSums, StoredGradient};
use super::{Affine, Norm, NormSaved, NormScratch, Region, Workspace};
use crate::InstructionSet;
use crate::access::{Readable, Writable};
use crate::activation::{Function, Identity};

/// What the backward pass works on.
pub(super) struct NormBackward<'a> {
    pub(super) norm: &'a Norm,
    pub(super) saved: NormSaved<'a>,
    pub(super) affine: Affine<'a>,
    pub(super) dy: &'a [f32],
    pub(super) dx: &'a mut [f32],
    pub(super) d_shortcut: Option<&'a mut [f32]>,
    /// With sums of zero, which become those of the affine gradients.
    pub(super) scratch: &'a mut NormScratch,
}

/// An activation before the normalisation.
pub(super) struct Before<F>(pub(super) F);

/// An activation after the normalisation.
pub(super) struct After<F>(pub(super) F);

/// One region of all that is read and written.
pub(super) struct Part<'a> {
    region: Region,
    x: Readable<'a>,
    /// Nothing where it is not needed.
    y: Readable<'a>,
    dy: &'a [f32],
    dx: Writable<'a>,
    d_shortcut: Option<&'a mut [f32]>,
}

/// The two passes over a region: sums over the pixels, then the gradients.
pub(super) trait Passes {
    const NEEDS_OUTPUT: bool;

    /// Leaves the sums in the workspace.
    fn sum<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace);

    /// Writes the gradient of the input.
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace);
}

impl<F: Function> Passes for Before<F> {
    const NEEDS_OUTPUT: bool = false;

    #[inline(always)]
    fn sum<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        if let Some(d_shortcut) = &mut part.d_shortcut {
            d_shortcut.copy_from_slice(part.dy);
        }
        let &mut Part { region, x, dy, dx, .. } = part;
        let (mean, dy) = (work.constants.mean[..].into(), dy.into());
        if F::IDENTITY {
            region.sum(simd, &GradientSums { source: StoredGradient { value: x, dy }, mean }, &mut work.totals);
        } else {
            let source = ActivatedBefore { function: self.0, x, dy, kept: dx };
            region.sum(simd, &GradientSums { source, mean }, &mut work.totals);
        }
    }

    #[inline(always)]
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        // The first pass left the activated values in the gradient's memory.
        let value = if F::IDENTITY { part.x } else { part.dx.into() };
        part.region.pull_back(simd, StoredGradient { value, dy: part.dy.into() }, self.0, part.dx, work);
    }
}

impl<F: Function> Passes for After<F> {
    const NEEDS_OUTPUT: bool = true;

    #[inline(always)]
    fn sum<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        let shortcut = part.d_shortcut.as_deref_mut().map(Writable::from);
        let (x, y, dy, kept) = (part.x, part.y, part.dy.into(), part.dx);
        let source = ActivatedAfter { function: self.0, x, y, dy, kept, shortcut };
        part.region.sum(simd, &GradientSums { source, mean: work.constants.mean[..].into() }, &mut work.totals);
    }

    #[inline(always)]
    fn pull_back<S: Simd>(&self, simd: S, part: &mut Part, work: &mut Workspace) {
        // The first pass left the gradient in front of the activation there.
        part.region.pull_back(simd, StoredGradient { value: part.x, dy: part.dx.into() }, Identity, part.dx, work);
    }
}

impl NormBackward<'_> {
    pub(super) fn run<P: Passes>(self, set: InstructionSet, passes: P) {
        let count = self.norm.shape.len();
        assert!([self.saved.x.len(), self.dy.len(), self.dx.len()] == [count; 3], "all slices have the layer's shape");
        assert!(!P::NEEDS_OUTPUT || self.saved.y.len() == count, "the output has the layer's shape");
        assert!(self.d_shortcut.as_ref().is_none_or(|shortcut| shortcut.len() == count), "the shortcut has the layer's shape");
        if count > 0 {
            set.run(Kernel { arguments: self, passes });
        }
    }
}

struct Kernel<'a, P> {
    arguments: NormBackward<'a>,
    passes: P,
}

impl<P: Passes> WithSimd for Kernel<'_, P> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { arguments: NormBackward { norm, saved, affine, dy, dx, mut d_shortcut, scratch }, passes } = self;
        let region = norm.region();
        let size = region.pixels * region.channels;
        let NormScratch { work, sums } = scratch;
        for (index, dx) in dx.chunks_exact_mut(size).enumerate() {
            let here = index * size..(index + 1) * size;
            let groups = index * norm.groups..(index + 1) * norm.groups;
            let (mean, variance) = (&saved.moments.mean[groups.clone()], &saved.moments.variance[groups]);
            let y = if P::NEEDS_OUTPUT { &saved.y[here.clone()] } else { &[] };
            let d_shortcut = d_shortcut.as_mut().map(|shortcut| &mut shortcut[here.clone()]);
            let (x, y, dx) = (saved.x[here.clone()].into(), y.into(), dx.into());
            let mut part = Part { region, x, y, dy: &dy[here], dx, d_shortcut };
            region.prepare(&mut work.constants, mean, variance, affine.scale);
            passes.sum(simd, &mut part, work);
            region.add_affine_gradients(work, variance, affine.scale, saved.given, sums);
            passes.pull_back(simd, &mut part, work);
        }
    }
}
