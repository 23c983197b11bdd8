//! The kernels as operations on tensors agree with burn's own, values and gradients, on every shape.
#![cfg(feature = "burn")]
use burn::tensor::module;
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use fedeq_kernels::activation::Activation;
use fedeq_kernels::norm::Fusion;
use fedeq_kernels::padding::same_padding;
use fedeq_kernels::tensor::{
    Affine, Around, Groups, ImageCell, Pull, batch_norm, batch_norm_train, conv2d, descend, global_average_pool, group_norm,
    max_pool,
};
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
    let weights = random(y.dims(), 99).inner().cast(y.dtype());
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

/// The same numbers in double precision, which only burn's own operations know: that is what kernels are compared with below.
fn double<const D: usize>(x: &Tensor<D>) -> Tensor<D> {
    Tensor::from_inner(x.clone().inner().cast(DType::F64)).require_grad()
}

/// Compares a function of some tensors in single precision (the kernel) with the same in double (burn), values and all gradients.
fn agrees<const D: usize, const E: usize, const N: usize>(
    images: [Tensor<D>; N],
    vectors: &[Tensor<1>],
    function: impl Fn(&[Tensor<D>; N], &[Tensor<1>]) -> Tensor<E>,
) {
    let (exact_images, exact_vectors) = (images.each_ref().map(double), vectors.iter().map(double).collect::<Vec<_>>());
    let (found, expected) = (function(&images, vectors), function(&exact_images, &exact_vectors));
    assert!(error(found.clone().inner(), expected.clone().inner()) < 1e-4);
    let (found, expected) = (gradients(found), gradients(expected));
    for (image, exact) in images.iter().zip(&exact_images) {
        assert!(error(gradient(image, &found), gradient(exact, &expected)) < 1e-4);
    }
    for (vector, exact) in vectors.iter().zip(&exact_vectors) {
        assert!(error(gradient(vector, &found), gradient(exact, &expected)) < 1e-4);
    }
}

const FUSIONS: [Fusion; 5] = [
    Fusion::None,
    Fusion::Before(Activation::Softplus),
    Fusion::Before(Activation::Relu),
    Fusion::After(Activation::Softplus),
    Fusion::After(Activation::Relu),
];

fn affine(vectors: &[Tensor<1>]) -> Affine {
    Affine { scale: vectors[0].clone(), offset: vectors[1].clone() }
}

#[test]
fn group_normalisation_agrees_with_burn() {
    let images = || [random([2, 5, 3, 16], 1), random([2, 5, 3, 16], 2)];
    for fusion in FUSIONS {
        for by_row in [false, true] {
            let groups = Groups { count: 8, by_row };
            agrees(images(), &[random([16], 3), random([16], 4)], |[x, shortcut], vectors| {
                let around = Around { fusion, shortcut: Some(shortcut.clone()) };
                group_norm(x.clone(), affine(vectors), groups, around)
            });
        }
    }
}

#[test]
fn batch_normalisation_agrees_with_burn_in_training_and_in_use() {
    for fusion in FUSIONS {
        agrees(
            [random([3, 4, 5, 7], 1), random([3, 4, 5, 7], 2)],
            &[random([7], 3), random([7], 4)],
            |[x, shortcut], vectors| {
                let around = Around { fusion, shortcut: Some(shortcut.clone()) };
                batch_norm_train(x.clone(), affine(vectors), around).output
            },
        );
        agrees([random([6, 7], 1)], &[random([7], 3), random([7], 4)], |[x], vectors| {
            batch_norm_train(x.clone(), affine(vectors), Around { fusion, shortcut: None }).output
        });
        agrees([random([3, 4, 5, 7], 1)], &[random([7], 3), random([7], 4)], |[x], vectors| {
            let given = [random([7], 5), random([7], 6).square() + 0.5].map(|tensor| tensor.inner().cast(x.dtype()));
            batch_norm(x.clone(), affine(vectors), given, Around { fusion, shortcut: None })
        });
    }
}

