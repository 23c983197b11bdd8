//! The fused cell agrees with its definition in double precision, and its gradients with differences of that.
mod reference;

use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::cell::{CellGradients, CellParameters, CellScratch, PreparedCell, ResidualCell};
use fedeq_kernels::norm::{Affine, BatchShape, Fusion, Norm, NormScope};
use reference::{Inputs, Slopes, assert_close, dot, double, normalize, numbers};

/// The arguments of a cell: state, injected input and parameters, in this order.
const ARGUMENTS: [&str; 10] = ["z", "u", "conv_a", "scale_1", "offset_1", "conv_b", "scale_2", "offset_2", "scale_3", "offset_3"];

fn arguments(cell: &ResidualCell, batch: usize) -> Vec<Vec<f32>> {
    let (state, c) = (cell.state_len() * batch, cell.channels);
    let lengths = [state, state, 18 * c * c, 2 * c, 2 * c, 18 * c * c, c, c, c, c];
    let mut arguments: Vec<_> = lengths.iter().zip(1..).map(|(&length, seed)| numbers(length, seed)).collect();
    // Convolutions that leave the size of their input about the same.
    for index in [2, 5] {
        arguments[index].iter_mut().for_each(|w| *w *= 0.3 / (c as f32).sqrt());
    }
    arguments
}

fn parameters(arguments: &[Vec<f32>]) -> CellParameters<'_> {
    let affine = |index: usize| Affine { scale: &arguments[index], offset: &arguments[index + 1] };
    CellParameters { conv_a: &arguments[2], norm_1: affine(3), conv_b: &arguments[5], norm_2: affine(6), norm_3: affine(8) }
}

/// A 3x3 convolution with zeros around the image.
fn convolve(cell: &ResidualCell, [from, to]: [usize; 2], x: &[f64], w: &[f64]) -> Vec<f64> {
    let (height, width) = (cell.height as isize, cell.width as isize);
    let mut y = vec![0.0; x.len() / from * to];
    for (pixel, y) in y.chunks_exact_mut(to).enumerate() {
        let pixel = pixel as isize;
        let (image, row, column) = (pixel / (height * width), pixel / width % height, pixel % width);
        for (down, right) in (-1..=1).flat_map(|down| (-1..=1).map(move |right| (down, right))) {
            let (row, column) = (row + down, column + right);
            if row < 0 || column < 0 || row >= height || column >= width {
                continue;
            }
            let x = &x[(((image * height + row) * width + column) as usize) * from..][..from];
            let tap = ((down + 1) * 3 + right + 1) as usize;
            for (to, y) in y.iter_mut().enumerate() {
                *y += x.iter().enumerate().map(|(at, x)| x * w[(to * from + at) * 9 + tap]).sum::<f64>();
            }
        }
    }
    y
}

/// `GN(phi(x))`, or `GN(x)` without an activation.
fn normalized(cell: &ResidualCell, fusion: Fusion, x: Vec<f64>, scale: &[f64], offset: &[f64]) -> Vec<f64> {
    let channels = scale.len();
    let shape =
        BatchShape { batch: x.len() / (cell.height * cell.width * channels), height: cell.height, width: cell.width, channels };
    let norm = Norm { groups: cell.groups, ..Norm::group(shape, cell.scope, fusion) };
    normalize(&norm, &Inputs { x, scale: scale.to_vec(), offset: offset.to_vec(), shortcut: None, moments: None })
}

fn sum(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a + b).collect()
}

/// The definition.
fn step(cell: &ResidualCell, arguments: &[Vec<f64>]) -> Vec<f64> {
    let [z, u, conv_a, scale_1, offset_1, conv_b, scale_2, offset_2, scale_3, offset_3] = arguments else { unreachable!() };
    let (c, before) = (cell.channels, Fusion::Before(cell.activation));
    let inner = normalized(cell, before, convolve(cell, [c, 2 * c], z, conv_a), scale_1, offset_1);
    let change = convolve(cell, [2 * c, c], &inner, conv_b);
    let change = normalized(cell, Fusion::None, sum(u, &change), scale_2, offset_2);
    normalized(cell, before, sum(z, &change), scale_3, offset_3)
}

/// Cells of many sorts with a number of samples.
fn cases() -> Vec<(ResidualCell, usize)> {
    let mut cases = Vec::new();
    for (activation, scope) in [
        (Activation::Softplus, NormScope::Plane),
        (Activation::Softplus, NormScope::Row),
        (Activation::Relu, NormScope::Plane),
        (Activation::Relu, NormScope::Row),
    ] {
        let sizes = [(1, 1, 8, 8, 3), (5, 4, 8, 8, 2), (7, 9, 24, 8, 1), (3, 2, 40, 4, 2), (4, 6, 12, 2, 3)];
        cases.extend(sizes.map(|(height, width, channels, groups, batch)| {
            (ResidualCell { height, width, channels, groups, activation, scope }, batch)
        }));
    }
    cases
}

fn name(set: InstructionSet, cell: &ResidualCell) -> String {
    format!("{} {cell:?}", set.name())
}

