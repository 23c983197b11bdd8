//! Shapes as the text of an SVG file. A PNG is made of the same text, so that both show the same.
use std::fmt::Write as _;

use super::colour::{Colour, PAPER};
use super::letters::{Anchor, FAMILY, Letters};
use crate::html::escaped;

/// A place, in pixels from the upper left corner.
pub(crate) type Place = (f64, f64);

/// A part of the drawing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Frame {
    pub(crate) x: f64,
    pub(crate) y: f64,
    pub(crate) width: f64,
    pub(crate) height: f64,
}

impl Frame {
    pub(crate) fn right(&self) -> f64 {
        self.x + self.width
    }

    pub(crate) fn bottom(&self) -> f64 {
        self.y + self.height
    }

    /// The part from some height on.
    pub(crate) fn below(&self, height: f64) -> Self {
        Self { y: self.y + height, height: self.height - height, ..*self }
    }
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Stroke {
    pub(crate) colour: Colour,
    pub(crate) width: f64,
    pub(crate) opacity: f64,
    /// Lengths of dashes and gaps in turn; none for a whole line.
    pub(crate) dashes: &'static str,
}

impl Stroke {
    pub(crate) fn of(colour: Colour, width: f64) -> Self {
        Self { colour, width, opacity: 1.0, dashes: "" }
    }
}

/// A picture under construction.
#[derive(Default)]
pub(crate) struct Drawing {
    body: String,
}

impl Drawing {
    pub(crate) fn rectangle(&mut self, [from, to]: [Place; 2], colour: Colour, opacity: f64) {
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
    pub(crate) fn line(&mut self, places: &[Place], stroke: Stroke) {
        let dashes = match stroke.dashes {
            "" => String::new(),
            dashes => format!(" stroke-dasharray=\"{dashes}\""),
        };
        self.add(&format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\"{dashes}{}/>",
            listed(places),
            stroke.colour.hex(),
            short(stroke.width),
            seen_through("stroke", stroke.opacity)
        ));
    }

    /// A line of a grid, which is no curve.
    pub(crate) fn rule(&mut self, from: Place, to: Place, colour: Colour) {
        let [(x1, y1), (x2, y2)] = [from, to].map(|(x, y)| (short(x), short(y)));
        self.add(&format!("<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"{}\"/>", colour.hex()));
    }

    pub(crate) fn polygon(&mut self, places: &[Place], colour: Colour, opacity: f64) {
        self.add(&format!("<polygon points=\"{}\" fill=\"{}\"{}/>", listed(places), colour.hex(), seen_through("fill", opacity)));
    }

    pub(crate) fn dot(&mut self, (x, y): Place, radius: f64, colour: Colour) {
        self.add(&format!("<circle cx=\"{}\" cy=\"{}\" r=\"{}\" fill=\"{}\"/>", short(x), short(y), short(radius), colour.hex()));
    }

    /// Text whose capitals have their middle at the height of the place.
    pub(crate) fn text(&mut self, (x, y): Place, text: &str, letters: Letters, anchor: Anchor) {
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
    pub(crate) fn finish(self, [width, height]: [f64; 2], title: &str) -> String {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!([short(12.0), short(0.04), short(-0.04), short(3.26)], ["12", "0", "0", "3.3"]);
    }
}
