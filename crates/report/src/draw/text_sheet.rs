//! What some clients wrote or said, on one page.
use std::io;

use super::canvas::{Canvas, LEADING, LINE, MARGIN, PLAIN};
use super::layout::{Heading, shorten, wrap};
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
pub fn text_sheet(sheet: &TextSheet) -> io::Result<Canvas> {
    let room = WIDTH - 2 * MARGIN;
    let lines: Vec<_> = sheet.passages.iter().map(|passage| wrap(&passage.text, PLAIN, room, sheet.lines)).collect();
    let heights = lines.iter().map(|lines| AFTER_NAME + lines.len() as u32 * LEADING + AFTER_PASSAGE);
    let mut canvas = Canvas::new(WIDTH, HEAD + heights.sum::<u32>() + MARGIN / 2);
    sheet.heading.draw(&mut canvas)?;
    let mut y = HEAD;
    for (passage, lines) in sheet.passages.iter().zip(&lines) {
        y = draw_passage(&mut canvas, passage, lines, y)?;
    }
    Ok(canvas)
}

/// Returns where the next passage begins.
fn draw_passage(canvas: &mut Canvas, passage: &Passage, lines: &[String], top: u32) -> io::Result<u32> {
    let (room, pen) = (WIDTH - 2 * MARGIN, PLAIN.bold());
    canvas.rectangle([MARGIN, top], [room, 2], LINE);
    let name = shorten(&passage.client, pen, room - PLAIN.length(&passage.note) - 40);
    canvas.text([MARGIN, top + 32], &name, pen)?;
    canvas.text([WIDTH - MARGIN, top + 32], &passage.note, PLAIN.grey().ending())?;
    let mut y = top + AFTER_NAME + LEADING / 2 + 8;
    for line in lines {
        canvas.text([MARGIN, y], line, PLAIN)?;
        y += LEADING;
    }
    Ok(y + AFTER_PASSAGE - LEADING / 2 - 8)
}