#[test]
fn a_step_agrees_with_the_definition() {
    for (cell, batch) in cases() {
        let arguments = arguments(&cell, batch);
        let expected = step(&cell, &arguments.iter().map(|x| double(x)).collect::<Vec<_>>());
        for set in InstructionSet::available() {
            let prepared = PreparedCell::new(set, &cell, parameters(&arguments));
            let (mut scratch, mut out) = (CellScratch::new(), vec![f32::NAN; expected.len()]);
            prepared.step(&arguments[0], &arguments[1], &mut out, &mut scratch);
            assert_close(&out, &expected, 1e-4, &name(set, &cell));
            let mut saving = vec![f32::NAN; expected.len()];
            let saved = prepared.step_saving(&arguments[0], &arguments[1], &mut saving, &mut scratch);
            scratch.recycle(saved);
            assert_eq!(out, saving, "{}: saving changes nothing", name(set, &cell));
        }
    }
}

#[test]
fn gradients_of_a_step_agree_with_differences() {
    for (cell, batch) in cases() {
        let arguments = arguments(&cell, batch);
        let exact: Vec<Vec<f64>> = arguments.iter().map(|x| double(x)).collect();
        let gradient = numbers(arguments[0].len(), 77);
        let loss = |index: usize, x: &[f64]| {
            let mut changed = exact.clone();
            changed[index] = x.to_vec();
            dot(&step(&cell, &changed), &double(&gradient))
        };
        let slopes: Vec<Slopes> = (0..10).map(|index| Slopes::new(|x| loss(index, x), &exact[index])).collect();
        for set in InstructionSet::available() {
            for (index, found) in gradients(set, &cell, &arguments, &gradient).iter().enumerate() {
                slopes[index].assert_are_of(found, 1e-3, &format!("{} {}", name(set, &cell), ARGUMENTS[index]));
            }
        }
    }
}

/// All gradients in the order of the arguments.
fn gradients(set: InstructionSet, cell: &ResidualCell, arguments: &[Vec<f32>], gradient: &[f32]) -> [Vec<f32>; 10] {
    let prepared = PreparedCell::new(set, cell, parameters(arguments));
    let (mut scratch, mut out) = (CellScratch::new(), vec![f32::NAN; gradient.len()]);
    let saved = prepared.step_saving(&arguments[0], &arguments[1], &mut out, &mut scratch);
    let CellGradients { z, u, conv_a, norm_1, conv_b, norm_2, norm_3 } =
        saved.backward(&prepared, &arguments[0], gradient, &mut scratch);
    [z, u, conv_a, norm_1.scale, norm_1.offset, conv_b, norm_2.scale, norm_2.offset, norm_3.scale, norm_3.offset]
}

#[test]
fn pulling_back_is_the_gradient_of_the_state() {
    for (cell, batch) in cases() {
        let arguments = arguments(&cell, batch);
        let gradient = numbers(arguments[0].len(), 77);
        for set in InstructionSet::available() {
            let expected = gradients(set, &cell, &arguments, &gradient);
            let prepared = PreparedCell::new(set, &cell, parameters(&arguments));
            let mut scratch = CellScratch::new();
            let near = prepared.linearise(&arguments[0], &arguments[1], &mut scratch);
            scratch.recycle(near);
            let near = prepared.linearise(&arguments[0], &arguments[1], &mut scratch);
            for _ in 0..2 {
                let mut found = vec![f32::NAN; gradient.len()];
                near.pull_back(&prepared, &gradient, &mut found, &mut scratch);
                assert_eq!(found, expected[0], "{}", name(set, &cell));
            }
        }
    }
}

#[test]
fn a_sample_gives_the_same_bits_in_any_batch() {
    let cells = [(14, 14, 64), (5, 7, 16), (8, 8, 40)].map(|(height, width, channels)| {
        [NormScope::Plane, NormScope::Row].map(|scope| ResidualCell {
            height,
            width,
            channels,
            groups: 8,
            activation: Activation::Softplus,
            scope,
        })
    });
    for cell in cells.into_iter().flatten() {
        let (batch, len) = (7, cell.state_len());
        let arguments = arguments(&cell, batch);
        let gradient = numbers(batch * len, 77);
        for set in InstructionSet::available() {
            let prepared = PreparedCell::new(set, &cell, parameters(&arguments));
            let together = results(&prepared, &arguments[0], &arguments[1], &gradient);
            for samples in [0..1, 3..4, 2..5, 1..7] {
                let here = samples.start * len..samples.end * len;
                let apart = results(&prepared, &arguments[0][here.clone()], &arguments[1][here.clone()], &gradient[here.clone()]);
                for (apart, together) in apart.iter().zip(&together) {
                    assert!(apart[..] == together[here.clone()], "{} {samples:?}", name(set, &cell));
                }
            }
        }
    }
}

/// A step and a pulled back vector.
fn results(prepared: &PreparedCell, z: &[f32], u: &[f32], v: &[f32]) -> [Vec<f32>; 2] {
    let (mut out, mut back, mut scratch) = (vec![f32::NAN; z.len()], vec![f32::NAN; z.len()], CellScratch::new());
    prepared.step(z, u, &mut out, &mut scratch);
    prepared.linearise(z, u, &mut scratch).pull_back(prepared, v, &mut back, &mut scratch);
    [out, back]
}

#[test]
fn no_samples_are_no_problem() {
    let cell =
        ResidualCell { height: 3, width: 3, channels: 8, groups: 8, activation: Activation::Relu, scope: NormScope::Plane };
    let arguments = arguments(&cell, 0);
    let found = gradients(InstructionSet::best(), &cell, &arguments, &[]);
    assert!(found[0].is_empty() && found[2].iter().all(|w| *w == 0.0));
}
