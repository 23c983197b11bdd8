//! Rows of a table that stand for symbols, and the gradient of the table.
//!
//! ```
//! use fedeq_kernels::embedding;
//!
//! let table = [0.0, 0.0, 1.0, 2.0, 3.0, 4.0];
//! let mut y = [0.0; 4];
//! embedding::gather(&table, 2, &[2, 1], &mut y);
//! assert_eq!(y, [3.0, 4.0, 1.0, 2.0]);
//! ```

/// `y[i] = table[symbols[i]]`: `[positions] -> [positions, width]` from a table of `[symbols, width]`.
///
/// # Panics
///
/// If a symbol is not in the table, or the output does not have a row for every symbol.
pub fn gather(table: &[f32], width: usize, symbols: &[i32], y: &mut [f32]) {
    check(table.len(), width, symbols.len(), y.len());
    for (y, &symbol) in y.chunks_exact_mut(width).zip(symbols) {
        y.copy_from_slice(&table[row(symbol, width, table.len())]);
    }
}

/// The gradient of the table of [`gather`]: adds each row of the output's gradient to that of its symbol.
///
/// # Panics
///
/// As [`gather`].
pub fn scatter_add(dy: &[f32], width: usize, symbols: &[i32], d_table: &mut [f32]) {
    check(d_table.len(), width, symbols.len(), dy.len());
    for (dy, &symbol) in dy.chunks_exact(width).zip(symbols) {
        let row = row(symbol, width, d_table.len());
        add(&mut d_table[row], dy);
    }
}

/// Adds to every sequence of `y`, `[batch, length, width]`, the same rows, `[length, width]`.
///
/// The gradient of the rows is [`add_bias_gradient`](crate::dense::add_bias_gradient) of `y`'s.
///
/// # Panics
///
/// If that is not a whole number of sequences.
pub fn add_to_sequences(rows: &[f32], y: &mut [f32]) {
    assert!(y.is_empty() || (!rows.is_empty() && y.len().is_multiple_of(rows.len())), "whole sequences are added to");
    for y in y.chunks_exact_mut(rows.len().max(1)) {
        add(y, rows);
    }
}

fn add(to: &mut [f32], what: &[f32]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to += what;
    }
}

fn check(table: usize, width: usize, symbols: usize, numbers: usize) {
    assert!(width > 0 && table.is_multiple_of(width), "a table has whole rows of `{width}` numbers");
    assert!(symbols.checked_mul(width) == Some(numbers), "there are `{width}` numbers for every symbol");
}

/// Where the row of a symbol lies in a table.
fn row(symbol: i32, width: usize, table: usize) -> std::ops::Range<usize> {
    let rows = table / width;
    let symbol = usize::try_from(symbol).ok().filter(|&symbol| symbol < rows);
    let symbol = symbol.unwrap_or_else(|| panic!("a symbol is not in the table of `{rows}`"));
    symbol * width..(symbol + 1) * width
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_of_a_symbol_is_the_sum_over_its_positions() {
        let (symbols, dy) = ([1, 0, 1], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        let mut d_table = [10.0; 6];
        scatter_add(&dy, 2, &symbols, &mut d_table);
        assert_eq!(d_table, [13.0, 14.0, 16.0, 18.0, 10.0, 10.0]);
    }

    #[test]
    fn scattering_is_the_adjoint_of_gathering() {
        let numbers =
            |count: usize, seed: usize| -> Vec<f32> { (0..count).map(|at| ((at * 31 + seed) % 17) as f32 - 8.0).collect() };
        let (width, symbols) = (5, [3, 0, 3, 1, 6, 3]);
        let (table, dy) = (numbers(7 * width, 1), numbers(symbols.len() * width, 2));
        let (mut y, mut d_table) = (vec![0.0; dy.len()], vec![0.0; table.len()]);
        gather(&table, width, &symbols, &mut y);
        scatter_add(&dy, width, &symbols, &mut d_table);
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
        assert_eq!(dot(&y, &dy), dot(&table, &d_table));
    }

    #[test]
    fn positions_are_added_to_every_sequence() {
        let mut y = [1.0, 2.0, 3.0, 4.0];
        add_to_sequences(&[10.0, 20.0], &mut y);
        assert_eq!(y, [11.0, 22.0, 13.0, 24.0]);
    }

    #[test]
    #[should_panic = "a symbol is not in the table of `3`"]
    fn a_symbol_beyond_the_table_is_refused() {
        gather(&[0.0; 6], 2, &[3], &mut [0.0; 2]);
    }

    #[test]
    #[should_panic = "a symbol is not in the table of `3`"]
    fn a_negative_symbol_is_refused() {
        gather(&[0.0; 6], 2, &[-1], &mut [0.0; 2]);
    }
}
