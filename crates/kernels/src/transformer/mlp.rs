//! The MLP of a layer, `gelu(x W_1 + b_1) W_2 + b_2`, computed in slices of its hidden numbers that stay in the nearest cache.
use pulp::{Simd, WithSimd};

use super::parameters::Linear;
use crate::InstructionSet;
use crate::dense::{add_column_sums, add_product, add_transposed_product, fill_rows, set_product};
use crate::elementary::{gelu, gelu_derivative};
use crate::vectors::{fit, read, transpose, write};

/// Hidden numbers of a slice.
const SLICE: usize = 64;

/// The weights, in the order they are read.
#[derive(Clone, Debug)]
pub(super) struct Mlp {
    width: usize,
    slices: Vec<Slice>,
    /// `b_2`.
    bias: Vec<f32>,
}

/// A slice of the hidden numbers, of `n` of them.
#[derive(Clone, Debug)]
struct Slice {
    /// Where it begins.
    start: usize,
    /// `[width, n]` of `W_1` and `[n]` of `b_1`.
    widen: Linear<Vec<f32>>,
    /// `[n, width]` of `W_2`.
    narrow: Vec<f32>,
}

impl Slice {
    fn count(&self) -> usize {
        self.widen.bias.len()
    }

    /// Which numbers of the hidden ones of `rows` positions are those of this slice.
    fn range(&self, rows: usize) -> std::ops::Range<usize> {
        self.start * rows..(self.start + self.count()) * rows
    }
}

/// What the backward pass needs: for each slice, `[rows, n]`.
#[derive(Clone, Debug, Default)]
pub(super) struct Hidden {
    activated: Vec<f32>,
    slope: Vec<f32>,
}

/// Weights for the way back: for each slice, `[n, width]` of `W_1^T` and `[width, n]` of `W_2^T`.
#[derive(Clone, Debug, Default)]
pub(super) struct MlpTransposed(Vec<[Vec<f32>; 2]>);

impl Mlp {
    pub(super) fn new(width: usize, widen: &Linear<&[f32]>, narrow: &Linear<&[f32]>) -> Self {
        let slice = |start: usize| Slice { start, widen: Linear { weight: Vec::new(), bias: Vec::new() }, narrow: Vec::new() };
        let slices = (0..widen.bias.len()).step_by(SLICE).map(slice).collect();
        let mut new = Self { width, slices, bias: Vec::new() };
        new.update(widen, narrow);
        new
    }

    /// Other weights of the same sizes, in the same memory.
    pub(super) fn update(&mut self, widen: &Linear<&[f32]>, narrow: &Linear<&[f32]>) {
        let hidden = widen.bias.len();
        for slice in &mut self.slices {
            let (start, end) = (slice.start, hidden.min(slice.start + SLICE));
            let Linear { weight, bias } = &mut slice.widen;
            weight.clear();
            widen.weight.chunks_exact(hidden).for_each(|row| weight.extend_from_slice(&row[start..end]));
            bias.clear();
            bias.extend_from_slice(&widen.bias[start..end]);
            slice.narrow.clear();
            slice.narrow.extend_from_slice(&narrow.weight[start * self.width..end * self.width]);
        }
        self.bias.clear();
        self.bias.extend_from_slice(narrow.bias);
    }

    /// Writes the weights for the way back.
    pub(super) fn transpose_to(&self, to: &mut MlpTransposed) {
        to.0.resize_with(self.slices.len(), Default::default);
        for (slice, [widen, narrow]) in self.slices.iter().zip(&mut to.0) {
            transpose(&slice.widen.weight, slice.count(), fit(widen, slice.narrow.len()));
            transpose(&slice.narrow, self.width, fit(narrow, slice.narrow.len()));
        }
    }

    fn hidden(&self) -> usize {
        self.slices.iter().map(Slice::count).sum()
    }

    /// `[rows, width] -> [rows, width]`
    pub(super) fn forward(&self, set: InstructionSet, x: &[f32], y: &mut [f32], scratch: &mut Vec<f32>) {
        let rows = y.len() / self.width;
        fill_rows(set, &self.bias, y);
        for slice in &self.slices {
            let hidden = fit(scratch, slice.count() * rows);
            set_product(set, x, &slice.widen.weight, hidden, slice.count());
            set.run(Activate { bias: &slice.widen.bias, x: hidden });
            add_product(set, hidden, &slice.narrow, y, self.width);
        }
    }

