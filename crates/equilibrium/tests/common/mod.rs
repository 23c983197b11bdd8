//! Problems with known answers, shared by the integration tests.
#![allow(dead_code, reason = "each test binary uses its own part")]
use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use fedeq_equilibrium::Cell;
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

/// Uniform numbers in [-1, 1), the same ones for the same seed.
pub(crate) fn uniform(count: usize, seed: u64) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

pub(crate) fn tensor<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (&Device::default(), dtype))
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.try_into_vec_as().expect("a float tensor")
}

pub(crate) fn norm(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    norm(&a.iter().zip(b).map(|(a, b)| a - b).collect::<Vec<_>>())
}

pub(crate) fn relative_error(found: &[f64], expected: &[f64]) -> f64 {
    distance(found, expected) / norm(expected)
}

/// `tanh(z W + x)`: rows of `W` belong to inputs.
#[derive(Module, Debug)]
pub(crate) struct Tanh {
    pub(crate) weight: Param<Tensor<2>>,
}

impl Tanh {
    /// A random cell of the given size; below a `gain` of 1 it contracts.
    pub(crate) fn random(size: usize, gain: f64, seed: u64, dtype: DType) -> Self {
        let values = uniform(size * size, seed).into_iter().map(|value| value * gain / size as f64).collect();
        Self { weight: Param::from_tensor(tensor(values, [size, size], dtype)) }
    }

    pub(crate) fn from_weight(weight: Tensor<2>) -> Self {
        Self { weight: Param::from_tensor(weight) }
    }
}

impl Cell<2> for Tanh {
    type Input = Tensor<2>;

    fn step(&self, z: Tensor<2>, x: &Tensor<2>) -> Tensor<2> {
        (z.matmul(self.weight.val()) + x.clone()).tanh()
    }
}
