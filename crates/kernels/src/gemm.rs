//! Matrix products of small matrices: the inner loop of everything else.
//!
//! The matrices here are small, come in dozens (one for each of Winograd's 36
//! points), and live in scratch memory, so they are computed in place, without packing.
use pulp::{MemMask, Simd, WithSimd};

use crate::InstructionSet;
use crate::instructions::multiply_add;

/// `C = A B`, or `C += A B`.
///
/// `A` is `[m, k]` with any strides, so a transposed matrix needs no copy; the rows of `B` (`[k, n]`) and `C` (`[m, n]`) are contiguous.
#[derive(Debug)]
pub struct Product<'a> {
    /// Rows of `A` and `C`, columns of `B` and `C`, and what is summed over.
    pub size: Size,
    /// The left factor.
    pub a: Factor<'a>,
    /// The right factor, rows contiguous.
    pub b: &'a [f32],
    /// From one row of `B` to the next.
    pub b_stride: usize,
    /// The result.
    pub c: &'a mut [f32],
    /// From one row of `C` to the next.
    pub c_stride: usize,
    /// Whether the product is added to what is there.
    pub accumulate: bool,
}

/// The extent of a product: `[m, k] x [k, n]`.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Rows of the result.
    pub m: usize,
    /// Columns of the result.
    pub n: usize,
    /// What is summed over.
    pub k: usize,
}

/// A left factor: the entry in row `i` and column `j` is at `i * row + j * column`.
#[derive(Clone, Copy, Debug)]
pub struct Factor<'a> {
    /// The entries.
    pub data: &'a [f32],
    /// From one row to the next.
    pub row: usize,
    /// From one column to the next.
    pub column: usize,
}

impl<'a> Factor<'a> {
    /// A matrix whose rows are contiguous, `stride` apart.
    pub fn rows(data: &'a [f32], stride: usize) -> Self {
        Self { data, row: stride, column: 1 }
    }

    /// The transpose of a matrix whose rows are contiguous, `stride` apart.
    pub fn transposed(data: &'a [f32], stride: usize) -> Self {
        Self { data, row: 1, column: stride }
    }

    /// The transpose.
    pub fn transpose(self) -> Self {
        Self { data: self.data, row: self.column, column: self.row }
    }
}

impl Product<'_> {
    /// Computes the product.
    ///
    /// # Panics
    ///
    /// If a slice is too short for what is asked.
    pub fn run(self, set: InstructionSet) {
        set.run(self);
    }

    fn check(&self) {
        let Size { m, n, k } = self.size;
        let fits = |rows, row, columns, column, len| end(rows, row, columns, column).is_some_and(|end| end <= len);
        assert!(fits(m, self.a.row, k, self.a.column, self.a.data.len()), "A is too short");
        assert!(fits(k, self.b_stride, n, 1, self.b.len()), "B is too short");
        assert!(fits(m, self.c_stride, n, 1, self.c.len()), "C is too short");
    }
}

/// Where a matrix with these strides ends, one behind its last entry; nothing where that is more than a `usize` holds.
#[inline(always)]
fn end(rows: usize, row: usize, columns: usize, column: usize) -> Option<usize> {
    if rows == 0 || columns == 0 {
        return Some(0);
    }
    let last = (rows - 1).checked_mul(row)?.checked_add((columns - 1).checked_mul(column)?)?;
    last.checked_add(1)
}

impl WithSimd for Product<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        self.check();
        let Size { m, n, .. } = self.size;
        if m == 0 || n == 0 {
            return;
        }
        let c = self.c.as_mut_ptr();
        let lanes = S::F32_LANES;
        let mut column = 0;
        // SAFETY: checked above; `c` is where the result lies; whole vectors of columns, then the mask of what is left.
        unsafe {
            while column + 2 * lanes <= n {
                self.panel::<S, 2>(simd, c, column, None);
                column += 2 * lanes;
            }
            if column + lanes <= n {
                self.panel::<S, 1>(simd, c, column, None);
                column += lanes;
            }
            if column < n {
                let mask = simd.mask_between_m32s(0, (n - column) as u32);
                self.panel::<S, 1>(simd, c, column, Some(mask));
            }
        }
    }
}

