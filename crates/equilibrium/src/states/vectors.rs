//! The arithmetic of a solver on states in this process's memory: one pass over the numbers where tensors would take several.
use std::ops::Range;
use std::sync::OnceLock;

use pulp::{Arch, Simd, WithSimd};

/// How many numbers are summed in single precision before they are added up in double.
const BLOCK: usize = 1024;

fn arch() -> Arch {
    static ARCH: OnceLock<Arch> = OnceLock::new();
    *ARCH.get_or_init(Arch::new)
}

/// `<a, b>`
pub(super) fn dot(a: &[f32], b: &[f32]) -> f64 {
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

/// For every change, given as its slot, its new and its old state: adds up its inner products with the newest change `newest - before` and with the
/// newest state, part by part.
///
/// Block by block, so that a block of all states stays in the cache while it is used several times.
pub(super) fn dots_of_changes<'a>(
    changes: impl Iterator<Item = (usize, &'a [f32], &'a [f32])> + Clone,
    newest: &[f32],
    before: &[f32],
    mut add: impl FnMut(usize, (f64, f64)),
) {
    let mut change = [0.0; BLOCK];
    for start in (0..newest.len()).step_by(BLOCK) {
        let here = start..(start + BLOCK).min(newest.len());
        let (change, state) = (&mut change[..here.len()], &newest[here.clone()]);
        subtract(change, state, &before[here.clone()]);
        for (slot, new, old) in changes.clone() {
            let (with_change, with_state) =
                arch().dispatch(DotsOfChange { new: &new[here.clone()], old: &old[here.clone()], a: change, b: state });
            add(slot, (with_change.into(), with_state.into()));
        }
    }
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
pub(super) fn subtract(y: &mut [f32], a: &[f32], b: &[f32]) {
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

/// `y <- a - b`; `(||a - b||, ||a||)`. Block by block, so that sums find the numbers in the cache.
pub(super) fn difference_with_norms(y: &mut [f32], a: &[f32], b: &[f32]) -> (f64, f64) {
    let (mut of_difference, mut of_a) = (0.0, 0.0);
    for ((y, a), b) in y.chunks_mut(BLOCK).zip(a.chunks(BLOCK)).zip(b.chunks(BLOCK)) {
        subtract(y, a, b);
        of_difference += dot(y, y);
        of_a += dot(a, a);
    }
    (of_difference.sqrt(), of_a.sqrt())
}

/// `y <- f(y, x)`, number by number.
pub(super) fn update(y: &mut [f32], x: &[f32], f: impl Fn(f32, f32) -> f32) {
    arch().dispatch(Update { y, x, f });
}

struct Update<'a, F> {
    y: &'a mut [f32],
    x: &'a [f32],
    f: F,
}

impl<F: Fn(f32, f32) -> f32> WithSimd for Update<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for (y, &x) in self.y.iter_mut().zip(self.x) {
            *y = (self.f)(*y, x);
        }
    }
}

/// Something of a row's length that is added to it.
pub(super) trait Term: Copy {
    /// An empty row.
    const NOTHING: Self;

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
pub(super) struct Scaled<'a> {
    pub(super) factor: f32,
    pub(super) x: &'a [f32],
}

impl Term for Scaled<'_> {
    const NOTHING: Self = Self { factor: 0.0, x: &[] };

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
pub(super) struct ScaledChange<'a> {
    pub(super) factor: f32,
    pub(super) new: &'a [f32],
    pub(super) old: &'a [f32],
}

impl Term for ScaledChange<'_> {
    const NOTHING: Self = Self { factor: 0.0, new: &[], old: &[] };

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

/// How many terms are added in one pass over a block; more of them take more passes, to the same sums.
const TERMS: usize = 8;

/// `y <- y + sum of terms`. Block by block, so that what is read twice is in the cache.
pub(super) fn add_combination<T: Term>(y: &mut [f32], terms: impl Iterator<Item = T> + Clone) {
    for (index, y) in y.chunks_mut(BLOCK).enumerate() {
        add_to_block(y, index * BLOCK, terms.clone());
    }
}

/// `y <- start + sum of terms`
pub(super) fn set_combination<T: Term>(y: &mut [f32], start: &[f32], terms: impl Iterator<Item = T> + Clone) {
    for (index, (y, start)) in y.chunks_mut(BLOCK).zip(start.chunks(BLOCK)).enumerate() {
        y.copy_from_slice(start);
        add_to_block(y, index * BLOCK, terms.clone());
    }
}

/// The terms are collected on the stack: nothing is allocated in a solve.
fn add_to_block<T: Term>(y: &mut [f32], from: usize, mut terms: impl Iterator<Item = T>) {
    let here = from..from + y.len();
    let mut parts = [T::NOTHING; TERMS];
    loop {
        let mut count = 0;
        for (part, term) in parts.iter_mut().zip(terms.by_ref()) {
            *part = term.part(here.clone());
            count += 1;
        }
        if count == 0 {
            return;
        }
        arch().dispatch(Combine { y, terms: &parts[..count] });
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
            let pairs = states.windows(2).enumerate().map(|(slot, pair)| (slot, pair[1].as_slice(), pair[0].as_slice()));
            let mut found = vec![(0.0, 0.0); changes.len()];
            dots_of_changes(pairs, &states[3], &states[2], |slot, part| {
                found[slot] = (found[slot].0 + part.0, found[slot].1 + part.1);
            });
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
            let mut y = start.clone();
            add_combination(&mut y, [Scaled { factor: 0.5, x: &x }, Scaled { factor: -2.0, x: &other }].into_iter());
            let expected: Vec<f32> = (0..count).map(|at| start[at] + 0.5 * x[at] - 2.0 * other[at]).collect();
            assert!(y.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-6), "{count}");

            set_combination(&mut y, &start, [ScaledChange { factor: -3.0, new: &x, old: &other }].into_iter());
            let expected: Vec<f32> = (0..count).map(|at| start[at] - 3.0 * (x[at] - other[at])).collect();
            assert!(y.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-5), "{count}");
        }
    }

    #[test]
    fn more_terms_than_fit_into_one_pass_are_added_in_order() {
        let terms: Vec<Vec<f32>> = (0..3 * TERMS + 1).map(|seed| numbers(2000, seed)).collect();
        let scaled = |x| Scaled { factor: 0.3, x };
        let mut together = vec![0.0; 2000];
        add_combination(&mut together, terms.iter().map(|x| scaled(x)));
        let mut one_by_one = vec![0.0; 2000];
        terms.iter().for_each(|x| add_combination(&mut one_by_one, [scaled(x)].into_iter()));
        assert_eq!(together, one_by_one);
    }
}
