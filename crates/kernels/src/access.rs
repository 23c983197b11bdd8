//! Numbers that a pass over some data reads and writes; they may be the same ones.
//!
//! Most passes work in place. Slices cannot say that (none may be read through while another writes the same numbers), so a pass holds
//! [`Readable`] and [`Writable`] views instead: shared cells, which may.
use std::cell::Cell;
use std::marker::PhantomData;

use pulp::{MemMask, Simd};

use crate::gemm::{load, store};

/// Numbers to be read, whether or not they are written meanwhile.
#[derive(Clone, Copy)]
pub(crate) struct Readable<'a> {
    start: *const f32,
    len: usize,
    /// Neither a slice nor cells are given back or borrowed exclusively while this exists.
    numbers: PhantomData<&'a [Cell<f32>]>,
}

/// Numbers to be written, and perhaps read by the same pass.
#[derive(Clone, Copy)]
pub(crate) struct Writable<'a>(&'a [Cell<f32>]);

impl<'a> From<&'a [f32]> for Readable<'a> {
    #[inline(always)]
    fn from(numbers: &'a [f32]) -> Self {
        Self { start: numbers.as_ptr(), len: numbers.len(), numbers: PhantomData }
    }
}

impl<'a> From<Writable<'a>> for Readable<'a> {
    #[inline(always)]
    fn from(Writable(cells): Writable<'a>) -> Self {
        Self { start: cells.as_ptr().cast(), len: cells.len(), numbers: PhantomData }
    }
}

impl<'a> From<&'a mut [f32]> for Writable<'a> {
    #[inline(always)]
    fn from(numbers: &'a mut [f32]) -> Self {
        Self(Cell::from_mut(numbers).as_slice_of_cells())
    }
}

impl Readable<'_> {
    /// How many numbers there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.len
    }

    /// The vector at `at`, or the part of it that the mask has; zeros elsewhere.
    ///
    /// # Safety
    ///
    /// The lanes of the mask, or all without one, must be below [`len`](Readable::len) counted from `at`.
    #[inline(always)]
    pub(crate) unsafe fn load<S: Simd>(self, simd: S, at: usize, mask: Option<MemMask<S::m32s>>) -> S::f32s {
        debug_assert!(at + if mask.is_some() { 1 } else { S::F32_LANES } <= self.len);
        // SAFETY: `start` came from a slice of `len` numbers that lives as long as this view, and there is no exclusive reference to
        // them: they are borrowed as a slice, or as cells. The caller stays below `len`.
        unsafe { load(simd, self.start.add(at), mask) }
    }
}

impl Writable<'_> {
    /// How many numbers there are.
    #[inline(always)]
    pub(crate) fn len(self) -> usize {
        self.0.len()
    }

    /// Writes a vector at `at`, or the part of it that the mask has.
    ///
    /// # Safety
    ///
    /// The lanes of the mask, or all without one, must be below [`len`](Writable::len) counted from `at`.
    #[inline(always)]
    pub(crate) unsafe fn store<S: Simd>(self, simd: S, at: usize, value: S::f32s, mask: Option<MemMask<S::m32s>>) {
        debug_assert!(at + if mask.is_some() { 1 } else { S::F32_LANES } <= self.0.len());
        // SAFETY: cells have the layout of what they hold and may be written through a shared reference; they belong to one thread. The
        // caller stays below `len`.
        unsafe { store(simd, self.0.as_ptr().cast::<f32>().cast_mut().add(at), value, mask) }
    }
}
