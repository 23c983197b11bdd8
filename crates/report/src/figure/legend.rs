//! Which colour stands for which name.
use super::panel::{Mark, Panel};
use super::sheet::TEXT;
use super::{Figure, palette};
use crate::drawing::{Anchor, Colour, Drawing, Frame, Stroke};

/// The names of a figure, with the colours they have in all panels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Legend {
    entries: Vec<LegendEntry>,
}

/// A name and how it is drawn.
#[derive(Clone, Debug, PartialEq)]
struct LegendEntry {
    name: String,
    colour: Colour,
    width: f64,
    swatch: Swatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swatch {
    Line,
    Dashes,
    Dot,
    Box,
}

const SWATCH: f64 = 22.0;
const GAP: f64 = 18.0;
const ROW: f64 = 20.0;
/// The paper's method is drawn stronger than the others.
const STRONG: f64 = 2.8;
const USUAL: f64 = 2.0;

impl Legend {
    /// All names, in the order of their appearance.
    pub(super) fn of(figure: &Figure) -> Self {
        let mut legend = Self::default();
        for panel in &figure.panels {
            match panel {
                Panel::Plot(plot) => plot.series.iter().for_each(|series| {
                    legend.admit(&series.name, series.colour, series.method.as_deref(), swatch(series.mark, series.dashed));
                }),
                Panel::Bars(bars) => {
                    bars.series.iter().for_each(|series| legend.admit(&series.name, series.colour, None, Swatch::Box));
                }
                Panel::Heat(_) => {}
            }
        }
        legend
    }

    /// A method has its own colour, unless another name has it: then the next that is free tells them apart.
    fn admit(&mut self, name: &str, place: Option<usize>, method: Option<&str>, swatch: Swatch) {
        if self.entries.iter().any(|entry| entry.name == name) {
            return;
        }
        let is_taken = |colour: Colour| self.entries.iter().any(|entry| entry.colour == colour);
        let own = method.map(palette::of_method).filter(|colour| !is_taken(*colour));
        // The first of the palette is too much like FeDEQ's.
        let free = || {
            (usize::from(method.is_some())..64).find(|place| palette::is_repeated(*place) || !is_taken(palette::series(*place)))
        };
        let place = place.or_else(free).unwrap_or(0);
        let repeats = own.is_none() && (palette::is_repeated(place) || is_taken(palette::series(place)));
        let swatch = if repeats && swatch == Swatch::Line { Swatch::Dashes } else { swatch };
        let width = if method == Some("fedeq") { STRONG } else { USUAL };
        self.entries.push(LegendEntry { name: name.to_owned(), colour: own.unwrap_or(palette::series(place)), width, swatch });
    }

    /// How lines of a name are drawn.
    pub(super) fn pen(&self, name: &str) -> Stroke {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.map_or(Stroke::of(palette::series(0), USUAL), LegendEntry::pen)
    }

    /// How high it is in a figure of that width. A single name needs no legend: the title says what is shown.
    pub(super) fn height(&self, width: f64) -> f64 {
        let rows = self.places(width).last().map_or(0, |(_, row)| row + 1);
        if rows == 0 { 0.0 } else { f64::from(rows) * ROW + 6.0 }
    }

    /// How far from the left and in which row each name is.
    fn places(&self, width: f64) -> Vec<(f64, i32)> {
        let (mut places, mut x, mut row) = (Vec::new(), 0.0, 0);
        for entry in self.entries.iter().filter(|_| self.entries.len() > 1) {
            let length = SWATCH + TEXT.length(&entry.name);
            if x > 0.0 && x + length > width {
                (x, row) = (0.0, row + 1);
            }
            places.push((x, row));
            x += length + GAP;
        }
        places
    }

    /// Draws it from the upper left corner of a frame on.
    pub(super) fn draw(&self, drawing: &mut Drawing, frame: Frame) {
        for (entry, (x, row)) in self.entries.iter().zip(self.places(frame.width)) {
            let (x, y) = (frame.x + x, frame.y + (f64::from(row) + 0.5) * ROW);
            entry.draw(drawing, x, y);
            drawing.text((x + SWATCH, y), &TEXT.shorten(&entry.name, frame.width - SWATCH), TEXT, Anchor::Start);
        }
    }
}

impl LegendEntry {
    fn pen(&self) -> Stroke {
        Stroke { dashed: self.swatch == Swatch::Dashes, ..Stroke::of(self.colour, self.width) }
    }

    fn draw(&self, drawing: &mut Drawing, x: f64, y: f64) {
        let end = x + SWATCH - 6.0;
        match self.swatch {
            Swatch::Line | Swatch::Dashes => drawing.line(&[(x, y), (end, y)], self.pen()),
            Swatch::Dot => drawing.dot(((x + end) / 2.0, y), 4.0, self.colour),
            Swatch::Box => drawing.rectangle([(end - 11.0, y - 5.0), (end, y + 6.0)], self.colour, 1.0),
        }
    }
}

fn swatch(mark: Mark, dashed: bool) -> Swatch {
    match mark {
        Mark::Points => Swatch::Dot,
        Mark::Bars { .. } => Swatch::Box,
        Mark::Line | Mark::LineAndPoints if dashed => Swatch::Dashes,
        Mark::Line | Mark::LineAndPoints => Swatch::Line,
    }
}
