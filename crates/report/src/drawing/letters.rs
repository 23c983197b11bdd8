//! Letters, in the fonts that are part of the program.
use std::sync::LazyLock;

use skrifa::instance::{LocationRef, Size};
use skrifa::{FontRef, MetadataProvider};

use super::colour::Colour;

/// The file of the font.
pub(super) const REGULAR: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans.ttf");
/// The file of its bold sister.
pub(super) const BOLD: &[u8] = include_bytes!("../../assets/fonts/DejaVuSans-Bold.ttf");

/// What a browser looks for when it shows an SVG; in a bitmap it is always the program's own.
pub(crate) const FAMILY: &str = "DejaVu Sans, Verdana, sans-serif";

/// A kind of text.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Letters {
    /// The em, in pixels.
    pub(crate) size: u32,
    pub(crate) bold: bool,
    pub(crate) colour: Colour,
}

/// Where the position of a text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Anchor {
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
    pub(crate) const fn new(size: u32, colour: Colour) -> Self {
        Self { size, bold: false, colour }
    }

    pub(crate) const fn bold(self) -> Self {
        Self { bold: true, ..self }
    }

    pub(crate) const fn coloured(self, colour: Colour) -> Self {
        Self { colour, ..self }
    }

    /// From the middle of capitals, which are 0.73 em high, down to their line.
    pub(crate) fn drop(&self) -> f64 {
        0.73 / 2.0 * f64::from(self.size)
    }

    /// How long a text becomes, in whole pixels. Where letters are kerned, it becomes a little shorter.
    pub(crate) fn length(&self, text: &str) -> f64 {
        let font = if self.bold { &HEAVY } else { &PLAIN };
        let Some(font) = font.as_ref() else { return 0.0 };
        let (letters, metrics) = (font.charmap(), font.glyph_metrics(Size::new(self.size as f32), LocationRef::default()));
        let advance = |letter: char| metrics.advance_width(letters.map(letter).unwrap_or_default()).unwrap_or(0.0);
        text.chars().map(|letter| f64::from(advance(letter))).sum::<f64>().ceil()
    }

    /// Breaks at line ends and, where a line is too wide, at spaces; a single word that is too wide is cut. Empty lines are kept; no
    /// more than `most` lines are returned.
    pub(crate) fn wrap(&self, text: &str, width: f64, most: usize) -> Vec<String> {
        text.lines().flat_map(|line| self.wrap_line(line, width)).take(most).collect()
    }

    fn wrap_line(&self, line: &str, width: f64) -> Vec<String> {
        let mut lines = vec![String::new()];
        for word in line.split_whitespace() {
            let current = lines.last_mut().expect("there is always a line");
            let longer = if current.is_empty() { word.to_owned() } else { format!("{current} {word}") };
            if self.length(&longer) <= width {
                *current = longer;
            } else if current.is_empty() {
                *current = self.shorten(word, width);
            } else {
                lines.push(self.shorten(word, width));
            }
        }
        lines
    }

    /// The text itself, or as much of its beginning as fits, with an ellipsis.
    pub(crate) fn shorten(&self, text: &str, width: f64) -> String {
        if self.length(text) <= width {
            return text.to_owned();
        }
        let mut kept = text.to_owned();
        while kept.pop().is_some() {
            let shorter = format!("{}…", kept.trim_end());
            if self.length(&shorter) <= width {
                return shorter;
            }
        }
        String::new()
    }
}

static PLAIN: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::new(REGULAR).ok());
static HEAVY: LazyLock<Option<FontRef<'static>>> = LazyLock::new(|| FontRef::new(BOLD).ok());

#[cfg(test)]
mod tests {
    use super::super::colour::INK;
    use super::super::raster::pixels;
    use super::super::svg::Drawing;
    use super::*;

    const USUAL: Letters = Letters::new(23, INK);

    /// The part of a drawing that letters cover: left, top, right and bottom.
    fn inked(text: &str, letters: Letters) -> [u32; 4] {
        let mut drawing = Drawing::default();
        drawing.text((50.0, 100.0), text, letters, Anchor::Start);
        let image = pixels(&drawing.finish([600.0, 200.0], ""), 1.0).expect("pixels");
        let dark: Vec<(u32, u32)> =
            image.enumerate_pixels().filter(|(_, _, pixel)| pixel.0[0] < 140).map(|(x, y, _)| (x, y)).collect();
        let (x, y) = (|| dark.iter().map(|place| place.0), || dark.iter().map(|place| place.1));
        [x().min().expect("ink"), y().min().expect("ink"), x().max().expect("ink"), y().max().expect("ink")]
    }

    #[test]
    fn letters_are_drawn_as_long_as_they_are_measured_in_both_weights() {
        for letters in [Letters::new(40, INK), Letters::new(40, INK).bold()] {
            let [left, _, right, _] = inked("HHHHHHHHHH", letters);
            let (drawn, measured) = (f64::from(right - left + 1), letters.length("HHHHHHHHHH"));
            // But for the bearings of the first and the last letter, which are below a fifth of the em, and for what is measured being rounded up.
            assert!((0.0..9.0).contains(&(measured - drawn)), "{drawn} instead of {measured}");
        }
        assert!(Letters::new(40, INK).bold().length("Hg") > Letters::new(40, INK).length("Hg"));
    }

    #[test]
    fn capitals_have_their_middle_at_the_height_of_the_place() {
        let [_, top, _, bottom] = inked("H", Letters::new(100, INK));
        // Pixels at the edges that are covered by half or less do not count as ink.
        assert!((72..=74).contains(&(bottom - top + 1)), "the capitals of DejaVu are 0.729 of its em: {top} to {bottom}");
        assert!((f64::from(top + bottom + 1) / 2.0 - 100.0).abs() <= 1.0, "{top} to {bottom}");
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        let text = "To be, or not to be, that is the question:\n\nWhether 'tis nobler in the mind to suffer";
        let lines = USUAL.wrap(text, 200.0, 100);
        assert!(lines.iter().all(|line| USUAL.length(line) <= 200.0));
        assert_eq!(lines.join(" ").split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
        assert!(lines.contains(&String::new()));
    }

    #[test]
    fn a_word_wider_than_the_line_is_shortened() {
        let lines = USUAL.wrap("Honorificabilitudinitatibus", 120.0, 10);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].ends_with('…') && USUAL.length(&lines[0]) <= 120.0);
    }
}
