//! Many short rows, set in columns like a newspaper.

/// How rows fall into columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flow {
    rows: usize,
    pub(super) per_column: usize,
}

impl Flow {
    /// As few columns as keep each at `most` rows, and all about equally long.
    pub(super) fn of(rows: usize, most: usize) -> Self {
        let columns = rows.div_ceil(most).max(1);
        Self { rows, per_column: rows.div_ceil(columns).max(1) }
    }

    /// How many columns there are.
    pub(super) fn columns(&self) -> usize {
        self.rows.div_ceil(self.per_column).max(1)
    }

    /// The column and the row in it of a row.
    pub(super) fn place(&self, row: usize) -> (usize, usize) {
        (row / self.per_column, row % self.per_column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_about_equally_long() {
        assert_eq!((Flow::of(10, 25).columns(), Flow::of(10, 25).per_column), (1, 10));
        assert_eq!((Flow::of(62, 25).columns(), Flow::of(62, 25).per_column), (3, 21));
        assert_eq!(Flow::of(62, 25).place(61), (2, 19));
        assert_eq!(Flow::of(0, 25).columns(), 1);
    }
}
