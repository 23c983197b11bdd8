//! The passes over the pixels that normalisations and their gradients are made of.
//!
//! Passes hold pointers and not slices because most of them work in place, on the data they read.
use pulp::{MemMask, Simd};

use crate::activation::Function;
use crate::gemm::{load, store};
use crate::instructions::multiply_add;
use crate::sweep::Pass;

/// Where a pass reads a vector that it then activates.
pub(crate) trait Source<S: Simd> {
    /// What is the same at all pixels for a vector of channels.
    type Constants: Copy;

    /// Loads the constants of the channels from `channel` on.
    ///
    /// # Safety
    ///
    /// As for [`Pass::constants`].
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> Self::Constants;

    /// The vector at `at`.
    ///
    /// # Safety
    ///
    /// As for [`Pass::visit`].
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: Self::Constants) -> S::f32s;
}

/// `x`, read as it is.
#[derive(Clone, Copy)]
pub(crate) struct Plain(pub(crate) *const f32);

impl<S: Simd> Source<S> for Plain {
    type Constants = ();

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): ()) -> S::f32s {
        // SAFETY: as the caller guarantees.
        unsafe { load(simd, self.0.add(at), mask) }
    }
}

/// `a + b`
#[derive(Clone, Copy)]
pub(crate) struct Sum {
    pub(crate) a: *const f32,
    pub(crate) b: *const f32,
}

impl<S: Simd> Source<S> for Sum {
    type Constants = ();

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): ()) -> S::f32s {
        // SAFETY: as the caller guarantees.
        unsafe { simd.add_f32s(load(simd, self.a.add(at), mask), load(simd, self.b.add(at), mask)) }
    }
}

/// `(x - mean) gain + offset`, plus `shortcut` where there is one: the last step of a normalisation.
#[derive(Clone, Copy)]
pub(crate) struct Scaled {
    pub(crate) x: *const f32,
    pub(crate) mean: *const f32,
    pub(crate) gain: *const f32,
    pub(crate) offset: *const f32,
    pub(crate) shortcut: Option<*const f32>,
}

impl<S: Simd> Source<S> for Scaled {
    type Constants = [S::f32s; 3];

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> [S::f32s; 3] {
        // SAFETY: as the caller guarantees.
        unsafe {
            [
                load(simd, self.mean.add(channel), mask),
                load(simd, self.gain.add(channel), mask),
                load(simd, self.offset.add(channel), mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, [mean, gain, offset]: [S::f32s; 3]) -> S::f32s {
        // SAFETY: as the caller guarantees.
        unsafe {
            let centred = simd.sub_f32s(load(simd, self.x.add(at), mask), mean);
            let y = multiply_add(simd, centred, gain, offset);
            match self.shortcut {
                Some(shortcut) => simd.add_f32s(y, load(simd, shortcut.add(at), mask)),
                None => y,
            }
        }
    }
}

/// `to = phi(source)`, with the sum of that over the pixels if one is asked for.
pub(crate) struct Activate<Q, F, const SUMS: usize> {
    pub(crate) source: Q,
    pub(crate) function: F,
    pub(crate) to: *mut f32,
}

impl<S: Simd, Q: Source<S>, F: Function, const SUMS: usize> Pass<S> for Activate<Q, F, SUMS> {
    type Constants = Q::Constants;
    const SUMS: usize = SUMS;

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> Self::Constants {
        // SAFETY: as the caller guarantees.
        unsafe { self.source.constants(simd, channel, mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: Q::Constants, sums: &mut [S::f32s; 2]) {
        // SAFETY: as the caller guarantees.
        unsafe {
            let value = self.function.value(simd, self.source.read(simd, at, mask, constants));
            store(simd, self.to.add(at), value, mask);
            sums[0] = simd.add_f32s(sums[0], value);
        }
    }
}

/// The sum of `x` over the pixels.
pub(crate) struct Total {
    pub(crate) x: *const f32,
}

impl<S: Simd> Pass<S> for Total {
    type Constants = ();
    const SUMS: usize = 1;

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): (), sums: &mut [S::f32s; 2]) {
        // SAFETY: as the caller guarantees.
        sums[0] = simd.add_f32s(sums[0], unsafe { load(simd, self.x.add(at), mask) });
    }
}

/// The sum of `(x - mean)^2` over the pixels.
pub(crate) struct Squares {
    pub(crate) x: *const f32,
    pub(crate) mean: *const f32,
}

impl<S: Simd> Pass<S> for Squares {
    type Constants = S::f32s;
    const SUMS: usize = 1;

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> S::f32s {
        // SAFETY: as the caller guarantees.
        unsafe { load(simd, self.mean.add(channel), mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, mean: S::f32s, sums: &mut [S::f32s; 2]) {
        // SAFETY: as the caller guarantees.
        let centred = simd.sub_f32s(unsafe { load(simd, self.x.add(at), mask) }, mean);
        sums[0] = multiply_add(simd, centred, centred, sums[0]);
    }
}

/// Where the gradient behind a normalisation comes from, and where the value in front of it.
///
/// With an activation before the normalisation the value is `phi(x)`; with one after it the gradient is `phi' dy`. What had to be
/// computed is kept in `kept` for the second pass, and in `shortcut` if somebody wants the gradient of the shortcut.
pub(crate) trait Behind<S: Simd> {
    /// The value and the gradient at `at`.
    ///
    /// # Safety
    ///
    /// As for [`Pass::visit`].
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s);
}

/// Both are there.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    pub(crate) value: *const f32,
    pub(crate) dy: *const f32,
}

impl<S: Simd> Behind<S> for Known {
    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: as the caller guarantees.
        unsafe { (load(simd, self.value.add(at), mask), load(simd, self.dy.add(at), mask)) }
    }
}

/// An activation came before: the value is computed again.
pub(crate) struct ActivatedBefore<F> {
    pub(crate) function: F,
    pub(crate) x: *const f32,
    pub(crate) dy: *const f32,
    pub(crate) kept: *mut f32,
}

impl<S: Simd, F: Function> Behind<S> for ActivatedBefore<F> {
    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: as the caller guarantees.
        unsafe {
            let value = self.function.value(simd, load(simd, self.x.add(at), mask));
            store(simd, self.kept.add(at), value, mask);
            (value, load(simd, self.dy.add(at), mask))
        }
    }
}

/// An activation comes after: the gradient passes through it first.
pub(crate) struct ActivatedAfter<F> {
    pub(crate) function: F,
    pub(crate) x: *const f32,
    pub(crate) y: *const f32,
    pub(crate) dy: *const f32,
    pub(crate) kept: *mut f32,
    pub(crate) shortcut: Option<*mut f32>,
}

impl<S: Simd, F: Function> Behind<S> for ActivatedAfter<F> {
    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: as the caller guarantees.
        unsafe {
            let (y, dy) = (load(simd, self.y.add(at), mask), load(simd, self.dy.add(at), mask));
            let gradient = self.function.pull_back(simd, y, dy);
            store(simd, self.kept.add(at), gradient, mask);
            if let Some(shortcut) = self.shortcut {
                store(simd, shortcut.add(at), gradient, mask);
            }
            (load(simd, self.x.add(at), mask), gradient)
        }
    }
}

