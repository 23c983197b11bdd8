//! What pictures of data are drawn on, and the sizes and letters that they share.
use std::io;

use image::{RgbImage, imageops};

use crate::drawing::{Anchor, Colour, Drawing, GREY, INK, Letters, pixels, png};

/// A picture under construction: shapes, and small pictures that lie on them.
pub struct DataPicture {
    size: [u32; 2],
    shapes: Drawing,
    samples: Vec<([u32; 2], RgbImage)>,
}

/// Titles.
pub(super) const TITLE: Letters = Letters::new(36, INK).bold();
/// Everything else.
pub(super) const PLAIN: Letters = Letters::new(23, INK);
/// What is said beside.
pub(super) const ASIDE: Letters = PLAIN.coloured(GREY);
/// Around every picture.
pub(super) const MARGIN: u32 = 48;
/// From one line of text to the next.
pub(super) const LEADING: u32 = 36;

/// How long a text becomes, in pixels.
pub(super) fn length(text: &str, letters: Letters) -> u32 {
    letters.length(text) as u32
}

/// The text, or as much of its beginning as fits, with an ellipsis.
pub(super) fn shorten(text: &str, letters: Letters, width: u32) -> String {
    letters.shorten(text, width.into())
}

impl DataPicture {
    /// An empty one.
    pub(super) fn new(width: u32, height: u32) -> Self {
        Self { size: [width, height], shapes: Drawing::default(), samples: Vec::new() }
    }

    /// A sample as it is stored.
    pub fn showing(image: RgbImage) -> Self {
        Self { samples: vec![([0, 0], image.clone())], ..Self::new(image.width(), image.height()) }
    }

    /// Fills a rectangle.
    pub(super) fn rectangle(&mut self, [x, y]: [u32; 2], [width, height]: [u32; 2], colour: Colour) {
        self.shapes.rectangle([place([x, y]), place([x + width, y + height])], colour, 1.0);
    }

    /// Puts a sample with its upper left corner at the position.
    pub(super) fn sample(&mut self, corner: [u32; 2], image: RgbImage) {
        self.samples.push((corner, image));
    }

    /// Writes text whose capitals have their middle on the line through the position.
    pub(super) fn text(&mut self, at: [u32; 2], text: &str, letters: Letters, anchor: Anchor) {
        self.shapes.text(place(at), text, letters, anchor);
    }

    /// Width and height.
    pub fn size(&self) -> [u32; 2] {
        self.size
    }

    /// The bytes of a PNG file.
    pub fn png(self) -> io::Result<Vec<u8>> {
        let mut image = pixels(&self.shapes.finish(self.size.map(f64::from), ""), 1.0)?;
        for ([x, y], sample) in &self.samples {
            imageops::replace(&mut image, sample, (*x).into(), (*y).into());
        }
        png(&image)
    }
}

fn place([x, y]: [u32; 2]) -> (f64, f64) {
    (x.into(), y.into())
}

#[cfg(test)]
mod tests {
    use image::Rgb;

    use super::*;

    #[test]
    fn shapes_and_samples_have_their_pixels() {
        let mut picture = DataPicture::new(40, 30);
        picture.rectangle([10, 5], [4, 3], Colour([200, 100, 0]));
        picture.sample([20, 20], RgbImage::from_pixel(2, 2, Rgb([1, 2, 3])));
        let image = image::load_from_memory(&picture.png().expect("a file")).expect("a picture").to_rgb8();
        let expected = |x: u32, y: u32| match (x, y) {
            (10..14, 5..8) => [200, 100, 0],
            (20..22, 20..22) => [1, 2, 3],
            _ => [255; 3],
        };
        assert!(image.dimensions() == (40, 30) && image.enumerate_pixels().all(|(x, y, pixel)| pixel.0 == expected(x, y)));
    }

    #[test]
    fn a_stored_sample_is_shown_as_it_is() {
        let image = RgbImage::from_fn(8, 9, |x, y| Rgb([x as u8, y as u8, 7]));
        let file = DataPicture::showing(image.clone()).png().expect("a file");
        assert_eq!(image::load_from_memory(&file).expect("a picture").to_rgb8(), image);
    }
}