impl Product<'_> {
    /// All rows of `V` vectors of columns; with a mask, of the part of one vector that exists.
    ///
    /// # Safety
    ///
    /// [`check`](Product::check) must have passed, `c` point to the result, and `V` vectors from `column` on be columns; or `V` be one and
    /// the mask have those lanes of it that are.
    #[inline(always)]
    unsafe fn panel<S: Simd, const V: usize>(&self, simd: S, c: *mut f32, column: usize, mask: Option<MemMask<S::m32s>>) {
        // Enough sums to hide the latency of multiply-adds, and registers left for the factors.
        let tallest = if S::REGISTER_COUNT >= 32 { 8 } else { 6 };
        let mut row = 0;
        while row < self.size.m {
            // What is left over is divided evenly: tiles of few rows wait for their sums.
            let left = self.size.m - row;
            let height = if left >= 2 * tallest { tallest } else { left.div_ceil(left.div_ceil(tallest)) };
            // SAFETY: as the caller guarantees, and `height` is no more than the rows that are left; no tile is higher than that.
            unsafe {
                match height {
                    8 => self.tile::<S, 8, V>(simd, c, row, column, mask),
                    7 => self.tile::<S, 7, V>(simd, c, row, column, mask),
                    6 => self.tile::<S, 6, V>(simd, c, row, column, mask),
                    5 => self.tile::<S, 5, V>(simd, c, row, column, mask),
                    4 => self.tile::<S, 4, V>(simd, c, row, column, mask),
                    3 => self.tile::<S, 3, V>(simd, c, row, column, mask),
                    2 => self.tile::<S, 2, V>(simd, c, row, column, mask),
                    _ => self.tile::<S, 1, V>(simd, c, row, column, mask),
                }
            }
            row += height;
        }
    }

    /// `T` rows by `V` vectors, summed in registers.
    ///
    /// # Safety
    ///
    /// As [`panel`](Product::panel), and the `T` rows from `row` on must exist.
    #[inline(always)]
    unsafe fn tile<S: Simd, const T: usize, const V: usize>(
        &self,
        simd: S,
        c: *mut f32,
        row: usize,
        column: usize,
        mask: Option<MemMask<S::m32s>>,
    ) {
        let lanes = S::F32_LANES;
        let mut sums = [[simd.splat_f32s(0.0); V]; T];
        // SAFETY: `check` has passed, so entries in rows below `m`, columns below `n` and all `k` lie inside the slices, and the caller
        // asks for no others. `a` and `b` wrap where they move, since behind the last `k`, or where there is none, they may lie outside.
        unsafe {
            let c = c.add(row * self.c_stride + column);
            if self.accumulate {
                for (t, sums) in sums.iter_mut().enumerate() {
                    for (v, sum) in sums.iter_mut().enumerate() {
                        *sum = load(simd, c.add(t * self.c_stride + v * lanes), mask);
                    }
                }
            }
            let mut a = self.a.data.as_ptr().wrapping_add(row.wrapping_mul(self.a.row));
            let mut b = self.b.as_ptr().wrapping_add(column);
            // What lies behind the panel is as a rule the panel of the next product; it comes while the first rows are at work.
            let ahead = if row == 0 { self.size.k.wrapping_mul(self.b_stride) } else { 0 };
            for _ in 0..self.size.k {
                let mut right = [simd.splat_f32s(0.0); V];
                for (v, right) in right.iter_mut().enumerate() {
                    *right = load(simd, b.add(v * lanes), mask);
                    if ahead > 0 {
                        prefetch(b.wrapping_add(ahead).wrapping_add(v * lanes));
                    }
                }
                for (t, sums) in sums.iter_mut().enumerate() {
                    let left = simd.splat_f32s(*a.add(t * self.a.row));
                    for (sum, right) in sums.iter_mut().zip(right) {
                        *sum = multiply_add(simd, left, right, *sum);
                    }
                }
                a = a.wrapping_add(self.a.column);
                b = b.wrapping_add(self.b_stride);
            }
            for (t, sums) in sums.iter().enumerate() {
                for (v, &sum) in sums.iter().enumerate() {
                    store(simd, c.add(t * self.c_stride + v * lanes), sum, mask);
                }
            }
        }
    }
}

/// Asks for a cache line before it is needed; any address will do.
#[inline(always)]
fn prefetch(at: *const f32) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction is part of every x86-64, reads nothing and never fails, whatever the address.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// A vector from memory, or the part of it that the mask has; zeros elsewhere.
///
/// # Safety
///
/// The lanes of the mask, or all without one, must be readable at `from`.
#[inline(always)]
pub(crate) unsafe fn load<S: Simd>(simd: S, from: *const f32, mask: Option<MemMask<S::m32s>>) -> S::f32s {
    // SAFETY: as the caller guarantees.
    unsafe {
        match mask {
            Some(mask) => simd.mask_load_ptr_f32s(mask, from),
            None => from.cast::<S::f32s>().read_unaligned(),
        }
    }
}

