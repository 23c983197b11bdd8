//! Matrices cut into panels of columns, the order in which products read their right factor.
use crate::InstructionSet;
use crate::gemm::{Factor, Product, Size};
use crate::size::product;

/// Where the entries of a matrix lie: panels of `width` columns one after the other, in each the rows one after the other.
///
/// The inner loop of a product walks down one panel; rows further apart would fall on the same few lines of the first cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Panels {
    pub(super) rows: usize,
    pub(super) columns: usize,
    /// A power of two, or all columns.
    width: usize,
    /// The logarithm of the width; large where there is a single panel.
    shift: u32,
}

impl Panels {
    /// Panels as wide as the products' inner loop.
    pub(super) fn new(set: InstructionSet, rows: usize, columns: usize) -> Self {
        let width = 2 * set.lanes();
        Self { rows, columns: columns.next_multiple_of(set.lanes()), width, shift: width.trailing_zeros() }
    }

    /// A single panel: rows one after the other, at distances that do not fall on the same lines of the first cache.
    pub(super) fn single(set: InstructionSet, rows: usize, columns: usize) -> Self {
        let lanes = set.lanes();
        let columns = columns.next_multiple_of(lanes);
        let columns = if columns.is_multiple_of(64) { columns + lanes } else { columns };
        Self { rows, columns, width: columns, shift: usize::BITS - 1 }
    }

    pub(super) fn len(&self) -> usize {
        product([self.rows, self.columns])
    }

    /// Whether vectors of so many lanes that begin at a multiple of that lie in a row of a panel.
    pub(super) fn holds_vectors(&self, lanes: usize) -> bool {
        self.columns.is_multiple_of(lanes) && self.width.is_multiple_of(lanes)
    }

    /// The place of an entry; that of the last one is `len() - 1`. Entries of a row lie together in a panel.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> usize {
        let start = column >> self.shift << self.shift;
        start * self.rows + row * self.width.min(self.columns - start) + column - start
    }

    /// The first column and the width of each panel.
    pub(super) fn each(self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.columns).step_by(self.width).map(move |start| (start, self.width.min(self.columns - start)))
    }
}

/// `C = A B` or `C += A B`, where `B` lies in panels and `C` in rows of `n` numbers that are `c_stride` apart.
pub(super) struct PanelProduct<'a> {
    pub(super) size: Size,
    pub(super) a: Factor<'a>,
    pub(super) b: &'a [f32],
    pub(super) panels: Panels,
    /// The first row of `B` that takes part.
    pub(super) first: usize,
    pub(super) c: &'a mut [f32],
    pub(super) c_stride: usize,
    pub(super) accumulate: bool,
}

impl PanelProduct<'_> {
    pub(super) fn run(self, set: InstructionSet) {
        let Size { m, n, k } = self.size;
        for (start, width) in self.panels.each().take_while(|&(start, _)| start < n) {
            let size = Size { m, n: width.min(n - start), k };
            let b = &self.b[self.panels.at(self.first, start)..];
            let c = &mut self.c[start..];
            let accumulate = self.accumulate;
            Product { size, a: self.a, b, b_stride: width, c, c_stride: self.c_stride, accumulate }.run(set);
        }
    }
}
