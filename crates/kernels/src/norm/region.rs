//! Statistics of the part of the data that is normalised together: a batch, a plane or a row, `[pixels, channels]`.
use pulp::Simd;

use super::EPSILON;
use super::passes::{PullBack, Squares, StoredGradient};
use crate::access::{Readable, Writable};
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
    pub(crate) constants: Constants,
}

/// What is the same at all pixels of a region, a number a channel.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    pub(crate) mean: Vec<f32>,
    /// `scale / sqrt(variance + epsilon)`
    pub(crate) gain: Vec<f32>,
    /// What the gradient through the mean adds.
    mean_term: Vec<f32>,
    /// What the gradient through the variance adds, for every unit of distance from the mean.
    var_term: Vec<f32>,
}

impl Workspace {
    pub(crate) fn new(channels: usize) -> Self {
        let zeros = || vec![0.0; channels];
        let constants = Constants { mean: zeros(), gain: zeros(), mean_term: zeros(), var_term: zeros() };
        Self { totals: [vec![0.0; channels], vec![0.0; channels]], constants }
    }

    /// Makes room for this many channels.
    pub(crate) fn grow(&mut self, channels: usize) {
        if self.constants.mean.len() < channels {
            *self = Self::new(channels);
        }
    }
}

fn clear(totals: &mut [Vec<f64>; 2], channels: usize) {
    for totals in totals {
        totals[..channels].fill(0.0);
    }
}

impl Region {
    /// Mean and biased variance of the groups of `values`, whose [sums](Region::sum) over the pixels the workspace has; leaves the means
    /// there too.
    #[inline(always)]
    pub(crate) fn measure<S: Simd>(self, simd: S, values: Readable<'_>, work: &mut Workspace, [mean, variance]: [&mut [f32]; 2]) {
        let Workspace { totals, constants } = work;
        self.group_means(&totals[0], mean);
        self.spread(mean, &mut constants.mean);
        self.sum(simd, &Squares { x: values, mean: constants.mean[..].into() }, totals);
        self.group_means(&totals[0], variance);
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

    /// Gets the constants ready for scaling with given statistics.
    #[inline(always)]
    pub(crate) fn prepare(self, constants: &mut Constants, mean: &[f32], variance: &[f32], scale: &[f32]) {
        let width = self.channels / self.groups;
        self.spread(mean, &mut constants.mean);
        for ((gain, scale), variance) in constants.gain.chunks_exact_mut(width).zip(scale.chunks_exact(width)).zip(variance) {
            let inverse = inverse_deviation(*variance);
            for (gain, scale) in gain.iter_mut().zip(scale) {
                *gain = inverse * scale;
            }
        }
    }

    /// From the sums that [`GradientSums`](super::passes::GradientSums) left in the workspace: adds to the gradients of scale and offset,
    /// and gets the constants ready for [`pull_back`](Region::pull_back).
    #[inline(always)]
    pub(crate) fn add_affine_gradients(
        self,
        work: &mut Workspace,
        variance: &[f32],
        scale: &[f32],
        given: bool,
        gradients: &mut Sums,
    ) {
        let Workspace { totals, constants } = work;
        let width = self.channels / self.groups;
        let count = (width * self.pixels) as f64;
        for (group, &variance) in variance.iter().enumerate().take(self.groups) {
            let channels = group * width..(group + 1) * width;
            let inverse = f64::from(inverse_deviation(variance));
            let (mut mean_term, mut var_term) = (0.0, 0.0);
            for channel in channels.clone() {
                // The sums over the pixels of the gradient, and of the gradient times the normalised value.
                let (offset, slope) = (totals[0][channel], totals[1][channel] * inverse);
                gradients.offset[channel] += offset;
                gradients.scale[channel] += slope;
                mean_term += offset * f64::from(scale[channel]);
                var_term += slope * f64::from(scale[channel]);
            }
            if given {
                (mean_term, var_term) = (0.0, 0.0);
            }
            constants.mean_term[channels.clone()].fill((-inverse * mean_term / count) as f32);
            constants.var_term[channels].fill((-inverse * inverse * var_term / count) as f32);
        }
    }

    /// Writes the gradient in front of the normalisation, and in front of the activation before it, if any.
    #[inline(always)]
    pub(crate) fn pull_back<S: Simd, F: Function>(
        self,
        simd: S,
        stored: StoredGradient<'_>,
        function: F,
        to: Writable<'_>,
        work: &mut Workspace,
    ) {
        let Workspace { totals, constants } = work;
        let [mean, gain, mean_term, var_term] =
            [&constants.mean, &constants.gain, &constants.mean_term, &constants.var_term].map(|numbers| numbers[..].into());
        let pass = PullBack { stored, function, mean, gain, mean_term, var_term, to };
        sweep(simd, &pass, self.pixels, self.channels, totals);
    }

    /// Sets the totals to zero and does a pass over the region.
    #[inline(always)]
    pub(crate) fn sum<S: Simd, P: Pass<S>>(self, simd: S, pass: &P, totals: &mut [Vec<f64>; 2]) {
        clear(totals, self.channels);
        sweep(simd, pass, self.pixels, self.channels, totals);
    }
}

/// Gradients of scale and offset while they are summed.
#[derive(Debug, Default)]
pub(crate) struct Sums {
    pub(crate) scale: Vec<f64>,
    pub(crate) offset: Vec<f64>,
}

impl Sums {
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
