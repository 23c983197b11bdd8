//! The arithmetic of a solver on states in this process's memory: one pass over the numbers where tensors would take several.
use std::ops::Range;
use std::sync::OnceLock;

use burn::backend::flex::FlexTensor;
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Tensor, TensorData};
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

    pub(crate) fn row(&self, row: usize) -> &[f32] {
        &self.all()[row * self.width..(row + 1) * self.width]
    }

    /// How many rows there are.
    pub(crate) fn count(&self) -> usize {
        self.all().len() / self.width
    }

    /// Some of the rows.
    pub(crate) fn pick(&self, rows: &[usize]) -> Self {
        let mut picked = Vec::with_capacity(rows.len() * self.width);
        rows.iter().for_each(|&row| picked.extend_from_slice(self.row(row)));
        let data = TensorData::new(picked, [rows.len(), self.width]);
        Self { tensor: FlexTensor::from_data(data), width: self.width }
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

/// For every change from one state to the next, its inner products with the newest change and with the newest state.
///
/// Block by block, so that a block of all states stays in the cache while it is used several times.
pub(crate) fn dots_of_changes(states: &[&[f32]]) -> Vec<(f64, f64)> {
    let [.., before, newest] = states else { return Vec::new() };
    let mut sums = vec![(0.0, 0.0); states.len() - 1];
    let mut change = [0.0; BLOCK];
    for start in (0..newest.len()).step_by(BLOCK) {
        let here = start..(start + BLOCK).min(newest.len());
        let (change, state) = (&mut change[..here.len()], &newest[here.clone()]);
        subtract(change, state, &before[here.clone()]);
        for (pair, sums) in states.windows(2).zip(&mut sums) {
            let (with_change, with_state) =
                arch().dispatch(DotsOfChange { new: &pair[1][here.clone()], old: &pair[0][here.clone()], a: change, b: state });
            *sums = (sums.0 + f64::from(with_change), sums.1 + f64::from(with_state));
        }
    }
    sums
}

/// `(<new - old, a>, <new - old, b>)`
struct DotsOfChange<'a> {
    new: &'a [f32],
    old: &'a [f32],
    a: &'a [f32],
    b: &'a [f32],
}

impl WithSimd for DotsOfChange<'_> {
    type Output = (f32, f32);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f32, f32) {
        let ((new, new_rest), (old, old_rest)) = (S::as_simd_f32s(self.new), S::as_simd_f32s(self.old));
        let ((a, a_rest), (b, b_rest)) = (S::as_simd_f32s(self.a), S::as_simd_f32s(self.b));
        // Four sums of each kind hide the latency of the additions.
        let mut sums = [[simd.splat_f32s(0.0); 2]; 4];
        for (at, (((&new, &old), &a), &b)) in new.iter().zip(old).zip(a).zip(b).enumerate() {
            let (change, sums) = (simd.sub_f32s(new, old), &mut sums[at % 4]);
            sums[0] = simd.mul_add_e_f32s(change, a, sums[0]);
            sums[1] = simd.mul_add_e_f32s(change, b, sums[1]);
        }
        let mut rest = [0.0, 0.0];
        for (((new, old), a), b) in new_rest.iter().zip(old_rest).zip(a_rest).zip(b_rest) {
            rest[0] += (new - old) * a;
            rest[1] += (new - old) * b;
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
    let norms = a.iter().zip(b.iter()).map(|(a, b)| append_difference(&mut difference, a, b)).collect();
    (difference, norms)
}

/// `a - b`, at the end of others; `(||a - b||, ||a||)`. Block by block, so that sums find the numbers in the cache.
fn append_difference(rows: &mut Vec<f32>, a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut of_difference, mut of_a) = (0.0, 0.0);
    for (a, b) in a.chunks(BLOCK).zip(b.chunks(BLOCK)) {
        let difference = appended(rows, a);
        subtract(difference, a, b);
        of_difference += dot(difference, difference);
        of_a += dot(a, a);
    }
    (of_difference.sqrt(), of_a.sqrt())
}

/// A block at the end of others, to be overwritten: it starts as a copy, which is still in the cache when it is, since filling all rows
/// with zeros beforehand would be one more pass through memory.
fn appended<'a>(rows: &'a mut Vec<f32>, block: &[f32]) -> &'a mut [f32] {
    let from = rows.len();
    rows.extend_from_slice(block);
    &mut rows[from..]
}

/// Something of a row's length that is added to it.
pub(crate) trait Term: Copy {
    /// How many times.
    fn factor(&self) -> f32;

    /// A part of it.
    fn part(self, here: Range<usize>) -> Self;

    /// The vector with this number.
    fn vector<S: Simd>(&self, simd: S, index: usize) -> S::f32s;

    /// The entry at this place.
    fn entry(&self, at: usize) -> f32;
}