#[test]
fn the_statistics_of_a_batch_agree_with_burn() {
    let x = random([3, 4, 5, 7], 1);
    let of = |x: Tensor<4>| {
        let vector = |seed| Tensor::from_inner(random([7], seed).inner().cast(x.dtype()));
        let affine = Affine { scale: vector(3), offset: vector(4) };
        batch_norm_train(x, affine, Around { fusion: Fusion::None, shortcut: None })
    };
    let (found, expected) = (of(x.clone()), of(double(&x)));
    assert!(error(found.mean, expected.mean) < 1e-5);
    assert!(error(found.variance, expected.variance) < 1e-5);
}

#[test]
fn average_pools_agree_with_burn() {
    agrees([random([3, 4, 5, 7], 1)], &[], |[x], _| global_average_pool(x.clone()));
}

/// The cell as one operation against the cell put together from burn's operations.
#[test]
fn a_whole_cell_agrees_with_burn() {
    let groups = Groups { count: 8, by_row: false };
    for activation in [Activation::Softplus, Activation::Relu] {
        let images = [random([3, 6, 5, 16], 1), random([3, 6, 5, 16], 2), random([32, 16, 3, 3], 3), random([16, 32, 3, 3], 4)];
        let vectors = [32, 32, 16, 16, 16, 16].map(|size| random([size], size as u64));
        agrees(images, &vectors, |[z, u, conv_a, conv_b], vectors| {
            let norm = |index: usize| affine(&vectors[2 * index..]);
            let (conv_a, conv_b) = (conv_a.clone() * 0.1, conv_b.clone() * 0.1);
            let [norm_1, norm_2, norm_3] = [0, 1, 2].map(norm);
            let cell = ImageCell { conv_a, norm_1, conv_b, norm_2, norm_3, activation, groups };
            cell.step(z, u).unwrap_or_else(|| composed(&cell, z, u))
        });
    }
}

fn composed(cell: &ImageCell, z: &Tensor<4>, u: &Tensor<4>) -> Tensor<4> {
    let norm = |x, affine: &Affine, fusion| group_norm(x, affine.clone(), cell.groups, Around { fusion, shortcut: None });
    let activating = Fusion::Before(cell.activation);
    let inner = norm(conv2d(z.clone(), cell.conv_a.clone(), 1), &cell.norm_1, activating);
    let change = norm(u.clone() + conv2d(inner, cell.conv_b.clone(), 1), &cell.norm_2, Fusion::None);
    norm(z.clone() + change, &cell.norm_3, activating)
}

#[test]
fn a_held_cell_gives_the_bits_of_a_step_and_its_linearisation_the_gradient() {
    let plain = |shape, seed| random(shape, seed).inner();
    let vector = |size, seed| random([size], seed).inner();
    let norm = |size| Affine { scale: vector(size, 5), offset: vector(size, 6) };
    let cell = ImageCell {
        conv_a: plain([32, 16, 3, 3], 3) * 0.1,
        norm_1: norm(32),
        conv_b: plain([16, 32, 3, 3], 4) * 0.1,
        norm_2: norm(16),
        norm_3: norm(16),
        activation: Activation::Softplus,
        groups: Groups { count: 8, by_row: true },
    };
    let (z, u, v) = (plain([3, 4, 4, 16], 1), plain([3, 4, 4, 16], 2), plain([3, 4, 4, 16], 7));
    let step = cell.step(&z, &u).expect("32-bit floats on the CPU");
    assert_eq!(cell.hold(&u).expect("the same").step(z.clone()).to_data(), step.to_data());
    let tracked = Tensor::from_inner(z.clone()).require_grad();
    let expected = (cell.step(&tracked, &u).expect("the same") * Tensor::from_inner(v.clone())).sum().backward();
    let found = cell.linearise(&z, &u).expect("the same").pull_back(v);
    assert!(error(found, gradient(&tracked, &expected)) < 1e-5);
}

#[test]
fn gradient_steps_agree_with_burn() {
    let (p, g, offset) = (random([5, 7], 1).inner(), random([5, 7], 2).inner(), random([35], 3).inner());
    let step = |dtype: DType| {
        let pull = Pull { strength: 0.3, offset: offset.clone().cast(dtype) };
        descend(p.clone().cast(dtype), g.clone().cast(dtype), Some(&pull), 0.1)
    };
    assert!(error(step(DType::F32), step(DType::F64)) < 1e-6);
}
