//! The arithmetic of a solver on states in this process's memory: one pass over the numbers where tensors would take several.
use std::sync::OnceLock;

use burn::backend::flex::FlexTensor;
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Tensor};
use pulp::{Arch, Simd, WithSimd};

/// How many numbers are summed in single precision before they are added up in double.
const BLOCK: usize = 1024;

/// The rows of a matrix of 32-bit floats on the CPU.
pub(crate) struct HostRows {
    tensor: FlexTensor,
    width: usize,
}

impl HostRows {
    /// The rows of a tensor, if they are such.
    pub(crate) fn of(tensor: &Tensor<2>) -> Option<Self> {
        let [_, width] = tensor.dims();
        let DispatchTensor { kind, autodiff: DispatchAutodiffContext::Disabled } = tensor.clone().into_dispatch() else {
            return None;
        };
        #[allow(irrefutable_let_patterns)] // The CPU may be the only backend there is.
        let DispatchTensorKind::Flex(BackendTensor::Float(tensor)) = kind else { return None };
        (tensor.dtype() == DType::F32).then(|| Self { tensor: tensor.to_contiguous(), width })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.tensor.as_slice().expect("made contiguous on construction").chunks_exact(self.width)
    }
}

fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(Arch::new)
}

/// `<a, b>`
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.chunks(BLOCK).zip(b.chunks(BLOCK)).map(|(a, b)| f64::from(arch().dispatch(Dot { a, b }))).sum()
}

struct Dot<'a> {
    a: &'a [f32],
    b: &'a [f32],
}

impl WithSimd for Dot<'_> {
    type Output = f32;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f32 {
        let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(self.a), S::as_simd_f32s(self.b));
        // Four sums hide the latency of the additions.
        let mut sums = [simd.splat_f32s(0.0); 4];
        let (a, a_more) = pulp::as_arrays::<4, _>(a);
        let (b, b_more) = pulp::as_arrays::<4, _>(b);
        for (a, b) in a.iter().zip(b) {
            for lane in 0..4 {
                sums[lane] = simd.mul_add_e_f32s(a[lane], b[lane], sums[lane]);
            }
        }
        for (&a, &b) in a_more.iter().zip(b_more) {
            sums[0] = simd.mul_add_e_f32s(a, b, sums[0]);
        }
        let sum = simd.add_f32s(simd.add_f32s(sums[0], sums[1]), simd.add_f32s(sums[2], sums[3]));
        simd.reduce_sum_f32s(sum) + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f32>()
    }
}

/// `y <- y + factor x`
pub(crate) fn add_scaled(y: &mut [f32], factor: f32, x: &[f32]) {
    arch().dispatch(AddScaled { y, factor, x });
}

struct AddScaled<'a> {
    y: &'a mut [f32],
    factor: f32,
    x: &'a [f32],
}

impl WithSimd for AddScaled<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((y, y_rest), (x, x_rest)) = (S::as_mut_simd_f32s(self.y), S::as_simd_f32s(self.x));
        let factor = simd.splat_f32s(self.factor);
        for (y, &x) in y.iter_mut().zip(x) {
            *y = simd.mul_add_e_f32s(factor, x, *y);
        }
        for (y, x) in y_rest.iter_mut().zip(x_rest) {
            *y += self.factor * x;
        }
    }
}

/// `y <- a - b`
pub(crate) fn subtract(y: &mut [f32], a: &[f32], b: &[f32]) {
    arch().dispatch(Subtract { y, a, b });
}

struct Subtract<'a> {
    y: &'a mut [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl WithSimd for Subtract<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        // Plain enough for the compiler, once it may use the wide instructions.
        for ((y, a), b) in self.y.iter_mut().zip(self.a).zip(self.b) {
            *y = a - b;
        }
    }
}

/// `a - b` of every row, with the norms of that and of `a`.
pub(crate) fn difference_with_norms(a: &HostRows, b: &HostRows) -> (Vec<f32>, Vec<(f64, f64)>) {
    let mut difference = Vec::new();
    let mut norms = Vec::new();
    for (a, b) in a.iter().zip(b.iter()) {
        let from = difference.len();
        difference.resize(from + a.len(), 0.0);
        let row = &mut difference[from..];
        subtract(row, a, b);
        norms.push((dot(row, row).sqrt(), dot(a, a).sqrt()));
    }
    (difference, norms)
}

/// Adds a combination of vectors to `y`, `y <- y + sum_j factors[j] xs[j]`, block by block so that `y` stays in the cache.
pub(crate) fn add_combination<'a>(y: &mut [f32], terms: impl Iterator<Item = (f32, &'a [f32])> + Clone) {
    for (index, y) in y.chunks_mut(BLOCK).enumerate() {
        let at = index * BLOCK..index * BLOCK + y.len();
        for (factor, x) in terms.clone() {
            add_scaled(y, factor, &x[at.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    #[test]
    fn inner_products_of_any_length_agree_with_double_precision() {
        for count in [0, 1, 5, 16, 63, 64, 1023, 1024, 5000] {
            let (a, b) = (numbers(count, 1), numbers(count, 2));
            let expected: f64 = a.iter().zip(&b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum();
            assert!((dot(&a, &b) - expected).abs() < 1e-5 * (count + 1) as f64, "{count}");
        }
    }

    #[test]
    fn combinations_are_added_in_every_block() {
        let (mut y, x, other) = (numbers(3000, 1), numbers(3000, 2), numbers(3000, 3));
        let expected: Vec<f32> = (0..3000).map(|at| y[at] + 0.5 * x[at] - 2.0 * other[at]).collect();
        add_combination(&mut y, [(0.5, &x[..]), (-2.0, &other[..])].into_iter());
        assert!(y.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-6));
    }
}
