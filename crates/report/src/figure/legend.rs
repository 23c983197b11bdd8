//! Which colour stands for which name.
use plotters::prelude::*;

use super::panel::{Mark, Panel};
use super::sheet::{TEXT, px};
use super::text::Anchor;
use super::{Drawn, Figure, palette};

/// The names of a figure, with the colours they have in all panels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Legend {
    entries: Vec<LegendEntry>,
}

/// A name and how it is drawn.
#[derive(Clone, Debug, PartialEq)]
struct LegendEntry {
    name: String,
    colour: usize,
    swatch: Swatch,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swatch {
    Line,
    Dashes,
    Dot,
    Box,
}

const SWATCH: u32 = 22;
const GAP: u32 = 18;
const ROW: u32 = 20;

impl Legend {
    /// All names, in the order of their appearance.
    pub(super) fn of(figure: &Figure) -> Self {
        let mut legend = Self::default();
        for panel in &figure.panels {
            match panel {
                Panel::Plot(plot) => plot.series.iter().for_each(|series| {
                    legend.admit(&series.name, series.colour, swatch(series.mark, series.dashed));
                }),
                Panel::Bars(bars) => bars.series.iter().for_each(|series| legend.admit(&series.name, series.colour, Swatch::Box)),
                Panel::Heat(_) => {}
            }
        }
        legend
    }

    fn admit(&mut self, name: &str, colour: Option<usize>, swatch: Swatch) {
        if self.entries.iter().any(|entry| entry.name == name) {
            return;
        }
        let taken = |colour: usize| self.entries.iter().any(|entry| entry.colour == colour);
        let colour = colour.unwrap_or_else(|| (0..).find(|colour| !taken(*colour)).unwrap_or(0));
        let swatch = if palette::is_repeated(colour) && swatch == Swatch::Line { Swatch::Dashes } else { swatch };
        self.entries.push(LegendEntry { name: name.to_owned(), colour, swatch });
    }

    /// The colour of a name.
    pub(super) fn colour(&self, name: &str) -> RGBColor {
        palette::series(self.entries.iter().find(|entry| entry.name == name).map_or(0, |entry| entry.colour))
    }

    /// Whether the lines of a name are dashed.
    pub(super) fn is_dashed(&self, name: &str) -> bool {
        self.entries.iter().any(|entry| entry.name == name && entry.swatch == Swatch::Dashes)
    }

    /// How high it is in a figure of that width. A single name needs no legend: the title says what is shown.
    pub(super) fn height(&self, width: i32) -> i32 {
        let rows = self.places(width).last().map_or(0, |(_, row)| row + 1);
        if rows == 0 { 0 } else { rows * px(ROW) + px(6) }
    }

    /// How far from the left and in which row each name is.
    fn places(&self, width: i32) -> Vec<(i32, i32)> {
        let (mut places, mut x, mut row) = (Vec::new(), 0, 0);
        for entry in self.entries.iter().filter(|_| self.entries.len() > 1) {
            let length = px(SWATCH) + TEXT.length(&entry.name);
            if x > 0 && x + length > width {
                (x, row) = (0, row + 1);
            }
            places.push((x, row));
            x += length + px(GAP);
        }
        places
    }

    /// Draws it from the upper left corner of an area on.
    pub(super) fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, plotters::coord::Shift>) -> Drawn<DB> {
        let width = area.dim_in_pixel().0 as i32;
        for (entry, (x, row)) in self.entries.iter().zip(self.places(width)) {
            let y = row * px(ROW) + px(ROW) / 2;
            entry.draw(area, x, y)?;
            let name = TEXT.shorten(&entry.name, width - px(SWATCH));
            area.draw(&Text::new(name, (x + px(SWATCH), y), TEXT.style(Anchor::Start)))?;
        }
        Ok(())
    }
}

impl LegendEntry {
    fn draw<DB: DrawingBackend>(&self, area: &DrawingArea<DB, plotters::coord::Shift>, x: i32, y: i32) -> Drawn<DB> {
        let colour = palette::series(self.colour);
        let (start, end) = (x, x + px(SWATCH) - px(6));
        let line = |from: i32, to: i32| PathElement::new(vec![(from, y), (to, y)], colour.stroke_width(px(2) as u32));
        match self.swatch {
            Swatch::Line => area.draw(&line(start, end)),
            Swatch::Dashes => {
                area.draw(&line(start, start + px(6)))?;
                area.draw(&line(end - px(6), end))
            }
            Swatch::Dot => area.draw(&Circle::new(((start + end) / 2, y), px(4), colour.filled())),
            Swatch::Box => area.draw(&Rectangle::new([(end - px(11), y - px(5)), (end, y + px(6))], colour.filled())),
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
