//! Statistics of the part of the data that is normalised together: a batch, a plane or a row, `[pixels, channels]`.
use pulp::Simd;

use super::EPSILON;
use super::passes::{Known, PullBack, Squares};
use crate::activation::Function;
use crate::sweep::{Pass, sweep};

/// The extent of a region.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    pub(crate) pixels: usize,
    pub(crate) channels: usize,
    /// Neighbouring channels that share their statistics, `channels / groups` each.
    pub(crate) groups: usize,
}

/// Memory for what a normalisation knows of the channels while it works on a region.
#[derive(Debug, Default)]
pub(crate) struct Workspace {
    pub(crate) totals: [Vec<f64>; 2],
    pub(crate) mean: Vec<f32>,
    /// `scale / sqrt(variance + epsilon)`
    pub(crate) gain: Vec<f32>,
    level: Vec<f32>,
    tilt: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(channels: usize) -> Self {
        let zeros = || vec![0.0; channels];
        Self { totals: [vec![0.0; channels], vec![0.0; channels]], mean: zeros(), gain: zeros(), level: zeros(), tilt: zeros() }
    }

    /// Makes room for this many channels.
    pub(crate) fn grow(&mut self, channels: usize) {
        if self.mean.len() < channels {
            *self = Self::new(channels);
        }
    }

    fn clear(&mut self, channels: usize) {
        for totals in &mut self.totals {
            totals[..channels].fill(0.0);
        }
    }
}

impl Region {
    /// Mean and biased variance of the groups of `values`, the first pass over which is `summing`; leaves the workspace ready for
    /// scaling.
    ///
    /// # Safety
    ///
    /// The pass and the values must be good for the whole region.
    #[inline(always)]
    pub(crate) unsafe fn measure<S: Simd, P: Pass<S>>(
        self,
        simd: S,
        summing: &P,
        values: *const f32,
        work: &mut Workspace,
        [mean, variance]: [&mut [f32]; 2],
    ) {
        work.clear(self.channels);
        // SAFETY: as the caller guarantees; the workspace has room for all channels.
        unsafe { sweep(simd, summing, self.pixels, self.channels, &mut work.totals) };
        self.group_means(&work.totals[0], mean);
        self.spread(mean, &mut work.mean);
        work.clear(self.channels);
        let squares = Squares { x: values, mean: work.mean.as_ptr() };
        // SAFETY: as above.
        unsafe { sweep(simd, &squares, self.pixels, self.channels, &mut work.totals) };
        self.group_means(&work.totals[0], variance);
    }

    /// The mean over the pixels and channels of each group, from the totals of the channels.
    #[inline(always)]
    fn group_means(self, totals: &[f64], means: &mut [f32]) {
        let width = self.channels / self.groups;
        let count = (width * self.pixels) as f64;
        for (mean, totals) in means.iter_mut().zip(totals.chunks_exact(width)) {
            *mean = (totals.iter().sum::<f64>() / count) as f32;
        }
    }

    /// Gives every channel the value of its group.
    #[inline(always)]
    fn spread(self, groups: &[f32], channels: &mut [f32]) {
        for (channels, group) in channels.chunks_exact_mut(self.channels / self.groups).zip(groups) {
            channels.fill(*group);
        }
    }

    /// Makes the workspace ready for scaling with given statistics.
    #[inline(always)]
    pub(crate) fn prepare(self, work: &mut Workspace, mean: &[f32], variance: &[f32], scale: &[f32]) {
        let width = self.channels / self.groups;
        self.spread(mean, &mut work.mean);
        for ((gain, scale), variance) in work.gain.chunks_exact_mut(width).zip(scale.chunks_exact(width)).zip(variance) {
            let inverse = inverse_deviation(*variance);
            for (gain, scale) in gain.iter_mut().zip(scale) {
                *gain = inverse * scale;
            }
        }
    }

    /// From the sums that [`Project`](super::passes::Project) left in the workspace: adds to the gradients of scale and offset, and
    /// makes the workspace ready for [`pull_back`](Region::pull_back).
    #[inline(always)]
    pub(crate) fn project(self, work: &mut Workspace, variance: &[f32], scale: &[f32], given: bool, gradients: &mut Sums) {
        let width = self.channels / self.groups;
        let count = (width * self.pixels) as f64;
        for (group, &variance) in variance.iter().enumerate().take(self.groups) {
            let channels = group * width..(group + 1) * width;
            let inverse = f64::from(inverse_deviation(variance));
            let (mut level, mut tilt) = (0.0, 0.0);
            for channel in channels.clone() {
                let (plain, slanted) = (work.totals[0][channel], work.totals[1][channel] * inverse);
                gradients.offset[channel] += plain;
                gradients.scale[channel] += slanted;
                level += plain * f64::from(scale[channel]);
                tilt += slanted * f64::from(scale[channel]);
            }
            if given {
                (level, tilt) = (0.0, 0.0);
            }
            work.level[channels.clone()].fill((-inverse * level / count) as f32);
            work.tilt[channels].fill((-inverse * inverse * tilt / count) as f32);
        }
    }

    /// Writes the gradient in front of the normalisation, and in front of the activation before it, if any.
    ///
    /// # Safety
    ///
    /// The pointers must be good for the whole region.
    #[inline(always)]
    pub(crate) unsafe fn pull_back<S: Simd, F: Function>(
        self,
        simd: S,
        known: Known,
        function: F,
        to: *mut f32,
        work: &mut Workspace,
    ) {
        let (mean, gain) = (work.mean.as_ptr(), work.gain.as_ptr());
        let pass = PullBack { known, function, mean, gain, level: work.level.as_ptr(), tilt: work.tilt.as_ptr(), to };
        // SAFETY: as the caller guarantees; the workspace has constants for all channels.
        unsafe { sweep(simd, &pass, self.pixels, self.channels, &mut work.totals) };
    }

    /// Sets the totals to zero and does a pass over the region.
    ///
    /// # Safety
    ///
    /// The pass must be good for the whole region.
    #[inline(always)]
    pub(crate) unsafe fn sum<S: Simd, P: Pass<S>>(self, simd: S, pass: &P, work: &mut Workspace) {
        work.clear(self.channels);
        // SAFETY: as the caller guarantees; the workspace has room for all channels.
        unsafe { sweep(simd, pass, self.pixels, self.channels, &mut work.totals) };
    }
}

/// Gradients of scale and offset while they are summed.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) scale: Vec<f64>,
    pub(crate) offset: Vec<f64>,
}

impl Sums {
    pub(crate) fn new(channels: usize) -> Self {
        Self { scale: vec![0.0; channels], offset: vec![0.0; channels] }
    }

    /// Zeros again, for this many channels.
    pub(crate) fn reset(&mut self, channels: usize) {
        for sums in [&mut self.scale, &mut self.offset] {
            sums.clear();
            sums.resize(channels, 0.0);
        }
    }
}

#[inline(always)]
fn inverse_deviation(variance: f32) -> f32 {
    1.0 / (variance + EPSILON).sqrt()
}
