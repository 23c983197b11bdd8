//! A panel whose cells are the darker the more.
use super::coordinate::Coordinate;
use super::field::{ABOVE, BELOW, Field, GridLines};
use super::panel::{Heat, HeatCell};
use super::sheet::{LABEL, PANEL_WIDTH};
use crate::drawing::{Anchor, Drawing, Frame, INK, PAPER, of_share};

const LONGEST_NAME: f64 = 90.0;
/// Cells are no thinner and no thicker than this, so that few rows do not fill a page and many can still be told apart.
const ROW: (f64, f64) = (5.0, 30.0);
const USUAL: f64 = 320.0;
/// The room of a line of text.
const LEADING: f64 = 14.0;

/// How high a panel has to be.
pub(super) fn height(heat: &Heat) -> f64 {
    // Names that run upwards take the place of one line.
    upper_height(heat) + if are_turned(heat) { longest(&heat.columns) - LEADING } else { 0.0 }
}

/// The height without names that are turned.
fn upper_height(heat: &Heat) -> f64 {
    ABOVE + BELOW + down(heat)
}

/// The height of all cells.
fn down(heat: &Heat) -> f64 {
    let rows = heat.rows.len().max(1) as f64;
    rows * (USUAL / rows).clamp(ROW.0, ROW.1)
}

fn longest(names: &[String]) -> f64 {
    names.iter().map(|name| LABEL.length(name)).fold(0.0, f64::max).min(LONGEST_NAME)
}

/// The width of all cells. A table with as many rows as columns, such as a confusion matrix, is square.
fn across(heat: &Heat) -> f64 {
    let room = PANEL_WIDTH - longest(&heat.rows) - 20.0;
    if heat.rows.len() == heat.columns.len() { room.min(down(heat)) } else { room }
}

/// Whether the names of columns have to run upwards to stand side by side.
fn are_turned(heat: &Heat) -> bool {
    heat.columns.len() as f64 * (longest(&heat.columns) + 4.0) > across(heat) && longest(&heat.columns) > 20.0
}

/// Draws a panel.
pub(super) fn draw(drawing: &mut Drawing, area: Frame, heat: &Heat) {
    let unused = PANEL_WIDTH - longest(&heat.rows) - 20.0 - across(heat);
    let upper = Frame { height: upper_height(heat), width: area.width - unused, ..area };
    let short = |names: &[String]| names.iter().map(|name| LABEL.shorten(name, LONGEST_NAME)).collect::<Vec<_>>();
    let rows = thinned(short(&heat.rows), (upper.height - ABOVE - BELOW) / LEADING);
    let is_turned = are_turned(heat);
    let room = if is_turned { LEADING } else { longest(&heat.columns) + 4.0 };
    let columns = thinned(short(&heat.columns), across(heat) / room);
    let none = vec![String::new(); columns.len()];
    let (along, label) = if is_turned { (none, "") } else { (columns.clone(), heat.x.as_str()) };
    let axes = [Coordinate::across(along), Coordinate::down(rows)];
    let field = Field::draw(drawing, upper, axes, [label, &heat.y], GridLines::None);
    for (row, cells) in heat.cells.iter().enumerate() {
        for (column, cell) in cells.iter().enumerate() {
            draw_cell(drawing, &field, cell, column as f64, -(row as f64));
        }
    }
    if is_turned {
        draw_turned(drawing, area, &field, heat, &columns);
    }
}

/// The names of columns, from below up to them, and what they are.
fn draw_turned(drawing: &mut Drawing, area: Frame, field: &Field, heat: &Heat, names: &[String]) {
    for (column, name) in names.iter().enumerate() {
        let (x, _) = field.place((column as f64 + 0.5, 0.0));
        drawing.text((x, field.frame.bottom() + 6.0), name, LABEL, Anchor::UpwardEnd);
    }
    let place = (field.frame.x + field.frame.width / 2.0, area.y + height(heat) - 8.0);
    drawing.text(place, &heat.x, LABEL, Anchor::Middle);
}

/// Only every so many names, so that they do not run into each other.
fn thinned(names: Vec<String>, most: f64) -> Vec<String> {
    let stride = names.len().div_ceil(most.max(1.0) as usize).max(1);
    let kept = |(index, name): (usize, String)| if index.is_multiple_of(stride) { name } else { String::new() };
    names.into_iter().enumerate().map(kept).collect()
}

fn draw_cell(drawing: &mut Drawing, field: &Field, cell: &HeatCell, x: f64, y: f64) {
    let colour = of_share(cell.shade);
    let [(left, top), (right, bottom)] = [field.place((x, y)), field.place((x + 1.0, y - 1.0))];
    drawing.rectangle([(left, top), ((right - 1.0).max(left), (bottom - 1.0).max(top))], colour, 1.0);
    let room = (right - left).min(2.0 * (bottom - top));
    if cell.text.is_empty() || LABEL.length(&cell.text) + 4.0 > room {
        return;
    }
    let letters = LABEL.coloured(if cell.shade > 0.55 { PAPER } else { INK });
    drawing.text(((left + right) / 2.0, (top + bottom) / 2.0), &cell.text, letters, Anchor::Middle);
}
