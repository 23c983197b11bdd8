//! Reading and writing vectors at the front of slices, whole or what there is of one.
use pulp::Simd;

/// The first numbers of a slice; zeros where it ends.
#[inline(always)]
pub(crate) fn read<S: Simd>(simd: S, from: &[f32]) -> S::f32s {
    match S::as_simd_f32s(from).0.first() {
        Some(&whole) => whole,
        None => simd.partial_load_f32s(from),
    }
}

/// Writes the front of a slice, as far as it goes.
#[inline(always)]
pub(crate) fn write<S: Simd>(simd: S, to: &mut [f32], value: S::f32s) {
    match S::as_mut_simd_f32s(to).0.first_mut() {
        Some(whole) => *whole = value,
        None => simd.partial_store_f32s(to, value),
    }
}

/// Sets the length of a buffer, which allocates the first time only, and lends it.
pub(crate) fn fit(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    buffer.resize(length, 0.0);
    buffer
}

/// Rows and columns of the blocks that [`transpose`] works in.
const BLOCK: usize = 8;

/// The transpose of `[rows, columns]`.
#[inline(always)]
pub(crate) fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    let rows = from.len() / columns;
    for row in (0..rows).step_by(BLOCK) {
        for column in (0..columns).step_by(BLOCK) {
            let (from, to) = (&from[row * columns + column..], &mut to[column * rows + row..]);
            match (rows - row, columns - column) {
                (BLOCK.., BLOCK..) => transpose_block(from, columns, to, rows),
                (high, wide) => transpose_part(from, columns, to, rows, [high.min(BLOCK), wide.min(BLOCK)]),
            }
        }
    }
}

/// A whole block, of a size the compiler knows and makes shuffles of.
#[inline(always)]
fn transpose_block(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize) {
    let mut block = [[0.0; BLOCK]; BLOCK];
    for (row, values) in block.iter_mut().enumerate() {
        values.copy_from_slice(&from[row * from_stride..][..BLOCK]);
    }
    for column in 0..BLOCK {
        let values: [f32; BLOCK] = std::array::from_fn(|row| block[row][column]);
        to[column * to_stride..][..BLOCK].copy_from_slice(&values);
    }
}

/// What is left at the edges.
fn transpose_part(from: &[f32], from_stride: usize, to: &mut [f32], to_stride: usize, [rows, columns]: [usize; 2]) {
    for column in 0..columns {
        for row in 0..rows {
            to[column * to_stride + row] = from[row * from_stride + column];
        }
    }
}
