//! The passes over the pixels that normalisations and their gradients are made of.
//!
//! Most of them work in place, on the data they read.
use pulp::{MemMask, Simd};

use super::region::Constants;
use crate::access::{Readable, Writable};
use crate::activation::Function;
use crate::instructions::multiply_add;
use crate::sweep::Pass;

/// Where a pass reads a vector that it then activates.
///
/// # Safety
///
/// As for [`Pass`].
pub(crate) unsafe trait Source<S: Simd> {
    /// What is the same at all pixels for a vector of channels.
    type Constants: Copy;

    /// As [`Pass::covers`].
    fn covers(&self, numbers: usize, channels: usize) -> bool;

    /// Loads the constants of the channels from `channel` on.
    ///
    /// # Safety
    ///
    /// As for [`Pass::constants`], with what this covers.
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> Self::Constants;

    /// The vector at `at`.
    ///
    /// # Safety
    ///
    /// As for [`Pass::visit`], with what this covers.
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: Self::Constants) -> S::f32s;
}

/// `x`, read as it is.
#[derive(Clone, Copy)]
pub(crate) struct Plain<'a>(pub(crate) Readable<'a>);

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> Source<S> for Plain<'_> {
    type Constants = ();

    #[inline(always)]
    fn covers(&self, numbers: usize, _: usize) -> bool {
        self.0.len() >= numbers
    }

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): ()) -> S::f32s {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { self.0.load(simd, at, mask) }
    }
}

/// `a + b`
#[derive(Clone, Copy)]
pub(crate) struct Sum<'a> {
    pub(crate) a: Readable<'a>,
    pub(crate) b: Readable<'a>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> Source<S> for Sum<'_> {
    type Constants = ();

    #[inline(always)]
    fn covers(&self, numbers: usize, _: usize) -> bool {
        self.a.len().min(self.b.len()) >= numbers
    }

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): ()) -> S::f32s {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { simd.add_f32s(self.a.load(simd, at, mask), self.b.load(simd, at, mask)) }
    }
}

/// `(x - mean) gain + offset`, plus `shortcut` where there is one: the last step of a normalisation.
#[derive(Clone, Copy)]
pub(crate) struct Scaled<'a> {
    pub(crate) x: Readable<'a>,
    pub(crate) mean: Readable<'a>,
    pub(crate) gain: Readable<'a>,
    pub(crate) offset: Readable<'a>,
    pub(crate) shortcut: Option<Readable<'a>>,
}

impl<'a> Scaled<'a> {
    /// Values, scaled as the constants of their channels say.
    #[inline(always)]
    pub(crate) fn new(x: Readable<'a>, constants: &'a Constants, offset: &'a [f32], shortcut: Option<Readable<'a>>) -> Self {
        Self { x, mean: constants.mean[..].into(), gain: constants.gain[..].into(), offset: offset.into(), shortcut }
    }
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> Source<S> for Scaled<'_> {
    type Constants = [S::f32s; 3];

    #[inline(always)]
    fn covers(&self, numbers: usize, channels: usize) -> bool {
        let constants = self.mean.len().min(self.gain.len()).min(self.offset.len());
        constants >= channels && self.x.len() >= numbers && self.shortcut.is_none_or(|shortcut| shortcut.len() >= numbers)
    }

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> [S::f32s; 3] {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            [self.mean.load(simd, channel, mask), self.gain.load(simd, channel, mask), self.offset.load(simd, channel, mask)]
        }
    }

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, [mean, gain, offset]: [S::f32s; 3]) -> S::f32s {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            let centred = simd.sub_f32s(self.x.load(simd, at, mask), mean);
            let y = multiply_add(simd, centred, gain, offset);
            match self.shortcut {
                Some(shortcut) => simd.add_f32s(y, shortcut.load(simd, at, mask)),
                None => y,
            }
        }
    }
}

/// `to = phi(source)`, with the sum of that over the pixels if one is asked for.
pub(crate) struct Activate<'a, Q, F, const SUMS: usize> {
    pub(crate) source: Q,
    pub(crate) function: F,
    pub(crate) to: Writable<'a>,
}

