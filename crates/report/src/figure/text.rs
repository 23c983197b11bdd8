//! Letters in a figure.
use super::palette::Colour;
use crate::draw::{PLAIN, Pen, shorten, wrap};

/// What a browser looks for when it shows an SVG; in a bitmap it is always the program's own.
pub(super) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// A kind of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Letters {
    /// The em, in pixels.
    pub(super) size: u32,
    pub(super) bold: bool,
    pub(super) colour: Colour,
}

/// Where the position of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// In the middle of its height, where it begins.
    Start,
    /// In the middle of its height, in the middle of its length.
    Middle,
    /// In the middle of its height, where it ends.
    End,
    /// The same; the text runs upwards.
    UpwardEnd,
}

impl Letters {
    pub(super) const fn new(size: u32, colour: Colour) -> Self {
        Self { size, bold: false, colour }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) const fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    /// From the middle of capitals, which are 0.73 em high, down to their line.
    pub(super) fn drop(&self) -> f64 {
        0.73 / 2.0 * f64::from(self.size)
    }

    /// How long a text becomes.
    pub(super) fn length(&self, text: &str) -> f64 {
        self.pen().length(text).into()
    }

    /// The text broken into lines of a width.
    pub(super) fn wrap(&self, text: &str, width: f64) -> Vec<String> {
        wrap(text, self.pen(), width.max(1.0) as u32, 20)
    }

    /// The text, or as much of it as fits.
    pub(super) fn shorten(&self, text: &str, width: f64) -> String {
        shorten(text, self.pen(), width.max(1.0) as u32)
    }

    fn pen(&self) -> Pen {
        let pen = PLAIN.sized(self.size);
        if self.bold { pen.bold() } else { pen }
    }
}
