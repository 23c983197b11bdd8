//! Where things go on a picture: its heading, rows in columns, round numbers along an axis, and text broken into lines.
use std::io;

use super::canvas::{Canvas, LEADING, MARGIN, PLAIN, Pen};

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
        2 * MARGIN + Pen::title().length(&self.title).max(PLAIN.length(&self.subtitle)).min(LONGEST)
    }

    /// Writes it.
    pub(super) fn draw(&self, canvas: &mut Canvas) -> io::Result<()> {
        let top = MARGIN + 18;
        canvas.text([MARGIN, top], &shorten(&self.title, Pen::title(), LONGEST), Pen::title())?;
        canvas.text([MARGIN, top + LEADING + 10], &shorten(&self.subtitle, PLAIN, LONGEST), PLAIN.grey())
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

/// Ticks from 0 up to `most`, at steps of 1, 2 or 5 times a power of ten, about `wanted` of them.
pub(super) fn ticks(most: usize, wanted: usize) -> Vec<usize> {
    let step = step(most, wanted);
    (0..=most).step_by(step).collect()
}

/// The smallest round step that gives no more than `wanted` intervals.
pub(super) fn step(most: usize, wanted: usize) -> usize {
    let round = (0..).flat_map(|power| [1, 2, 5].map(|digit| digit * 10usize.pow(power)));
    round.into_iter().find(|step| most / step <= wanted.max(1)).unwrap_or(most.max(1))
}

/// Breaks at line ends and, where a line is too wide, at spaces; a single word that is too wide is cut.
///
/// Empty lines are kept; no more than `most` lines are returned.
pub fn wrap(text: &str, pen: Pen, width: u32, most: usize) -> Vec<String> {
    text.lines().flat_map(|line| wrap_line(line, pen, width)).take(most).collect()
}

fn wrap_line(line: &str, pen: Pen, width: u32) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in line.split_whitespace() {
        let current = lines.last_mut().expect("there is always a line");
        let longer = if current.is_empty() { word.to_owned() } else { format!("{current} {word}") };
        if pen.length(&longer) <= width {
            *current = longer;
        } else if current.is_empty() {
            *current = shorten(word, pen, width);
        } else {
            lines.push(shorten(word, pen, width));
        }
    }
    lines
}

/// The text itself, or as much of its beginning as fits, with an ellipsis.
pub fn shorten(text: &str, pen: Pen, width: u32) -> String {
    if pen.length(text) <= width {
        return text.to_owned();
    }
    let mut kept = text.to_owned();
    while kept.pop().is_some() {
        let shorter = format!("{}…", kept.trim_end());
        if pen.length(&shorter) <= width {
            return shorter;
        }
    }
    String::new()
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

    #[test]
    fn no_line_is_wider_than_asked() {
        let text = "To be, or not to be, that is the question:\n\nWhether 'tis nobler in the mind to suffer";
        let lines = wrap(text, PLAIN, 200, 100);
        assert!(lines.iter().all(|line| PLAIN.length(line) <= 200));
        assert_eq!(lines.join(" ").split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(lines.contains(&String::new()));
    }

    #[test]
    fn a_word_wider_than_the_line_is_shortened() {
        let lines = wrap("Honorificabilitudinitatibus", PLAIN, 120, 10);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with('…') && PLAIN.length(&lines[0]) <= 120);
    }
}