/// `factor x`
#[derive(Clone, Copy)]
pub(crate) struct Scaled<'a> {
    pub(crate) factor: f32,
    pub(crate) x: &'a [f32],
}

impl Term for Scaled<'_> {
    fn factor(&self) -> f32 {
        self.factor
    }

    fn part(self, here: Range<usize>) -> Self {
        Self { x: &self.x[here], ..self }
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, _: S, index: usize) -> S::f32s {
        S::as_simd_f32s(self.x).0[index]
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> f32 {
        self.x[at]
    }
}

/// `factor (new - old)`
#[derive(Clone, Copy)]
pub(crate) struct ScaledChange<'a> {
    pub(crate) factor: f32,
    pub(crate) new: &'a [f32],
    pub(crate) old: &'a [f32],
}

impl Term for ScaledChange<'_> {
    fn factor(&self) -> f32 {
        self.factor
    }

    fn part(self, here: Range<usize>) -> Self {
        Self { new: &self.new[here.clone()], old: &self.old[here], ..self }
    }

    #[inline(always)]
    fn vector<S: Simd>(&self, simd: S, index: usize) -> S::f32s {
        simd.sub_f32s(S::as_simd_f32s(self.new).0[index], S::as_simd_f32s(self.old).0[index])
    }

    #[inline(always)]
    fn entry(&self, at: usize) -> f32 {
        self.new[at] - self.old[at]
    }
}

/// `start` and the sum of all terms, at the end of other rows. Block by block, so that what is read twice is in the cache.
pub(crate) fn append_combination<T: Term>(rows: &mut Vec<f32>, start: &[f32], terms: &[T]) {
    let mut parts = Vec::with_capacity(terms.len());
    for (index, start) in start.chunks(BLOCK).enumerate() {
        let from = index * BLOCK;
        parts.clear();
        parts.extend(terms.iter().map(|term| term.part(from..from + start.len())));
        arch().dispatch(Combine { y: appended(rows, start), terms: &parts });
    }
}

/// `y <- y + sum of terms`
struct Combine<'a, T> {
    y: &'a mut [f32],
    terms: &'a [T],
}

impl<T: Term> WithSimd for Combine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let (vectors, rest) = S::as_mut_simd_f32s(self.y);
        let done = vectors.len() * S::F32_LANES;
        let (groups, more) = pulp::as_arrays_mut::<4, _>(vectors);
        let grouped = 4 * groups.len();
        for (index, sums) in groups.iter_mut().enumerate() {
            for term in self.terms {
                let factor = simd.splat_f32s(term.factor());
                for (lane, sum) in sums.iter_mut().enumerate() {
                    *sum = simd.mul_add_e_f32s(factor, term.vector(simd, 4 * index + lane), *sum);
                }
            }
        }
        for (index, sum) in more.iter_mut().enumerate() {
            for term in self.terms {
                *sum = simd.mul_add_e_f32s(simd.splat_f32s(term.factor()), term.vector(simd, grouped + index), *sum);
            }
        }
        for (index, sum) in rest.iter_mut().enumerate() {
            for term in self.terms {
                *sum += term.factor() * term.entry(done + index);
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
    fn inner_products_of_changes_are_those_of_the_changes_written_down() {
        for count in [0, 1, 17, 64, 1024, 3001] {
            let states: Vec<Vec<f32>> = (1..5).map(|seed| numbers(count, seed)).collect();
            let changes: Vec<Vec<f32>> =
                states.windows(2).map(|pair| pair[1].iter().zip(&pair[0]).map(|(new, old)| new - old).collect()).collect();
            let found = dots_of_changes(&states.iter().map(Vec::as_slice).collect::<Vec<_>>());
            assert_eq!(found.len(), changes.len());
            for (change, (with_change, with_state)) in changes.iter().zip(found) {
                assert!((with_change - dot(change, &changes[2])).abs() < 1e-3, "{count}");
                assert!((with_state - dot(change, &states[3])).abs() < 1e-3, "{count}");
            }
        }
    }

    #[test]
    fn combinations_of_any_length_follow_their_formula() {
        for count in [0, 3, 16, 100, 1024, 3001] {
            let (start, x, other) = (numbers(count, 1), numbers(count, 2), numbers(count, 3));
            let mut y = vec![7.0];
            append_combination(&mut y, &start, &[Scaled { factor: 0.5, x: &x }, Scaled { factor: -2.0, x: &other }]);
            let expected: Vec<f32> = (0..count).map(|at| start[at] + 0.5 * x[at] - 2.0 * other[at]).collect();
            assert!(y[1..].iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{count}");

            y.truncate(1);
            append_combination(&mut y, &start, &[ScaledChange { factor: -3.0, new: &x, old: &other }]);
            let expected: Vec<f32> = (0..count).map(|at| start[at] - 3.0 * (x[at] - other[at])).collect();
            assert!(y[1..].iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{count}");
            assert!(y.len() == count + 1 && y[0] == 7.0);
        }
    }
}
