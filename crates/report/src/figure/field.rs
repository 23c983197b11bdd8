//! The inside of a panel with both axes, their marks and a thin grid.
use super::coordinate::Coordinate;
use super::sheet::LABEL;
use crate::drawing::{Anchor, Drawing, Frame, GRID, Place};

/// Room for what is measured upwards, written above its axis, where it need not be turned.
pub(super) const ABOVE: f64 = 24.0;
/// The same where nothing is written there.
pub(super) const BARELY_ABOVE: f64 = 6.0;
/// Room for the marks to the right and what is measured.
pub(super) const BELOW: f64 = 40.0;
/// From marks to what is written beside them.
const TICK: f64 = 4.0;

/// Which lines there are behind a panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GridLines {
    /// From the marks at the left to the right.
    Across,
    /// From the top down to the marks.
    Down,
    /// None: what is drawn fills the panel.
    None,
}

/// Both axes and where they are.
pub(super) struct Field {
    pub(super) x: Coordinate,
    pub(super) y: Coordinate,
    pub(super) frame: Frame,
}

impl Field {
    /// Draws the axes of a panel: what is measured to the right and upwards.
    pub(super) fn draw(drawing: &mut Drawing, area: Frame, [x, y]: [Coordinate; 2], labels: [&str; 2], grid: GridLines) -> Self {
        let left = y.labels().iter().map(|label| LABEL.length(label)).fold(0.0, f64::max) + 3.0 * TICK;
        let right = x.labels().last().map_or(0.0, |label| LABEL.length(label) / 2.0).max(8.0);
        let above = if labels[1].is_empty() { BARELY_ABOVE } else { ABOVE };
        let frame =
            Frame { x: area.x + left, y: area.y + above, width: area.width - left - right, height: area.height - above - BELOW };
        drawing.text((area.x, area.y + ABOVE / 4.0), labels[1], LABEL, Anchor::Start);
        drawing.text((frame.x + frame.width / 2.0, area.bottom() - 8.0), labels[0], LABEL, Anchor::Middle);
        let field = Self { x, y, frame };
        field.draw_marks(drawing, grid);
        field
    }

    fn draw_marks(&self, drawing: &mut Drawing, grid: GridLines) {
        let Frame { x, y, .. } = self.frame;
        let (right, bottom) = (self.frame.right(), self.frame.bottom());
        for (value, label) in self.y.marks() {
            let height = self.place((0.0, *value)).1;
            let end = if grid == GridLines::Across { right } else { x };
            drawing.rule((x - TICK, height), (end, height), GRID);
            drawing.text((x - 2.0 * TICK, height), label, LABEL, Anchor::End);
        }
        for (value, label) in self.x.marks() {
            let along = self.place((*value, 0.0)).0;
            let top = if grid == GridLines::Down { y } else { bottom };
            drawing.rule((along, top), (along, bottom + TICK), GRID);
            drawing.text((along, bottom + 3.5 * TICK), label, LABEL, Anchor::Middle);
        }
        drawing.rule((x, y), (x, bottom), GRID);
        drawing.rule((x, bottom), (right, bottom), GRID);
    }

    /// Where values are.
    pub(super) fn place(&self, (x, y): (f64, f64)) -> Place {
        let Frame { x: left, y: top, width, height } = self.frame;
        (left + self.x.share(x) * width, top + (1.0 - self.y.share(y)) * height)
    }

    /// Whether both values can be shown.
    pub(super) fn can_show(&self, (x, y): (f64, f64)) -> bool {
        self.x.can_show(x) && self.y.can_show(y)
    }
}
