//! Letters in a figure.
use std::sync::Once;

use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, FontTransform, RGBColor, TextStyle, register_font};

use super::sheet::px;
use crate::draw::{BOLD, PLAIN, Pen, REGULAR, shorten, wrap};

/// What a browser looks for when it shows an SVG; in a bitmap it is always the program's own.
const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// A kind of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Letters {
    /// The em, in pixels of the figure.
    size: u32,
    bold: bool,
    colour: RGBColor,
}

/// Where the position of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Anchor {
    /// In the middle of its height, where it begins.
    Start,
    /// In the middle of its height, in the middle of its length.
    Middle,
    /// In the middle of its height, where it ends; the text runs upwards.
    UpwardEnd,
}

impl Letters {
    pub(super) const fn new(size: u32, colour: RGBColor) -> Self {
        Self { size, bold: false, colour }
    }

    pub(super) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(super) const fn coloured(self, colour: RGBColor) -> Self {
        Self { colour, ..self }
    }

    /// How plotters is told.
    pub(super) fn style(&self, anchor: Anchor) -> TextStyle<'static> {
        // plotters takes 1.24 em for a font's size.
        let size = 1.24 * f64::from(px(self.size));
        let style = if self.bold { FontStyle::Bold } else { FontStyle::Normal };
        let font = FontDesc::new(FontFamily::Name(FAMILY), size, style);
        let (place, font) = match anchor {
            Anchor::Start => (HPos::Left, font),
            Anchor::Middle => (HPos::Center, font),
            Anchor::UpwardEnd => (HPos::Right, font.transform(FontTransform::Rotate270)),
        };
        TextStyle { font, color: self.colour.to_backend_color(), pos: Pos::new(place, VPos::Center) }
    }

    /// How long a text becomes, at most, in units of the drawing area.
    pub(super) fn length(&self, text: &str) -> i32 {
        self.pen().length(text) as i32
    }

    /// The text broken into lines of a width in units of the drawing area.
    pub(super) fn wrap(&self, text: &str, width: i32) -> Vec<String> {
        wrap(text, self.pen(), width.max(1) as u32, 20)
    }

    /// The text, or as much of it as fits.
    pub(super) fn shorten(&self, text: &str, width: i32) -> String {
        shorten(text, self.pen(), width.max(1) as u32)
    }

    /// plotters' bitmaps have letters 1.07 times as large as its SVGs; both must fit.
    fn pen(&self) -> Pen {
        let pen = PLAIN.sized((1.07 * f64::from(px(self.size))).round() as u32);
        if self.bold { pen.bold() } else { pen }
    }
}

/// Tells plotters of the program's own font, once.
pub(super) fn prepare() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // A font that cannot be read is reported by whoever draws with it.
        let _ = register_font(FAMILY, FontStyle::Normal, REGULAR);
        let _ = register_font(FAMILY, FontStyle::Bold, BOLD);
    });
}
