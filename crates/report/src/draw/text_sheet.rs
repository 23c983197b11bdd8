//! What some clients wrote or said, on one page.
use super::layout::Heading;
use super::picture::{ASIDE, DataPicture, LEADING, MARGIN, PLAIN, length, shorten};
use crate::drawing::{Anchor, GRID};

/// What a page of text shows.
pub struct TextSheet {
    /// What stands above.
    pub heading: Heading,
    /// From top to bottom.
    pub passages: Vec<Passage>,
    /// No passage is shown with more lines than this.
    pub lines: usize,
}

/// One client's text.
pub struct Passage {
    /// The name of who holds it.
    pub client: String,
    /// Said beside the client's name, in grey.
    pub note: String,
    /// The text itself.
    pub text: String,
}

const WIDTH: u32 = 1500;
const HEAD: u32 = Heading::HEIGHT;
const AFTER_NAME: u32 = 44;
const AFTER_PASSAGE: u32 = 40;

/// Draws the page.
pub fn text_sheet(sheet: &TextSheet) -> DataPicture {
    let room = WIDTH - 2 * MARGIN;
    let lines: Vec<_> = sheet.passages.iter().map(|passage| PLAIN.wrap(&passage.text, room.into(), sheet.lines)).collect();
    let heights = lines.iter().map(|lines| AFTER_NAME + lines.len() as u32 * LEADING + AFTER_PASSAGE);
    let mut picture = DataPicture::new(WIDTH, HEAD + heights.sum::<u32>() + MARGIN / 2);
    sheet.heading.draw(&mut picture);
    let mut y = HEAD;
    for (passage, lines) in sheet.passages.iter().zip(&lines) {
        y = draw_passage(&mut picture, passage, lines, y);
    }
    picture
}

/// Returns where the next passage begins.
fn draw_passage(picture: &mut DataPicture, passage: &Passage, lines: &[String], top: u32) -> u32 {
    let (room, pen) = (WIDTH - 2 * MARGIN, PLAIN.bold());
    picture.rectangle([MARGIN, top], [room, 2], GRID);
    let name = shorten(&passage.client, pen, room - length(&passage.note, PLAIN) - 40);
    picture.text([MARGIN, top + 32], &name, pen, Anchor::Start);
    picture.text([WIDTH - MARGIN, top + 32], &passage.note, ASIDE, Anchor::End);
    let mut y = top + AFTER_NAME + LEADING / 2 + 8;
    for line in lines {
        picture.text([MARGIN, y], line, PLAIN, Anchor::Start);
        y += LEADING;
    }
    y + AFTER_PASSAGE - LEADING / 2 - 8
}
