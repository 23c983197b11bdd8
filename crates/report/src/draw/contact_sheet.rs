//! Small pictures in labelled rows, so that a person sees what a data set holds.
use image::{RgbImage, imageops};

use super::layout::{Flow, Heading};
use super::picture::{ASIDE, DataPicture, MARGIN, PLAIN, length, shorten};
use crate::drawing::Anchor;

/// What a contact sheet shows.
pub struct ContactSheet {
    /// What stands above.
    pub heading: Heading,
    /// From top to bottom.
    pub rows: Vec<ContactRow>,
}

/// One labelled row.
pub struct ContactRow {
    /// What stands to the left of it.
    pub label: String,
    /// Said beside the label, in grey.
    pub note: String,
    /// All of one size, throughout the sheet.
    pub pictures: Vec<RgbImage>,
}

/// Pictures are enlarged to about this side, by a whole factor, or shrunk to it.
const SIDE: u32 = 64;
const GAP: u32 = 6;
const ROWS_A_COLUMN: usize = 25;
const LONGEST_LABEL: u32 = 320;
const HEAD: u32 = Heading::HEIGHT;

/// Draws the sheet.
pub fn contact_sheet(sheet: &ContactSheet) -> DataPicture {
    let layout = Layout::of(sheet);
    let mut picture = DataPicture::new(layout.width, layout.height);
    sheet.heading.draw(&mut picture);
    for (index, row) in sheet.rows.iter().enumerate() {
        draw_row(&mut picture, row, layout.corner(index), &layout);
    }
    picture
}

fn draw_row(picture: &mut DataPicture, row: &ContactRow, [x, y]: [u32; 2], layout: &Layout) {
    let middle = y + layout.cell[1] / 2;
    picture.text([x, middle], &shorten(&row.label, PLAIN, LONGEST_LABEL), PLAIN, Anchor::Start);
    picture.text([x + layout.label + layout.note, middle], &row.note, ASIDE, Anchor::End);
    for (column, sample) in row.pictures.iter().enumerate() {
        let left = x + layout.text_width() + column as u32 * (layout.cell[0] + GAP);
        picture.sample([left, y], fit(sample, layout.cell));
    }
}

fn fit(picture: &RgbImage, [width, height]: [u32; 2]) -> RgbImage {
    // Enlarged pixels stay sharp squares: a blurred 8x8 picture would show what is not there.
    let filter = if width >= picture.width() { imageops::FilterType::Nearest } else { imageops::FilterType::Triangle };
    imageops::resize(picture, width, height, filter)
}

/// Where everything goes.
struct Layout {
    flow: Flow,
    /// Width and height of a picture on the sheet.
    cell: [u32; 2],
    label: u32,
    note: u32,
    column: u32,
    width: u32,
    height: u32,
}

impl Layout {
    fn of(sheet: &ContactSheet) -> Self {
        let longest = |text: fn(&ContactRow) -> &str| sheet.rows.iter().map(|row| length(text(row), PLAIN)).max().unwrap_or(0);
        let flow = Flow::of(sheet.rows.len(), ROWS_A_COLUMN);
        let cell = sheet.rows.iter().find_map(|row| row.pictures.first()).map_or([SIDE; 2], cell);
        let most = sheet.rows.iter().map(|row| row.pictures.len()).max().unwrap_or(0) as u32;
        let (label, note) = (longest(|row| &row.label).min(LONGEST_LABEL), 24 + longest(|row| &row.note));
        let mut layout = Self { flow, cell, label, note, column: 0, width: 0, height: 0 };
        layout.column = layout.text_width() + most * (cell[0] + GAP);
        layout.width = sheet.heading.width().max(MARGIN + flow.columns() as u32 * (layout.column + MARGIN));
        layout.height = HEAD + flow.per_column as u32 * (cell[1] + GAP) + MARGIN;
        layout
    }

    fn text_width(&self) -> u32 {
        self.label + self.note + 20
    }

    /// The upper left corner of a row.
    fn corner(&self, row: usize) -> [u32; 2] {
        let (column, row) = self.flow.place(row);
        [MARGIN + column as u32 * (self.column + MARGIN), HEAD + row as u32 * (self.cell[1] + GAP)]
    }
}

/// How large a picture becomes.
fn cell(picture: &RgbImage) -> [u32; 2] {
    let (width, height) = picture.dimensions();
    let longer = width.max(height).max(1);
    if longer <= SIDE {
        let factor = (SIDE / longer).max(1);
        return [width * factor, height * factor];
    }
    let shrink = |side: u32| (side * 2 * SIDE / longer).max(1);
    if longer <= 2 * SIDE { [width, height] } else { [shrink(width), shrink(height)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_pictures_grow_by_whole_factors_and_large_ones_shrink() {
        assert_eq!(cell(&RgbImage::new(8, 8)), [64, 64]);
        assert_eq!(cell(&RgbImage::new(28, 28)), [56, 56]);
        assert_eq!(cell(&RgbImage::new(100, 50)), [100, 50]);
        assert_eq!(cell(&RgbImage::new(640, 480)), [128, 96]);
    }
}