// SAFETY: `covers` looks at the view that belongs to the pass itself, and asks the source, whose own `unsafe impl` vouches for it.
unsafe impl<S: Simd, Q: Source<S>, F: Function, const SUMS: usize> Pass<S> for Activate<'_, Q, F, SUMS> {
    type Constants = Q::Constants;
    const SUMS: usize = SUMS;

    #[inline(always)]
    fn covers(&self, numbers: usize, channels: usize) -> bool {
        self.source.covers(numbers, channels) && self.to.len() >= numbers
    }

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> Self::Constants {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { self.source.constants(simd, channel, mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: Q::Constants, sums: &mut [S::f32s; 2]) {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            let value = self.function.value(simd, self.source.read(simd, at, mask, constants));
            self.to.store(simd, at, value, mask);
            sums[0] = simd.add_f32s(sums[0], value);
        }
    }
}

/// The sum of `x` over the pixels.
pub(crate) struct Total<'a> {
    pub(crate) x: Readable<'a>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> Pass<S> for Total<'_> {
    type Constants = ();
    const SUMS: usize = 1;

    #[inline(always)]
    fn covers(&self, numbers: usize, _: usize) -> bool {
        self.x.len() >= numbers
    }

    #[inline(always)]
    unsafe fn constants(&self, _: S, _: usize, _: Option<MemMask<S::m32s>>) {}

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, (): (), sums: &mut [S::f32s; 2]) {
        // SAFETY: the caller stays within what `covers` has looked at.
        sums[0] = simd.add_f32s(sums[0], unsafe { self.x.load(simd, at, mask) });
    }
}

/// The sum of `(x - mean)^2` over the pixels.
pub(crate) struct Squares<'a> {
    pub(crate) x: Readable<'a>,
    pub(crate) mean: Readable<'a>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> Pass<S> for Squares<'_> {
    type Constants = S::f32s;
    const SUMS: usize = 1;

    #[inline(always)]
    fn covers(&self, numbers: usize, channels: usize) -> bool {
        self.x.len() >= numbers && self.mean.len() >= channels
    }

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> S::f32s {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { self.mean.load(simd, channel, mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, mean: S::f32s, sums: &mut [S::f32s; 2]) {
        // SAFETY: the caller stays within what `covers` has looked at.
        let centred = simd.sub_f32s(unsafe { self.x.load(simd, at, mask) }, mean);
        sums[0] = multiply_add(simd, centred, centred, sums[0]);
    }
}

/// Where the gradient behind a normalisation comes from, and where the value in front of it.
///
/// With an activation before the normalisation the value is `phi(x)`; with one after it the gradient is `phi' dy`. What had to be
/// computed is kept in `kept` for the second pass, and in `shortcut` if the gradient of the shortcut is wanted.
///
/// # Safety
///
/// As for [`Pass`].
pub(crate) unsafe trait GradientSource<S: Simd> {
    /// Whether everything that is read or written has at least so many numbers.
    fn covers(&self, numbers: usize) -> bool;

    /// The value and the gradient at `at`.
    ///
    /// # Safety
    ///
    /// As for [`Pass::visit`], with what this covers.
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s);
}

/// Both are there.
#[derive(Clone, Copy)]
pub(crate) struct StoredGradient<'a> {
    pub(crate) value: Readable<'a>,
    pub(crate) dy: Readable<'a>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd> GradientSource<S> for StoredGradient<'_> {
    #[inline(always)]
    fn covers(&self, numbers: usize) -> bool {
        self.value.len().min(self.dy.len()) >= numbers
    }

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { (self.value.load(simd, at, mask), self.dy.load(simd, at, mask)) }
    }
}

/// An activation came before: the value is computed again.
pub(crate) struct ActivatedBefore<'a, F> {
    pub(crate) function: F,
    pub(crate) x: Readable<'a>,
    pub(crate) dy: Readable<'a>,
    pub(crate) kept: Writable<'a>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd, F: Function> GradientSource<S> for ActivatedBefore<'_, F> {
    #[inline(always)]
    fn covers(&self, numbers: usize) -> bool {
        self.x.len().min(self.dy.len()).min(self.kept.len()) >= numbers
    }

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            let value = self.function.value(simd, self.x.load(simd, at, mask));
            self.kept.store(simd, at, value, mask);
            (value, self.dy.load(simd, at, mask))
        }
    }
}

/// An activation comes after: the gradient passes through it first.
pub(crate) struct ActivatedAfter<'a, F> {
    pub(crate) function: F,
    pub(crate) x: Readable<'a>,
    pub(crate) y: Readable<'a>,
    pub(crate) dy: Readable<'a>,
    pub(crate) kept: Writable<'a>,
    pub(crate) shortcut: Option<Writable<'a>>,
}