/// The sums of the gradient and of the gradient times `value - mean` over the pixels.
pub(crate) struct Project<B> {
    pub(crate) behind: B,
    pub(crate) mean: *const f32,
}

impl<S: Simd, B: Behind<S>> Pass<S> for Project<B> {
    type Constants = S::f32s;
    const SUMS: usize = 2;

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> S::f32s {
        // SAFETY: as the caller guarantees.
        unsafe { load(simd, self.mean.add(channel), mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, mean: S::f32s, sums: &mut [S::f32s; 2]) {
        // SAFETY: as the caller guarantees.
        let (value, gradient) = unsafe { self.behind.read(simd, at, mask) };
        sums[0] = simd.add_f32s(sums[0], gradient);
        sums[1] = multiply_add(simd, gradient, simd.sub_f32s(value, mean), sums[1]);
    }
}

/// `to = (gain dy + level + (value - mean) tilt) phi'`, with `phi'` told from the value.
pub(crate) struct PullBack<F> {
    pub(crate) known: Known,
    pub(crate) function: F,
    pub(crate) mean: *const f32,
    pub(crate) gain: *const f32,
    pub(crate) level: *const f32,
    pub(crate) tilt: *const f32,
    pub(crate) to: *mut f32,
}

impl<S: Simd, F: Function> Pass<S> for PullBack<F> {
    type Constants = [S::f32s; 4];
    const SUMS: usize = 0;

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> [S::f32s; 4] {
        // SAFETY: as the caller guarantees.
        unsafe {
            [
                load(simd, self.mean.add(channel), mask),
                load(simd, self.gain.add(channel), mask),
                load(simd, self.level.add(channel), mask),
                load(simd, self.tilt.add(channel), mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: [S::f32s; 4], _: &mut [S::f32s; 2]) {
        let [mean, gain, level, tilt] = constants;
        // SAFETY: as the caller guarantees.
        unsafe {
            let (value, dy) = self.known.read(simd, at, mask);
            let scaled = multiply_add(simd, gain, dy, level);
            let gradient = multiply_add(simd, simd.sub_f32s(value, mean), tilt, scaled);
            store(simd, self.to.add(at), self.function.pull_back(simd, value, gradient), mask);
        }
    }
}
