//! Shapes and letters as the text of an SVG file. A PNG is made of the same text, so that both show the same.
use std::fmt::Write as _;

use super::palette::{Colour, PAPER};
use crate::draw::{PLAIN, Pen, shorten, wrap};
use crate::html::escaped;

/// A place, in pixels from the upper left corner.
pub(super) type Place = (f64, f64);

/// A part of the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Frame {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
}

impl Frame {
    pub(super) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(super) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// The part from some height on.
    pub(super) fn below(&self, height: f64) -> Self {
        Self { y: self.y + height, height: self.height - height, ..*self }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Stroke {
    pub(super) colour: Colour,
    pub(super) width: f64,
    pub(super) opacity: f64,
    pub(super) dashed: bool,
}

impl Stroke {
    pub(super) fn of(colour: Colour, width: f64) -> Self {
        Self { colour, width, opacity: 1.0, dashed: false }
    }
}

/// A picture under construction.
#[derive(Default)]
pub(super) struct Drawing {
    body: String,
}

impl Drawing {
    pub(super) fn rectangle(&mut self, [from, to]: [Place; 2], colour: Colour, opacity: f64) {
        let (x, y) = (from.0.min(to.0), from.1.min(to.1));
        let (width, height) = ((to.0 - from.0).abs(), (to.1 - from.1).abs());
        self.add(&format!(
            "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"{}/>",
            short(x),
            short(y),
            short(width),
            short(height),
            colour.hex(),
            seen_through("fill", opacity)
        ));
    }

    /// A line through some places.
    pub(super) fn line(&mut self, places: &[Place], stroke: Stroke) {
        let dashes = if stroke.dashed { " stroke-dasharray=\"6 4\"" } else { "" };
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}{}/>",
            listed(places),
            stroke.colour.hex(),
            short(stroke.width),
            seen_through("stroke", stroke.opacity)
        ));
    }

    /// A line of a grid, which is no curve.
    pub(super) fn rule(&mut self, from: Place, to: Place, colour: Colour) {
        let [(x1, y1), (x2, y2)] = [from, to].map(|(x, y)| (short(x), short(y)));
        self.add(&format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{}\"/>", colour.hex()));
    }

    pub(super) fn polygon(&mut self, places: &[Place], colour: Colour, opacity: f64) {
        self.add(&format!("<polygon points=\"{}\" fill=\"{}\"{}/>", listed(places), colour.hex(), seen_through("fill", opacity)));
    }

    pub(super) fn dot(&mut self, (x, y): Place, radius: f64, colour: Colour) {
        self.add(&format!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>", short(x), short(y), short(radius), colour.hex()));
    }

    /// Text whose capitals have their middle at the height of the place.
    pub(super) fn text(&mut self, (x, y): Place, text: &str, letters: Letters, anchor: Anchor) {
        if text.is_empty() {
            return;
        }
        let (start, turn) = match anchor {
            Anchor::Start => ("start", String::new()),
            Anchor::Middle => ("middle", String::new()),
            Anchor::End => ("end", String::new()),
            Anchor::UpwardEnd => ("end", format!(" transform=\"rotate(-90 {} {})\"", short(x), short(y))),
        };
        let weight = if letters.bold { " font-weight=\"bold\"" } else { "" };
        self.add(&format!(
            "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{weight} fill=\"{}\" text-anchor=\"{start}\"{turn}>{}</text>",
            short(x),
            short(y + letters.drop()),
            letters.size,
            letters.colour.hex(),
            escaped(text)
        ));
    }

    fn add(&mut self, shape: &str) {
        // Writing to a text cannot fail.
        let _ = writeln!(self.body, "{shape}");
    }

    /// The whole file, on white.
    pub(super) fn finish(self, [width, height]: [f64; 2], title: &str) -> String {
        let (width, height, title, paper) = (short(width), short(height), escaped(title), PAPER.hex());
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" \
             font-family=\"{FAMILY}\" role=\"img\" aria-label=\"{title}\">\n<rect width=\"{width}\" height=\"{height}\" fill=\"{paper}\"/>\n{}</svg>\n",
            self.body
        )
    }
}

fn seen_through(what: &str, opacity: f64) -> String {
    if opacity < 1.0 { format!(" {what}-opacity=\"{opacity}\"") } else { String::new() }
}

fn listed(places: &[Place]) -> String {
    let place = |(x, y): &Place| format!("{},{}", short(*x), short(*y));
    places.iter().map(place).collect::<Vec<_>>().join(" ")
}

/// To a tenth of a pixel.
fn short(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".into() } else { text.to_owned() }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([short(12.0), short(0.04), short(-0.04), short(3.26)], ["12", "0", "0", "3.3"]);
    }
}
