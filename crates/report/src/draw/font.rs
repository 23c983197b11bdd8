//! The font that is part of the program, and text set in it.
use std::io;
use std::sync::OnceLock;

use ab_glyph::{Font, FontRef, GlyphId, PxScale, ScaleFont, point};

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
pub(super) fn length(text: &str, weight: Weight, size: f32) -> u32 {
    font(weight).map_or(0, |font| set(font, text, size).1.ceil() as u32)
}

/// Tells `ink` how much of which pixels a line of text covers.
///
/// Pixels are counted from the start of the line, along it and down from its baseline. Letters keep their exact distances.
pub(super) fn write(text: &str, weight: Weight, size: f32, mut ink: impl FnMut(i32, i32, f32)) -> io::Result<()> {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_weights_can_be_read_and_cover_pixels() {
        for weight in [Weight::Regular, Weight::Bold] {
            let mut covered = 0.0;
            write("Hg", weight, 20.0, |_, _, share| covered += share).unwrap();
            assert!(covered > 20.0);
        }
    }

    #[test]
    fn capitals_stand_on_the_baseline() {
        let (mut top, mut bottom) = (0, -100);
        write("H", Weight::Regular, 100.0, |_, y, share| {
            if share > 0.5 {
                (top, bottom) = (top.min(y), bottom.max(y));
            }
        })
        .unwrap();
        assert_eq!((top, bottom), (-73, -1), "the capitals of DejaVu are 0.73 of its em");
    }
}
