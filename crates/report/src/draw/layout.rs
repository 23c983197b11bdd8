//! Where things go on a picture: its heading, rows in columns, and round numbers along an axis.
use super::picture::{ASIDE, DataPicture, LEADING, MARGIN, PLAIN, TITLE, length, shorten};
use crate::drawing::Anchor;
use crate::figure::round_step;

/// The title of a picture and what is said below it.
pub struct Heading {
    /// In bold.
    pub title: String,
    /// Below the title, smaller.
    pub subtitle: String,
}

/// No heading makes a picture wider than this; a longer one is cut.
const LONGEST: u32 = 1400;

impl Heading {
    /// Where the picture itself begins.
    pub(super) const HEIGHT: u32 = 150;

    /// How wide a picture must be for it, margins included.
    pub(super) fn width(&self) -> u32 {
        2 * MARGIN + length(&self.title, TITLE).max(length(&self.subtitle, PLAIN)).min(LONGEST)
    }

    /// Writes it.
    pub(super) fn draw(&self, picture: &mut DataPicture) {
        let top = MARGIN + 18;
        picture.text([MARGIN, top], &shorten(&self.title, TITLE, LONGEST), TITLE, Anchor::Start);
        picture.text([MARGIN, top + LEADING + 10], &shorten(&self.subtitle, PLAIN, LONGEST), ASIDE, Anchor::Start);
    }
}

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

/// Ticks from 0 up to `most`, at round steps, about `wanted` of them.
pub(super) fn ticks(most: usize, wanted: usize) -> Vec<usize> {
    (0..=most).step_by(step(most, wanted)).collect()
}

/// The smallest round step that gives no more than `wanted` intervals.
pub(super) fn step(most: usize, wanted: usize) -> usize {
    (round_step(most as f64, wanted) as usize).max(1)
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

    #[test]
    fn steps_are_round_and_not_too_many() {
        assert_eq!(ticks(250, 5), [0, 50, 100, 150, 200, 250]);
        assert_eq!(ticks(7, 5), [0, 2, 4, 6]);
        assert_eq!(ticks(0, 5), [0]);
        assert_eq!(step(1_129, 10), 200);
    }
}
