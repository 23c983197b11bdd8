//! Walking over the pixels of channels-last data with a few channels at a time in registers.
use pulp::{MemMask, Simd};

use crate::instructions::to_array;

/// How many pixels are summed in single precision before the sums go to double precision.
const BLOCK: usize = 256;

/// Something done at every pixel of `[pixels, channels]`, with up to two sums a channel.
///
/// # Safety
///
/// What [`covers`](Pass::covers) says must be true, and stay true as long as the pass exists: [`sweep`] reads and writes where it says.
pub(crate) unsafe trait Pass<S: Simd> {
    /// What is the same at all pixels for a vector of channels, kept in registers.
    type Constants: Copy;

    /// How many sums are kept, at most two.
    const SUMS: usize;

    /// Whether everything that is read or written has at least so many numbers, and every constant is there for so many channels.
    fn covers(&self, numbers: usize, channels: usize) -> bool;

    /// Loads the constants of the channels from `channel` on.
    ///
    /// # Safety
    ///
    /// The lanes of the mask, or all without one, must be channels that the pass [covers](Pass::covers).
    unsafe fn constants(&self, simd: S, channel: usize, mask: Option<MemMask<S::m32s>>) -> Self::Constants;

    /// Does it to the vector at `at` and adds to the sums.
    ///
    /// # Safety
    ///
    /// The lanes of the mask, or all without one, must be numbers from `at` on that the pass [covers](Pass::covers).
    unsafe fn visit(
        &self,
        simd: S,
        at: usize,
        mask: Option<MemMask<S::m32s>>,
        constants: Self::Constants,
        sums: &mut [S::f32s; 2],
    );
}

/// Does a pass over all pixels and adds its sums to the totals of the channels.
///
/// # Panics
///
/// If the pass does not cover them, or there are fewer totals than channels.
#[inline(always)]
pub(crate) fn sweep<S: Simd, P: Pass<S>>(simd: S, pass: &P, pixels: usize, channels: usize, totals: &mut [Vec<f64>; 2]) {
    let covered = pixels.checked_mul(channels).is_some_and(|numbers| pass.covers(numbers, channels));
    assert!(covered, "a pass covers all pixels");
    let lanes = S::F32_LANES;
    for first in (0..pixels).step_by(BLOCK) {
        let pixels = first..pixels.min(first + BLOCK);
        let mut strip = Strip { pixels, channels, channel: 0, mask: None };
        // SAFETY: the pass covers `pixels * channels` numbers and `channels` constants, as asserted and as its `unsafe impl` vouches for; the strips are whole vectors of
        // channels that exist, then the mask of those that are left.
        unsafe {
            while strip.channel + 4 * lanes <= channels {
                strip.run::<P, 4>(simd, pass, totals);
                strip.channel += 4 * lanes;
            }
            while strip.channel + lanes <= channels {
                strip.run::<P, 1>(simd, pass, totals);
                strip.channel += lanes;
            }
            if strip.channel < channels {
                strip.mask = Some(simd.mask_between_m32s(0, (channels - strip.channel) as u32));
                strip.run::<P, 1>(simd, pass, totals);
            }
        }
    }
}

/// A few vectors of channels from `channel` on, at some pixels; with a mask, the part of one vector that exists.
struct Strip<S: Simd> {
    pixels: std::ops::Range<usize>,
    channels: usize,
    channel: usize,
    mask: Option<MemMask<S::m32s>>,
}

impl<S: Simd> Strip<S> {
    /// Does a pass over the strip, `V` vectors wide.
    ///
    /// # Safety
    ///
    /// The pass must cover `channels` constants and the numbers of all pixels before the end of the strip's. The strip must end with the
    /// channels: `V` vectors from `channel` on are channels, or `V` is one and the mask has those lanes of it that are.
    #[inline(always)]
    unsafe fn run<P: Pass<S>, const V: usize>(&self, simd: S, pass: &P, totals: &mut [Vec<f64>; 2]) {
        let lanes = S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); 2]; V];
        // SAFETY: the lanes from `channel + v * lanes` on are channels, so those of a pixel before the end are below
        // `pixels.end * channels`; the pass covers all of these, as the caller guarantees.
        unsafe {
            let constants: [P::Constants; V] = std::array::from_fn(|v| pass.constants(simd, self.channel + v * lanes, self.mask));
            for pixel in self.pixels.clone() {
                let at = pixel * self.channels + self.channel;
                for v in 0..V {
                    pass.visit(simd, at + v * lanes, self.mask, constants[v], &mut sums[v]);
                }
            }
        }
        for (v, sums) in sums.iter().enumerate() {
            for (&sum, totals) in sums.iter().zip(totals.iter_mut()).take(P::SUMS) {
                add(simd, sum, &mut totals[..self.channels], self.channel + v * lanes);
            }
        }
    }
}

/// Adds a vector to the totals from `channel` on, as far as there are any.
#[inline(always)]
fn add<S: Simd>(simd: S, sum: S::f32s, totals: &mut [f64], channel: usize) {
    let parts = to_array(simd, sum);
    for (total, part) in totals[channel..].iter_mut().zip(&parts[..S::F32_LANES]) {
        *total += f64::from(*part);
    }
}
