//! Reading and writing vectors at the front of slices, whole or what there is of one.
use pulp::Simd;

/// The first numbers of a slice; zeros where it ends.
#[inline(always)]
pub(super) fn read<S: Simd>(simd: S, from: &[f32]) -> S::f32s {
    match S::as_simd_f32s(from).0.first() {
        Some(&whole) => whole,
        None => simd.partial_load_f32s(from),
    }
}

/// Writes the front of a slice, as far as it goes.
#[inline(always)]
pub(super) fn write<S: Simd>(simd: S, to: &mut [f32], value: S::f32s) {
    match S::as_mut_simd_f32s(to).0.first_mut() {
        Some(whole) => *whole = value,
        None => simd.partial_store_f32s(to, value),
    }
}

/// Sets the length of a buffer, which allocates the first time only, and lends it.
pub(super) fn fit(buffer: &mut Vec<f32>, length: usize) -> &mut [f32] {
    buffer.resize(length, 0.0);
    buffer
}

/// The transpose of `[rows, columns]`.
pub(super) fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    const BLOCK: usize = 8;
    let rows = from.len() / columns;
    for row in (0..rows).step_by(BLOCK) {
        for column in (0..columns).step_by(BLOCK) {
            for column in column..columns.min(column + BLOCK) {
                let to = &mut to[column * rows + row..][..BLOCK.min(rows - row)];
                for (t, to) in to.iter_mut().enumerate() {
                    *to = from[(row + t) * columns + column];
                }
            }
        }
    }
}