// SAFETY: `covers` looks at every view that is loaded from or stored to, and views keep their lengths.
unsafe impl<S: Simd, F: Function> GradientSource<S> for ActivatedAfter<'_, F> {
    #[inline(always)]
    fn covers(&self, numbers: usize) -> bool {
        let read = self.x.len().min(self.y.len()).min(self.dy.len());
        read.min(self.kept.len()) >= numbers && self.shortcut.is_none_or(|shortcut| shortcut.len() >= numbers)
    }

    #[inline(always)]
    unsafe fn read(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> (S::f32s, S::f32s) {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            let (y, dy) = (self.y.load(simd, at, mask), self.dy.load(simd, at, mask));
            let gradient = self.function.pull_back(simd, y, dy);
            self.kept.store(simd, at, gradient, mask);
            if let Some(shortcut) = self.shortcut {
                shortcut.store(simd, at, gradient, mask);
            }
            (self.x.load(simd, at, mask), gradient)
        }
    }
}

/// The sums of the gradient and of the gradient times `value - mean` over the pixels.
pub(crate) struct GradientSums<'a, B> {
    pub(crate) source: B,
    pub(crate) mean: Readable<'a>,
}

// SAFETY: `covers` looks at the view that belongs to the pass itself, and asks the source, whose own `unsafe impl` vouches for it.
unsafe impl<S: Simd, B: GradientSource<S>> Pass<S> for GradientSums<'_, B> {
    type Constants = S::f32s;
    const SUMS: usize = 2;

    #[inline(always)]
    fn covers(&self, numbers: usize, channels: usize) -> bool {
        self.source.covers(numbers) && self.mean.len() >= channels
    }

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> S::f32s {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe { self.mean.load(simd, channel, mask) }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, mean: S::f32s, sums: &mut [S::f32s; 2]) {
        // SAFETY: the caller stays within what `covers` has looked at.
        let (value, gradient) = unsafe { self.source.read(simd, at, mask) };
        sums[0] = simd.add_f32s(sums[0], gradient);
        sums[1] = multiply_add(simd, gradient, simd.sub_f32s(value, mean), sums[1]);
    }
}

/// `to = (gain dy + mean_term + (value - mean) var_term) phi'`, with `phi'` told from the value.
pub(crate) struct PullBack<'a, F> {
    pub(crate) stored: StoredGradient<'a>,
    pub(crate) function: F,
    pub(crate) mean: Readable<'a>,
    pub(crate) gain: Readable<'a>,
    pub(crate) mean_term: Readable<'a>,
    pub(crate) var_term: Readable<'a>,
    pub(crate) to: Writable<'a>,
}

// SAFETY: `covers` looks at every view of the pass itself, and asks the stored ones, whose own `unsafe impl` vouches for them.
unsafe impl<S: Simd, F: Function> Pass<S> for PullBack<'_, F> {
    type Constants = [S::f32s; 4];
    const SUMS: usize = 0;

    #[inline(always)]
    fn covers(&self, numbers: usize, channels: usize) -> bool {
        let constants = self.mean.len().min(self.gain.len()).min(self.mean_term.len()).min(self.var_term.len());
        constants >= channels && GradientSource::<S>::covers(&self.stored, numbers) && self.to.len() >= numbers
    }

    #[inline(always)]
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> [S::f32s; 4] {
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            [
                self.mean.load(simd, channel, mask),
                self.gain.load(simd, channel, mask),
                self.mean_term.load(simd, channel, mask),
                self.var_term.load(simd, channel, mask),
            ]
        }
    }

    #[inline(always)]
    unsafe fn visit(&self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>, constants: [S::f32s; 4], _: &mut [S::f32s; 2]) {
        let [mean, gain, mean_term, var_term] = constants;
        // SAFETY: the caller stays within what `covers` has looked at.
        unsafe {
            let (value, dy) = self.stored.read(simd, at, mask);
            let scaled = multiply_add(simd, gain, dy, mean_term);
            let gradient = multiply_add(simd, simd.sub_f32s(value, mean), var_term, scaled);
            self.to.store(simd, at, self.function.pull_back(simd, value, gradient), mask);
        }
    }
}
