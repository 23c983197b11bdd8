//! The kernels as operations on tensors agree with burn's own, values and gradients, on every shape.
#![cfg(feature = "burn")]
use burn::tensor::module;
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use fedeq_kernels::padding::same_padding;
use fedeq_kernels::tensor::{conv2d, max_pool};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Numbers of a seed, on a device that records gradients.
fn random<const D: usize>(shape: [usize; D], seed: u64) -> Tensor<D> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let values: Vec<f32> = (0..shape.iter().product()).map(|_| rng.random_range(-1.0..1.0)).collect();
    Tensor::from_data(TensorData::new(values, shape), &Device::default().autodiff()).require_grad()
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.try_into_vec_as().expect("a float tensor")
}

/// The largest difference relative to the root mean square of what is expected.
fn error<const D: usize>(found: Tensor<D>, expected: Tensor<D>) -> f64 {
    assert_eq!(found.dims(), expected.dims());
    let (found, expected) = (host(found), host(expected));
    let scale = (expected.iter().map(|x| x * x).sum::<f64>() / expected.len() as f64).sqrt().max(1e-3);
    found.iter().zip(&expected).map(|(f, e)| (f - e).abs() / scale).fold(0.0, f64::max)
}

/// The gradients of a random combination of the entries.
fn gradients<const D: usize>(y: Tensor<D>) -> Gradients {
    let weights = random(y.dims(), 99).inner();
    (y * Tensor::from_inner(weights)).sum().backward()
}

fn gradient<const D: usize>(x: &Tensor<D>, gradients: &Gradients) -> Tensor<D> {
    x.grad(gradients).expect("a gradient arrives")
}

#[test]
fn convolutions_agree_with_burn() {
    let shapes =
        [(2, 5, 7, 3, 4, 3, 1), (1, 14, 14, 16, 24, 3, 1), (3, 7, 6, 5, 8, 3, 2), (2, 9, 9, 8, 17, 1, 2), (2, 4, 4, 6, 3, 1, 1)];
    for (batch, height, width, from, to, window, stride) in shapes {
        let (x, w) = (random([batch, height, width, from], 1), random([to, from, window, window], 2));
        let found = conv2d(x.clone(), w.clone(), stride);
        let padding = [height, width].map(|size| same_padding(size, window, stride));
        let options = ConvOptions::new_with_padding([stride; 2], padding, [1, 1], 1);
        let expected = module::conv2d(x.clone().permute([0, 3, 1, 2]), w.clone(), None, options).permute([0, 2, 3, 1]);
        assert!(error(found.clone().inner(), expected.clone().inner()) < 1e-4);
        let (found, expected) = (gradients(found), gradients(expected));
        assert!(error(gradient(&x, &found), gradient(&x, &expected)) < 1e-4);
        assert!(error(gradient(&w, &found), gradient(&w, &expected)) < 1e-4);
    }
}

#[test]
fn max_pools_agree_with_burn() {
    for (batch, height, width, channels) in [(2, 8, 8, 16), (1, 7, 5, 3), (3, 1, 2, 9)] {
        let x = random([batch, height, width, channels], 3);
        let padding = [height, width].map(|size| same_padding(size, 3, 2));
        let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding_pairs(padding);
        let found = max_pool(x.clone());
        let expected = module::max_pool2d(x.clone().permute([0, 3, 1, 2]), options).permute([0, 2, 3, 1]);
        assert_eq!(host(found.clone().inner()), host(expected.clone().inner()));
        let (found, expected) = (gradients(found), gradients(expected));
        assert!(error(gradient(&x, &found), gradient(&x, &expected)) < 1e-6);
    }
}
