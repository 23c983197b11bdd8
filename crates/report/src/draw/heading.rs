//! What stands at the top of every picture.
use std::io;

use super::canvas::{Canvas, PLAIN, Pen};
use super::style::{LEADING, MARGIN};
use super::wrap::shorten;

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
