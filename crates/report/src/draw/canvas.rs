//! What everything is drawn on: a bitmap with text, rectangles and pictures.
use std::io::{self, Cursor};

use super::font::{self, Weight};
use super::style::{GREY, INK, PAPER, TEXT, TITLE};
use image::{ImageFormat, Rgb, RgbImage, imageops};

/// A bitmap under construction. Whatever falls outside it is cut off.
pub struct Canvas {
    image: RgbImage,
}

/// How text is written.
#[derive(Clone, Copy)]
pub struct Pen {
    size: u32,
    weight: Weight,
    colour: Rgb<u8>,
    align: Align,
    upward: bool,
}

/// Which point of a text is at its position.
#[derive(Clone, Copy)]
enum Align {
    Start,
    Middle,
    End,
}

/// Ordinary text, starting at its position.
pub const PLAIN: Pen = Pen { size: TEXT, weight: Weight::Regular, colour: INK, align: Align::Start, upward: false };

impl Pen {
    pub(super) const fn title() -> Self {
        Self { size: TITLE, weight: Weight::Bold, ..PLAIN }
    }

    /// With letters of that em.
    pub const fn sized(self, size: u32) -> Self {
        Self { size, ..self }
    }

    /// The same text in bold.
    pub const fn bold(self) -> Self {
        Self { weight: Weight::Bold, ..self }
    }

    pub(super) const fn grey(self) -> Self {
        Self { colour: GREY, ..self }
    }

    /// Ends at its position.
    pub(super) const fn ending(self) -> Self {
        Self { align: Align::End, ..self }
    }

    /// Has its middle at its position.
    pub(super) const fn centred(self) -> Self {
        Self { align: Align::Middle, ..self }
    }

    /// Runs from bottom to top.
    pub(super) const fn upward(self) -> Self {
        Self { upward: true, ..self }
    }

    /// How long a text becomes.
    pub fn length(&self, text: &str) -> u32 {
        font::length(text, self.weight, self.size as f32)
    }

    /// How far before its position a text starts.
    fn lead(&self, text: &str) -> u32 {
        match self.align {
            Align::Start => 0,
            Align::Middle => self.length(text) / 2,
            Align::End => self.length(text),
        }
    }
}

impl Canvas {
    /// An empty canvas.
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { image: RgbImage::from_pixel(width, height, PAPER) }
    }

    /// A picture as it is.
    pub fn showing(image: RgbImage) -> Self {
        Self { image }
    }

    /// Fills a rectangle.
    pub(super) fn rectangle(&mut self, [x, y]: [u32; 2], [width, height]: [u32; 2], colour: Rgb<u8>) {
        let (right, bottom) = ((x + width).min(self.image.width()), (y + height).min(self.image.height()));
        for row in y..bottom {
            for column in x..right {
                self.image.put_pixel(column, row, colour);
            }
        }
    }

    /// Puts a picture with its upper left corner at the position.
    pub(super) fn picture(&mut self, [x, y]: [u32; 2], picture: &RgbImage) {
        imageops::replace(&mut self.image, picture, x.into(), y.into());
    }

    /// Writes text whose capitals have their middle on the line through the position.
    pub(super) fn text(&mut self, [x, y]: [u32; 2], text: &str, pen: Pen) -> io::Result<()> {
        // Capitals are 0.73 of the font's size.
        let drop = (0.73 / 2.0 * f64::from(pen.size)).round() as i32;
        let (x, y, lead) = (i64::from(x), i64::from(y), pen.lead(text) as i32);
        font::write(text, pen.weight, pen.size as f32, |along, down, covered| {
            let (along, down) = (i64::from(along - lead), i64::from(down + drop));
            let (x, y) = if pen.upward { (x + down, y - along) } else { (x + along, y + down) };
            self.blend(x, y, pen.colour, covered);
        })
    }

    fn blend(&mut self, x: i64, y: i64, colour: Rgb<u8>, covered: f32) {
        let (Ok(x), Ok(y)) = (u32::try_from(x), u32::try_from(y)) else { return };
        if let Some(pixel) = self.image.get_pixel_mut_checked(x, y) {
            for (below, above) in pixel.0.iter_mut().zip(colour.0) {
                let mixed = f32::from(*below) + (f32::from(above) - f32::from(*below)) * covered.clamp(0.0, 1.0);
                *below = mixed.round() as u8;
            }
        }
    }

    /// Width and height.
    pub fn size(&self) -> [u32; 2] {
        [self.image.width(), self.image.height()]
    }

    /// The bytes of a PNG file.
    pub fn png(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Cursor::new(Vec::new());
        self.image.write_to(&mut bytes, ImageFormat::Png).map_err(io::Error::other)?;
        Ok(bytes.into_inner())
    }
}
