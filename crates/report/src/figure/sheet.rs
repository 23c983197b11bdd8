//! A figure on its drawing area: title, legend, panels and note, from top to bottom.
use plotters::coord::Shift;
use plotters::prelude::*;

use super::legend::Legend;
use super::palette::{GREY, INK, PAPER};
use super::panel::Panel;
use super::text::{Anchor, Letters};
use super::{Drawn, Figure, bars, heat, plot};

/// Units of the drawing area in a pixel of the figure. plotters places everything on whole units; these are fine enough for a smooth curve.
pub(super) const SCALE: u32 = 4;

/// Beside the panels.
pub(super) const TEXT: Letters = Letters::new(13, INK);
/// Along the axes.
pub(super) const LABEL: Letters = Letters::new(12, GREY);
const TITLE: Letters = Letters::new(16, INK).bold();
const PANEL_TITLE: Letters = Letters::new(13, INK).bold();

const MARGIN: u32 = 12;
pub(super) const PANEL_WIDTH: u32 = 420;
const PANEL_GAP: u32 = 16;
const TITLE_LINE: u32 = 24;
const NOTE_LINE: u32 = 18;

/// Pixels of the figure in units of the drawing area.
pub(super) const fn px(pixels: u32) -> i32 {
    (SCALE * pixels) as i32
}

/// Where everything of a figure is.
pub(super) struct Sheet<'a> {
    figure: &'a Figure,
    legend: Legend,
    title: Vec<String>,
    note: Vec<String>,
    margin: i32,
}

impl<'a> Sheet<'a> {
    /// A figure that stands for itself.
    pub(super) fn of(figure: &'a Figure) -> Self {
        let (title, note) = (TITLE.wrap(&figure.title, inside(figure)), LABEL.wrap(&figure.note, inside(figure)));
        Self { figure, legend: Legend::of(figure), title, note, margin: px(MARGIN) }
    }

    /// A figure whose title and note are written elsewhere.
    pub(super) fn bare(figure: &'a Figure) -> Self {
        Self { figure, legend: Legend::of(figure), title: Vec::new(), note: Vec::new(), margin: 0 }
    }

    /// Width and height in units of the drawing area.
    pub(super) fn size(&self) -> (u32, u32) {
        let height = self.head() + self.panel_head() + self.panels() + self.foot();
        ((inside(self.figure) + 2 * self.margin) as u32, (height + 2 * self.margin) as u32)
    }

    fn head(&self) -> i32 {
        self.title.len() as i32 * px(TITLE_LINE) + self.legend.height(inside(self.figure))
    }

    fn panel_head(&self) -> i32 {
        if self.figure.panels.iter().all(|panel| panel.title().is_empty()) { 0 } else { px(22) }
    }

    fn panels(&self) -> i32 {
        let height = |panel: &Panel| match panel {
            Panel::Plot(_) => plot::HEIGHT,
            Panel::Bars(bars) => bars::height(bars),
            Panel::Heat(heat) => heat::height(heat),
        };
        self.figure.panels.iter().map(height).max().unwrap_or(0)
    }

    fn foot(&self) -> i32 {
        if self.note.is_empty() { 0 } else { px(6) + self.note.len() as i32 * px(NOTE_LINE) }
    }

    /// Draws everything.
    pub(super) fn draw<DB: DrawingBackend>(&self, root: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        root.fill(&PAPER)?;
        let inside = root.margin(self.margin, self.margin, self.margin, self.margin);
        let (head, rest) = inside.split_vertically(self.head());
        let (panels, foot) = rest.split_vertically(self.panel_head() + self.panels());
        write_lines(&head, &self.title, TITLE, px(TITLE_LINE))?;
        let (_, legend) = head.split_vertically(self.title.len() as i32 * px(TITLE_LINE));
        self.legend.draw(&legend)?;
        self.draw_panels(&panels)?;
        write_lines(&foot.margin(px(6), 0, 0, 0), &self.note, LABEL, px(NOTE_LINE))
    }

    fn draw_panels<DB: DrawingBackend>(&self, area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
        let mut rest = area.clone();
        for panel in &self.figure.panels {
            let (here, others) = rest.split_horizontally(px(PANEL_WIDTH));
            let (head, body) = here.split_vertically(self.panel_head());
            write_lines(&head, &[PANEL_TITLE.shorten(panel.title(), px(PANEL_WIDTH))], PANEL_TITLE, px(18))?;
            match panel {
                Panel::Plot(plot) => plot::draw(&body, plot, &self.legend)?,
                Panel::Bars(bars) => bars::draw(&body, bars, &self.legend)?,
                Panel::Heat(heat) => heat::draw(&body, heat)?,
            }
            rest = others.margin(0, 0, px(PANEL_GAP), 0);
        }
        Ok(())
    }
}

/// The width of all panels.
fn inside(figure: &Figure) -> i32 {
    let panels = figure.panels.len().max(1) as u32;
    px(panels * PANEL_WIDTH + (panels - 1) * PANEL_GAP)
}

fn write_lines<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, lines: &[String], letters: Letters, leading: i32) -> Drawn<DB> {
    for (line, y) in lines.iter().zip((0..).map(|row| row * leading + leading / 2)) {
        area.draw(&Text::new(line.as_str(), (0, y), letters.style(Anchor::Start)))?;
    }
    Ok(())
}