    /// The same, keeping what the backward pass needs.
    pub(super) fn forward_saving(&self, set: InstructionSet, x: &[f32], y: &mut [f32], saved: &mut Hidden) {
        let rows = y.len() / self.width;
        fill_rows(set, &self.bias, y);
        let (activated, slope) = (fit(&mut saved.activated, rows * self.hidden()), fit(&mut saved.slope, rows * self.hidden()));
        for slice in &self.slices {
            let (activated, slope) = (&mut activated[slice.range(rows)], &mut slope[slice.range(rows)]);
            set_product(set, x, &slice.widen.weight, activated, slice.count());
            set.run(ActivateSaving { bias: &slice.widen.bias, x: activated, slope });
            add_product(set, activated, &slice.narrow, y, self.width);
        }
    }

    /// The gradient of the input, `[rows, width]`, from that of the output, and those of the parameters if asked for.
    pub(super) fn backward(&self, set: InstructionSet, pass: Backward<'_>, mut sums: Option<MlpGradients<'_>>) {
        let rows = pass.gradient.len() / self.width;
        if let Some(sums) = &mut sums {
            add_column_sums(set, pass.gradient, &mut sums.narrow.bias);
        }
        for (index, slice) in self.slices.iter().enumerate() {
            let [widen, narrow] = &pass.transposed.0[index];
            let hidden = fit(pass.scratch, slice.count() * rows);
            set_product(set, pass.gradient, narrow, hidden, slice.count());
            for (gradient, slope) in hidden.iter_mut().zip(&pass.saved.slope[slice.range(rows)]) {
                *gradient *= slope;
            }
            if let Some(sums) = &mut sums {
                let activated = &pass.saved.activated[slice.range(rows)];
                sums.add_slice(set, slice, activated, hidden, pass.gradient);
            }
            match index {
                0 => set_product(set, hidden, widen, pass.input_gradient, self.width),
                _ => add_product(set, hidden, widen, pass.input_gradient, self.width),
            }
        }
    }
}

/// What a backward pass works on.
pub(super) struct Backward<'a> {
    pub(super) transposed: &'a MlpTransposed,
    pub(super) saved: &'a Hidden,
    /// Of the output, `[rows, width]`.
    pub(super) gradient: &'a [f32],
    /// Of the input, `[rows, width]`.
    pub(super) input_gradient: &'a mut [f32],
    pub(super) scratch: &'a mut Vec<f32>,
}

/// What the gradients of the parameters are added to, and the input that they need.
pub(super) struct MlpGradients<'a> {
    /// `[rows, width]`.
    pub(super) x: &'a [f32],
    pub(super) widen: &'a mut Linear<Vec<f32>>,
    pub(super) narrow: &'a mut Linear<Vec<f32>>,
}

impl MlpGradients<'_> {
    fn add_slice(&mut self, set: InstructionSet, slice: &Slice, activated: &[f32], hidden_gradient: &[f32], gradient: &[f32]) {
        let (start, count) = (slice.start, slice.count());
        let (width, hidden) = (self.narrow.bias.len(), self.widen.bias.len());
        add_transposed_product(set, activated, gradient, width, &mut self.narrow.weight[start * width..], width);
        add_transposed_product(set, self.x, hidden_gradient, count, &mut self.widen.weight[start..], hidden);
        add_column_sums(set, hidden_gradient, &mut self.widen.bias[start..start + count]);
    }
}

/// `x <- gelu(x + bias)`, row by row.
struct Activate<'a> {
    bias: &'a [f32],
    x: &'a mut [f32],
}

impl WithSimd for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let count = self.bias.len();
        for row in self.x.chunks_exact_mut(count) {
            for at in (0..count).step_by(S::F32_LANES) {
                let x = simd.add_f32s(read(simd, &row[at..]), read(simd, &self.bias[at..]));
                write(simd, &mut row[at..], gelu(simd, x));
            }
        }
    }
}

/// The same, with the derivative.
struct ActivateSaving<'a> {
    bias: &'a [f32],
    x: &'a mut [f32],
    slope: &'a mut [f32],
}

impl WithSimd for ActivateSaving<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let count = self.bias.len();
        for (row, slope) in self.x.chunks_exact_mut(count).zip(self.slope.chunks_exact_mut(count)) {
            for at in (0..count).step_by(S::F32_LANES) {
                let x = simd.add_f32s(read(simd, &row[at..]), read(simd, &self.bias[at..]));
                write(simd, &mut slope[at..], gelu_derivative(simd, x));
                write(simd, &mut row[at..], gelu(simd, x));
            }
        }
    }
}
