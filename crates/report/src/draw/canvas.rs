//! What pictures are drawn on: a canvas, text in the fonts that are part of the program, and the sizes and colours that all pictures share.
use std::io::{self, Cursor};
use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, GlyphId, PxScale, ScaleFont, point};
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
        text_length(text, self.weight, self.size as f32)
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
        write_text(text, pen.weight, pen.size as f32, |along, down, covered| {
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

/// The file of the font.
pub const REGULAR: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans.ttf");
/// The file of its bold sister.
pub const BOLD: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans-Bold.ttf");

/// A weight of the font.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Regular,
    Bold,
}

/// A letter of a line, and how far along the line it begins.
struct Letter {
    id: GlyphId,
    start: f32,
}

/// How long a line of text is, in pixels.
fn text_length(text: &str, weight: Weight, size: f32) -> u32 {
    font(weight).map_or(0, |font| set(font, text, size).1.ceil() as u32)
}

/// Tells `ink` how much of which pixels a line of text covers.
///
/// Pixels are counted from the start of the line, along it and down from its baseline. Letters keep their exact distances.
fn write_text(text: &str, weight: Weight, size: f32, mut ink: impl FnMut(i32, i32, f32)) -> io::Result<()> {
    let font = font(weight).ok_or_else(|| io::Error::other("the built-in font cannot be read"))?;
    for letter in set(font, text, size).0 {
        let glyph = letter.id.with_scale_and_position(scale(font, size), point(letter.start, 0.0));
        if let Some(outline) = font.outline_glyph(glyph) {
            let corner = outline.px_bounds().min;
            outline.draw(|x, y, covered| ink(corner.x as i32 + x as i32, corner.y as i32 + y as i32, covered));
        }
    }
    Ok(())
}

/// Puts letters side by side; also returns the length of the line.
fn set(font: &FontRef<'static>, text: &str, size: f32) -> (Vec<Letter>, f32) {
    let scaled = font.as_scaled(scale(font, size));
    let (mut letters, mut end): (Vec<Letter>, f32) = (Vec::new(), 0.0);
    for character in text.chars() {
        let id = scaled.glyph_id(character);
        end += letters.last().map_or(0.0, |before| scaled.kern(before.id, id));
        letters.push(Letter { id, start: end });
        end += scaled.h_advance(id);
    }
    (letters, end)
}

/// `size` is the font's em in pixels, as everywhere but in this library.
fn scale(font: &FontRef<'static>, size: f32) -> PxScale {
    PxScale::from(size * font.height_unscaled() / font.units_per_em().unwrap_or(1.0))
}

fn font(weight: Weight) -> Option<&'static FontRef<'static>> {
    static PLAIN: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    static HEAVY: OnceLock<Option<FontRef<'static>>> = OnceLock::new();
    match weight {
        Weight::Regular => PLAIN.get_or_init(|| read(REGULAR)).as_ref(),
        Weight::Bold => HEAVY.get_or_init(|| read(BOLD)).as_ref(),
    }
}

fn read(bytes: &'static [u8]) -> Option<FontRef<'static>> {
    FontRef::try_from_slice(bytes).ok()
}

/// Around every picture.
pub(super) const MARGIN: u32 = 48;

/// Background.
pub(super) const PAPER: Rgb<u8> = Rgb([255, 255, 255]);
/// Titles and labels.
pub(super) const INK: Rgb<u8> = Rgb([31, 41, 51]);
/// What is said beside.
pub(super) const GREY: Rgb<u8> = Rgb([107, 119, 133]);
/// Thin lines.
pub(super) const LINE: Rgb<u8> = Rgb([206, 212, 218]);
/// An empty cell.
pub(super) const EMPTY: Rgb<u8> = Rgb([241, 243, 245]);

/// Size of a title's letters: the font's em.
pub(super) const TITLE: u32 = 36;
/// Size of everything else.
pub(super) const TEXT: u32 = 23;
/// From one line of text to the next.
pub(super) const LEADING: u32 = 36;

/// From a pale green over teal to a dark blue: evenly darker, and told apart without seeing red or green.
const STEPS: [[u8; 3]; 8] = [
    [214, 239, 178],
    [164, 220, 186],
    [110, 198, 190],
    [65, 170, 196],
    [34, 138, 187],
    [34, 94, 168],
    [37, 52, 148],
    [8, 29, 88],
];

/// The colour of `count` where the largest is `most`: the more, the darker; nothing at all is nearly white.
pub(super) fn of_count(count: usize, most: usize) -> Rgb<u8> {
    if count == 0 { EMPTY } else { of_share(count as f64 / most.max(1) as f64) }
}

/// The colour of a share between 0 and 1.
pub fn of_share(share: f64) -> Rgb<u8> {
    let position = share.clamp(0.0, 1.0) * (STEPS.len() - 1) as f64;
    let below = (position.floor() as usize).min(STEPS.len() - 2);
    let part = position - below as f64;
    let mix = |channel: usize| {
        let (from, to) = (f64::from(STEPS[below][channel]), f64::from(STEPS[below + 1][channel]));
        (from + (to - from) * part).round() as u8
    };
    Rgb([mix(0), mix(1), mix(2)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_weights_can_be_read_and_cover_pixels() {
        for weight in [Weight::Regular, Weight::Bold] {
            let mut covered = 0.0;
            write_text("Hg", weight, 20.0, |_, _, share| covered += share).unwrap();
            assert!(covered > 20.0);
        }
    }

    #[test]
    fn capitals_stand_on_the_baseline() {
        let (mut top, mut bottom) = (0, -100);
        write_text("H", Weight::Regular, 100.0, |_, y, share| {
            if share > 0.5 {
                (top, bottom) = (top.min(y), bottom.max(y));
            }
        })
        .unwrap();
        assert_eq!((top, bottom), (-73, -1), "the capitals of DejaVu are 0.73 of its em");
    }

    /// Relative luminance as the eye weighs it, without gamma.
    fn brightness(Rgb([red, green, blue]): Rgb<u8>) -> f64 {
        0.2126 * f64::from(red) + 0.7152 * f64::from(green) + 0.0722 * f64::from(blue)
    }

    #[test]
    fn more_is_always_darker() {
        let brightness: Vec<f64> = (0..=100).map(|count| brightness(of_count(count, 100))).collect();
        assert!(brightness.is_sorted_by(|lighter, darker| lighter > darker));
    }
}