/// Writes a vector, or the part of it that the mask has.
///
/// # Safety
///
/// The lanes of the mask, or all without one, must be writable at `to`.
#[inline(always)]
pub(crate) unsafe fn store<S: Simd>(simd: S, to: *mut f32, value: S::f32s, mask: Option<MemMask<S::m32s>>) {
    // SAFETY: as the caller guarantees.
    unsafe {
        match mask {
            Some(mask) => simd.mask_store_ptr_f32s(mask, to, value),
            None => to.cast::<S::f32s>().write_unaligned(value),
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
    fn products_of_all_shapes_agree_with_the_definition() {
        for set in InstructionSet::available() {
            for (m, n, k) in [(1, 1, 1), (5, 3, 2), (8, 32, 64), (13, 37, 9), (16, 128, 64), (9, 16, 1), (4, 0, 3), (3, 7, 0)] {
                for transposed in [false, true] {
                    for accumulate in [false, true] {
                        agrees(set, Size { m, n, k }, transposed, accumulate);
                    }
                }
            }
        }
    }

    fn agrees(set: InstructionSet, size: Size, transposed: bool, accumulate: bool) {
        let Size { m, n, k } = size;
        let (b_stride, c_stride) = (n + 3, n + 1);
        let (a, b, c) = (numbers(m * k, 1), numbers(k * b_stride, 2), numbers(m * c_stride, 3));
        let factor = if transposed { Factor::transposed(&a, m) } else { Factor::rows(&a, k) };
        let mut found = c.clone();
        Product { size, a: factor, b: &b, b_stride, c: &mut found, c_stride, accumulate }.run(set);
        for row in 0..m {
            for column in 0..n {
                let term = |j: usize| f64::from(a[row * factor.row + j * factor.column]) * f64::from(b[j * b_stride + column]);
                let before = if accumulate { f64::from(c[row * c_stride + column]) } else { 0.0 };
                let expected = before + (0..k).map(term).sum::<f64>();
                let found = f64::from(found[row * c_stride + column]);
                assert!((found - expected).abs() < 1e-5, "{} {size:?} at {row}, {column}: {found} {expected}", set.name());
            }
        }
    }

    /// A product of nearly empty slices.
    fn absurd(size: Size, a_strides: [usize; 2], b_stride: usize, c_stride: usize) {
        let a = Factor { data: &[1.0], row: a_strides[0], column: a_strides[1] };
        Product { size, a, b: &[1.0], b_stride, c: &mut [1.0], c_stride, accumulate: false }.run(InstructionSet::best());
    }

    const HALF: usize = usize::MAX / 2 + 1;

    #[test]
    #[should_panic = "A is too short"]
    fn a_left_factor_whose_end_overflows_is_refused() {
        absurd(Size { m: 3, n: 1, k: 1 }, [HALF, 0], 0, 0);
    }

    #[test]
    #[should_panic = "A is too short"]
    fn a_left_factor_whose_strides_overflow_together_is_refused() {
        absurd(Size { m: 2, n: 1, k: 2 }, [HALF, HALF], 0, 0);
    }

    #[test]
    #[should_panic = "B is too short"]
    fn a_right_factor_whose_end_overflows_is_refused() {
        absurd(Size { m: 1, n: 1, k: 3 }, [0, 0], HALF, 0);
    }

    #[test]
    #[should_panic = "C is too short"]
    fn a_result_whose_end_overflows_is_refused() {
        absurd(Size { m: 3, n: 1, k: 1 }, [0, 0], 0, HALF);
    }

    #[test]
    #[should_panic = "is too short"]
    fn columns_beyond_all_memory_are_refused() {
        absurd(Size { m: 1, n: usize::MAX, k: 1 }, [0, 0], 0, 0);
    }

    #[test]
    fn nothing_is_read_or_written_where_there_is_nothing_whatever_the_strides() {
        for set in InstructionSet::available() {
            for (m, n, k) in [(0, usize::MAX, 0), (usize::MAX, 0, 0), (3, 40, 0)] {
                let (mut c, stride) = if m == 3 { (vec![1.0; 120], 40) } else { (Vec::new(), HALF) };
                let a = Factor { data: &[], row: HALF, column: HALF };
                Product { size: Size { m, n, k }, a, b: &[], b_stride: HALF, c: &mut c, c_stride: stride, accumulate: false }
                    .run(set);
                assert!(c.iter().all(|&c| c == 0.0));
            }
        }
    }
}
