//! A figure on its drawing: title, legend, panels and note, from top to bottom.
use super::legend::Legend;
use super::panel::Panel;
use super::{Figure, bars, heat, plot};
use crate::drawing::{Anchor, Drawing, Frame, GREY, INK, Letters};

/// Beside the panels.
pub(super) const TEXT: Letters = Letters::new(13, INK);
/// Along the axes.
pub(super) const LABEL: Letters = Letters::new(12, GREY);
const TITLE: Letters = Letters::new(16, INK).bold();
const PANEL_TITLE: Letters = Letters::new(13, INK).bold();

const MARGIN: f64 = 12.0;
pub(super) const PANEL_WIDTH: f64 = 420.0;
const PANEL_GAP: f64 = 16.0;
const TITLE_LINE: f64 = 24.0;
const NOTE_LINE: f64 = 18.0;
/// Of a title or a note.
const MOST_LINES: usize = 20;

/// Where everything of a figure is.
pub(super) struct Sheet<'a> {
    figure: &'a Figure,
    legend: Legend,
    title: Vec<String>,
    note: Vec<String>,
}

impl<'a> Sheet<'a> {
    pub(super) fn of(figure: &'a Figure) -> Self {
        let (title, note) =
            (TITLE.wrap(&figure.title, inside(figure), MOST_LINES), LABEL.wrap(&figure.note, inside(figure), MOST_LINES));
        Self { figure, legend: Legend::of(figure), title, note }
    }

    /// Width and height.
    fn size(&self) -> [f64; 2] {
        let height = self.head() + self.panel_head() + self.panels() + self.foot();
        [inside(self.figure) + 2.0 * MARGIN, height + 2.0 * MARGIN]
    }

    fn head(&self) -> f64 {
        self.title.len() as f64 * TITLE_LINE + self.legend.height(inside(self.figure))
    }

    fn panel_head(&self) -> f64 {
        if self.figure.panels.iter().all(|panel| panel.title().is_empty()) { 0.0 } else { 22.0 }
    }

    fn panels(&self) -> f64 {
        let height = |panel: &Panel| match panel {
            Panel::Plot(_) => plot::HEIGHT,
            Panel::Bars(bars) => bars::height(bars),
            Panel::Heat(heat) => heat::height(heat),
        };
        self.figure.panels.iter().map(height).fold(0.0, f64::max)
    }

    fn foot(&self) -> f64 {
        if self.note.is_empty() { 0.0 } else { 6.0 + self.note.len() as f64 * NOTE_LINE }
    }

    /// The text of an SVG file.
    pub(super) fn svg(&self) -> String {
        let mut drawing = Drawing::default();
        let [width, height] = self.size();
        let inside = Frame { x: MARGIN, y: MARGIN, width: width - 2.0 * MARGIN, height: height - 2.0 * MARGIN };
        write_lines(&mut drawing, inside, &self.title, TITLE, TITLE_LINE);
        self.legend.draw(&mut drawing, inside.below(self.title.len() as f64 * TITLE_LINE));
        let panels = inside.below(self.head());
        self.draw_panels(&mut drawing, panels);
        let foot = panels.below(self.panel_head() + self.panels() + 6.0);
        write_lines(&mut drawing, foot, &self.note, LABEL, NOTE_LINE);
        drawing.finish([width, height], &self.figure.title)
    }

    fn draw_panels(&self, drawing: &mut Drawing, frame: Frame) {
        for (place, panel) in self.figure.panels.iter().enumerate() {
            let x = frame.x + place as f64 * (PANEL_WIDTH + PANEL_GAP);
            let head = Frame { x, width: PANEL_WIDTH, ..frame };
            write_lines(drawing, head, &[PANEL_TITLE.shorten(panel.title(), PANEL_WIDTH)], PANEL_TITLE, 18.0);
            let body = Frame { height: self.panels(), ..head.below(self.panel_head()) };
            match panel {
                Panel::Plot(plot) => plot::draw(drawing, body, plot, &self.legend),
                Panel::Bars(bars) => bars::draw(drawing, body, bars, &self.legend),
                Panel::Heat(heat) => heat::draw(drawing, body, heat),
            }
        }
    }
}

/// The width of all panels.
fn inside(figure: &Figure) -> f64 {
    let panels = figure.panels.len().max(1) as f64;
    panels * PANEL_WIDTH + (panels - 1.0) * PANEL_GAP
}

fn write_lines(drawing: &mut Drawing, frame: Frame, lines: &[String], letters: Letters, leading: f64) {
    for (row, line) in lines.iter().enumerate() {
        drawing.text((frame.x, frame.y + (row as f64 + 0.5) * leading), line, letters, Anchor::Start);
    }
}
