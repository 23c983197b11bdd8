//! The layers written down as they are defined, in double precision, and how to compare with them.
#![allow(dead_code, reason = "every test binary uses a part of it")]
use fedeq_kernels::activation::Activation;
use fedeq_kernels::norm::{BatchShape, EPSILON, Fusion, Norm, NormScope};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers between -2 and 2, none of them near zero.
pub(crate) fn numbers(count: usize, seed: u64) -> Vec<f32> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut draw = || {
        let size: f32 = random.random_range(0.01..2.0);
        if random.random::<bool>() { size } else { -size }
    };
    (0..count).map(|_| draw()).collect()
}

pub(crate) fn double(x: &[f32]) -> Vec<f64> {
    x.iter().map(|&x| f64::from(x)).collect()
}

pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Asserts that no entry is further off than `tolerance` times the largest one (or one).
pub(crate) fn assert_close(found: &[f32], expected: &[f64], tolerance: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1.0_f64, |scale, x| scale.max(x.abs()));
    for (at, (&found, &expected)) in found.iter().zip(expected).enumerate() {
        let error = (f64::from(found) - expected).abs() / scale;
        assert!(error < tolerance, "{what}, entry {at}: {found} is not {expected}, error {error:e}");
    }
}

/// The derivative of `f` at `x` in a direction, by a central difference.
pub(crate) fn slope(f: impl Fn(&[f64]) -> f64, x: &[f64], direction: &[f64]) -> f64 {
    // So small that hardly any entry crosses the kink of a ReLU.
    let step = 1e-7;
    let moved = |step: f64| -> Vec<f64> { x.iter().zip(direction).map(|(x, d)| x + step * d).collect() };
    (f(&moved(step)) - f(&moved(-step))) / (2.0 * step)
}

/// The derivatives of a function in a few random directions and along a few axes.
pub(crate) struct Slopes(Vec<(Vec<f64>, f64)>);

impl Slopes {
    pub(crate) fn new(f: impl Fn(&[f64]) -> f64, x: &[f64]) -> Self {
        let random = (0..2).map(|seed| double(&numbers(x.len(), 1000 + seed)));
        let axis = |axis: usize| (0..x.len()).map(|at| f64::from(u8::from(at == axis))).collect();
        let axes = (0..x.len()).step_by(x.len().div_ceil(3).max(1)).map(axis);
        Self(random.chain(axes).map(|direction| (slope(&f, x, &direction), direction)).map(|(slope, d)| (d, slope)).collect())
    }

    /// Asserts that a gradient has them.
    pub(crate) fn assert_are_of(&self, gradient: &[f32], tolerance: f64, what: &str) {
        let gradient = double(gradient);
        let length = dot(&gradient, &gradient).sqrt().max(1.0);
        for (direction, expected) in &self.0 {
            assert_eq!(gradient.len(), direction.len(), "{what}");
            let found = dot(&gradient, direction);
            let scale = length * dot(direction, direction).sqrt() / (direction.len() as f64).sqrt();
            let error = (found - expected).abs() / scale.max(1.0);
            assert!(error < tolerance, "{what}: {found} is not {expected}, error {error:e}");
        }
    }
}

pub(crate) fn activate(activation: Activation, x: f64) -> f64 {
    match activation {
        Activation::Relu => x.max(0.0),
        Activation::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
    }
}

/// Which statistics the entry at an index of `[B, H, W, C]` belongs to.
pub(crate) fn statistics_of(norm: &Norm, at: usize) -> usize {
    let BatchShape { height, width, channels, .. } = norm.shape;
    let group = at % channels / (channels / norm.groups);
    let region = match norm.scope {
        NormScope::Plane => at / (channels * width * height),
        NormScope::Row => at / (channels * width),
        NormScope::Batch => 0,
    };
    region * norm.groups + group
}

/// Mean and variance of every region and group.
pub(crate) fn moments(norm: &Norm, x: &[f64]) -> (Vec<f64>, Vec<f64>) {
    let regions = (0..x.len()).map(|at| statistics_of(norm, at)).max().map_or(0, |last| last + 1);
    let (mut count, mut mean, mut variance) = (vec![0.0; regions], vec![0.0; regions], vec![0.0; regions]);
    for (at, x) in x.iter().enumerate() {
        count[statistics_of(norm, at)] += 1.0;
        mean[statistics_of(norm, at)] += x;
    }
    mean.iter_mut().zip(&count).for_each(|(mean, count)| *mean /= count);
    for (at, x) in x.iter().enumerate() {
        variance[statistics_of(norm, at)] += (x - mean[statistics_of(norm, at)]).powi(2);
    }
    variance.iter_mut().zip(&count).for_each(|(variance, count)| *variance /= count);
    (mean, variance)
}

/// What goes into a normalisation.
#[derive(Clone)]
pub(crate) struct Inputs {
    pub(crate) x: Vec<f64>,
    pub(crate) scale: Vec<f64>,
    pub(crate) offset: Vec<f64>,
    pub(crate) shortcut: Option<Vec<f64>>,
    /// Given statistics, or those of `x`.
    pub(crate) moments: Option<(Vec<f64>, Vec<f64>)>,
}

pub(crate) fn before(norm: &Norm, x: &[f64]) -> Vec<f64> {
    match norm.fusion {
        Fusion::Before(activation) => x.iter().map(|&x| activate(activation, x)).collect(),
        _ => x.to_vec(),
    }
}

pub(crate) fn normalize(norm: &Norm, inputs: &Inputs) -> Vec<f64> {
    let values = before(norm, &inputs.x);
    let (mean, variance) = inputs.moments.clone().unwrap_or_else(|| moments(norm, &values));
    let entry = |(at, value): (usize, &f64)| {
        let (group, channel) = (statistics_of(norm, at), at % norm.shape.channels);
        let standard = (value - mean[group]) / (variance[group] + f64::from(EPSILON)).sqrt();
        let shortcut = inputs.shortcut.as_ref().map_or(0.0, |shortcut| shortcut[at]);
        let y = standard * inputs.scale[channel] + inputs.offset[channel] + shortcut;
        if let Fusion::After(activation) = norm.fusion { activate(activation, y) } else { y }
    };
    values.iter().enumerate().map(entry).collect()
}
