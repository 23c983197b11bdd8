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

    /// All numbers, row after row.
    pub(crate) fn all(&self) -> &[f32] {
        self.tensor.as_slice().expect("made contiguous on construction")
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &[f32]> {
        self.all().chunks_exact(self.width)
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

/// `(<x, a>, <x, b>)`, reading `x` once.
pub(crate) fn two_dots(x: &[f32], a: &[f32], b: &[f32]) -> (f64, f64) {
    let blocks = x.chunks(BLOCK).zip(a.chunks(BLOCK)).zip(b.chunks(BLOCK));
    blocks.fold((0.0, 0.0), |sums, ((x, a), b)| {
        let (with_a, with_b) = arch().dispatch(TwoDots { x, a, b });
        (sums.0 + f64::from(with_a), sums.1 + f64::from(with_b))
    })
}

struct TwoDots<'a> {
    x: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl WithSimd for TwoDots<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f32, f32) {
        let (x, x_rest) = S::as_simd_f32s(self.x);
        let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(self.a), S::as_simd_f32s(self.b));
        let mut sums = [[simd.splat_f32s(0.0); 2]; 4];
        for (at, ((&x, &a), &b)) in x.iter().zip(a).zip(b).enumerate() {
            let sums = &mut sums[at % 4];
            sums[0] = simd.mul_add_e_f32s(x, a, sums[0]);
            sums[1] = simd.mul_add_e_f32s(x, b, sums[1]);
        }
        let mut rest = [0.0, 0.0];
        for ((x, a), b) in x_rest.iter().zip(a_rest).zip(b_rest) {
            rest[0] += x * a;
            rest[1] += x * b;
        }
        let mut totals = [0.0, 0.0];
        for side in 0..2 {
            let first = simd.add_f32s(sums[0][side], sums[1][side]);
            let sum = simd.add_f32s(first, simd.add_f32s(sums[2][side], sums[3][side]));
            totals[side] = simd.reduce_sum_f32s(sum) + rest[side];
        }
        (totals[0], totals[1])
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
    let mut difference = Vec::with_capacity(a.all().len());
    let rows = a.iter().zip(b.iter()).map(|(a, b)| subtract_with_norms(appended(&mut difference, a), a, b));
    let norms = rows.collect();
    (difference, norms)
}

/// A row at the end of others, to be overwritten: it starts as a copy, which is still in the cache when it is, since filling all rows with
/// zeros beforehand would be one more pass through memory.
pub(crate) fn appended<'a>(rows: &'a mut Vec<f32>, row: &[f32]) -> &'a mut [f32] {
    let from = rows.len();
    rows.extend_from_slice(row);
    &mut rows[from..]
}

/// `y <- a - b`; `(||y||, ||a||)`. Block by block, so that sums find the numbers in the cache.
fn subtract_with_norms(y: &mut [f32], a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut of_y, mut of_a) = (0.0, 0.0);
    for ((y, a), b) in y.chunks_mut(BLOCK).zip(a.chunks(BLOCK)).zip(b.chunks(BLOCK)) {
        subtract(y, a, b);
        of_y += dot(y, y);
        of_a += dot(a, a);
    }
    (of_y.sqrt(), of_a.sqrt())
}

/// `y <- start + sum_j factors[j] xs[j]`, in one pass.
pub(crate) fn combine(y: &mut [f32], start: &[f32], factors: &[f32], xs: &[&[f32]]) {
    assert!(
        start.len() == y.len() && factors.len() == xs.len() && xs.iter().all(|x| x.len() == y.len()),
        "vectors of one length"
    );
    let mut terms = Vec::with_capacity(xs.len());
    for (index, y) in y.chunks_mut(BLOCK).enumerate() {
        let here = index * BLOCK..index * BLOCK + y.len();
        terms.clear();
        terms.extend(factors.iter().zip(xs).map(|(&factor, x)| (factor, &x[here.clone()])));
        arch().dispatch(Combine { y, start: &start[here], terms: &terms });
    }
}

struct Combine<'a> {
    y: &'a mut [f32],
    start: &'a [f32],
    terms: &'a [(f32, &'a [f32])],
}

impl WithSimd for Combine<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let ((y, y_rest), (start, start_rest)) = (S::as_mut_simd_f32s(self.y), S::as_simd_f32s(self.start));
        let done = self.start.len() - start_rest.len();
        let (groups, more) = pulp::as_arrays_mut::<4, _>(y);
        let grouped = 4 * groups.len();
        for (index, y) in groups.iter_mut().enumerate() {
            let mut sums = [start[4 * index], start[4 * index + 1], start[4 * index + 2], start[4 * index + 3]];
            for &(factor, x) in self.terms {
                let (x, _) = S::as_simd_f32s(x);
                let (x, factor) = (&x[4 * index..4 * index + 4], simd.splat_f32s(factor));
                for lane in 0..4 {
                    sums[lane] = simd.mul_add_e_f32s(factor, x[lane], sums[lane]);
                }
            }
            *y = sums;
        }
        for (index, y) in more.iter_mut().enumerate() {
            *y = start[grouped + index];
            for &(factor, x) in self.terms {
                *y = simd.mul_add_e_f32s(simd.splat_f32s(factor), S::as_simd_f32s(x).0[grouped + index], *y);
            }
        }
        for (index, y) in y_rest.iter_mut().enumerate() {
            *y = start_rest[index];
            for &(factor, x) in self.terms {
                *y += factor * x[done + index];
            }
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
    fn two_inner_products_are_those_of_one_each() {
        for count in [0, 1, 17, 64, 1024, 3001] {
            let (x, a, b) = (numbers(count, 1), numbers(count, 2), numbers(count, 3));
            let (with_a, with_b) = two_dots(&x, &a, &b);
            assert!((with_a - dot(&x, &a)).abs() < 1e-3 && (with_b - dot(&x, &b)).abs() < 1e-3, "{count}");
        }
    }

    #[test]
    fn combinations_of_any_length_follow_their_formula() {
        for count in [0, 3, 16, 100, 1024, 3001] {
            let (start, x, other) = (numbers(count, 1), numbers(count, 2), numbers(count, 3));
            let mut y = vec![f32::NAN; count];
            combine(&mut y, &start, &[0.5, -2.0], &[&x, &other]);
            let expected = (0..count).map(|at| start[at] + 0.5 * x[at] - 2.0 * other[at]);
            assert!(y.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{count}");
        }
    }
}
