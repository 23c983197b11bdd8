//! A panel whose cells are the darker the more.
use image::Rgb;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Drawn;
use super::coordinate::Coordinate;
use super::palette::{EMPTY, ON_DARK, ON_PALE};
use super::panel::{Heat, HeatCell};
use super::plot::{ABOVE, BELOW, Chart, GridLines, chart};
use super::sheet::{LABEL, PANEL_WIDTH, px};
use super::text::Anchor;
use crate::draw::of_share;

const LONGEST_NAME: i32 = px(90);
/// Cells are no thinner and no thicker than this, so that few rows do not fill a page and many can still be told apart.
const ROW: (u32, u32) = (5, 30);
const USUAL: u32 = 320;
/// The room of a line of text.
const LEADING: i32 = px(14);

/// How high a panel has to be.
pub(super) fn height(heat: &Heat) -> i32 {
    // Names that run upwards take the place of one line.
    upper_height(heat) + if are_turned(heat) { longest(&heat.columns) - LEADING } else { 0 }
}

/// The height without names that are turned.
fn upper_height(heat: &Heat) -> i32 {
    let rows = heat.rows.len().max(1) as u32;
    ABOVE + BELOW + px(rows * (USUAL / rows).clamp(ROW.0, ROW.1))
}

fn longest(names: &[String]) -> i32 {
    names.iter().map(|name| LABEL.length(name)).max().unwrap_or(0).min(LONGEST_NAME)
}

/// The width of all cells.
fn across(heat: &Heat) -> i32 {
    px(PANEL_WIDTH) - longest(&heat.rows) - px(20)
}

/// Whether the names of columns have to run upwards to stand side by side.
fn are_turned(heat: &Heat) -> bool {
    heat.columns.len() as i32 * (longest(&heat.columns) + px(4)) > across(heat) && longest(&heat.columns) > px(20)
}

/// Draws a panel.
pub(super) fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, heat: &Heat) -> Drawn<DB> {
    let (upper, _) = area.split_vertically(upper_height(heat));
    let short = |names: &[String]| names.iter().map(|name| LABEL.shorten(name, LONGEST_NAME)).collect::<Vec<_>>();
    let rows = thinned(short(&heat.rows), (upper_height(heat) - ABOVE - BELOW) / LEADING);
    let is_turned = are_turned(heat);
    let room = if is_turned { LEADING } else { longest(&heat.columns) + px(4) };
    let columns = thinned(short(&heat.columns), across(heat) / room);
    let none = vec![String::new(); columns.len()];
    let (along, label) = if is_turned { (none, "") } else { (columns.clone(), heat.x.as_str()) };
    let mut chart = chart(&upper, Coordinate::across(along), Coordinate::down(rows), [label, &heat.y], GridLines::None)?;
    for (row, cells) in heat.cells.iter().enumerate() {
        for (column, cell) in cells.iter().enumerate() {
            draw_cell(&mut chart, cell, column as f64, -(row as f64))?;
        }
    }
    if is_turned { draw_turned(area, &chart, heat, &columns) } else { Ok(()) }
}

/// The names of columns, from below up to them, and what they are.
fn draw_turned<DB: DrawingBackend>(
    area: &DrawingArea<DB, Shift>,
    chart: &Chart<'_, DB>,
    heat: &Heat,
    names: &[String],
) -> Drawn<DB> {
    let (left, top) = area.get_base_pixel();
    let plot = chart.plotting_area();
    for (column, name) in names.iter().enumerate() {
        let (x, y) = plot.map_coordinate(&(column as f64 + 0.5, -(heat.rows.len().max(1) as f64)));
        let style = LABEL.style(Anchor::UpwardEnd);
        area.draw(&Text::new(name.as_str(), (x - left, y - top + px(6)), style))?;
    }
    let (width, _) = area.dim_in_pixel();
    let place = ((width as i32 + longest(&heat.rows)) / 2, height(heat) - px(8));
    area.draw(&Text::new(heat.x.as_str(), place, LABEL.style(Anchor::Middle)))
}

/// Only every so many names, so that they do not run into each other.
fn thinned(names: Vec<String>, most: i32) -> Vec<String> {
    let stride = names.len().div_ceil(most.max(1) as usize).max(1);
    let kept = |(index, name): (usize, String)| if index.is_multiple_of(stride) { name } else { String::new() };
    names.into_iter().enumerate().map(kept).collect()
}

fn draw_cell<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, cell: &HeatCell, x: f64, y: f64) -> Drawn<DB> {
    let area = chart.plotting_area();
    let colour = if cell.shade > 0.0 { shade(cell.shade) } else { EMPTY };
    let corners = [area.map_coordinate(&(x, y)), area.map_coordinate(&(x + 1.0, y - 1.0))];
    let mut square = Rectangle::new([(x, y), (x + 1.0, y - 1.0)], colour.filled());
    square.set_margin(0, px(1) as u32, 0, px(1) as u32);
    area.draw(&square)?;
    let room = (corners[1].0 - corners[0].0).abs().min(2 * (corners[1].1 - corners[0].1).abs());
    if cell.text.is_empty() || LABEL.length(&cell.text) + px(4) > room {
        return Ok(());
    }
    let letters = LABEL.coloured(if cell.shade > 0.55 { ON_DARK } else { ON_PALE });
    area.draw(&Text::new(cell.text.as_str(), (x + 0.5, y - 0.5), letters.style(Anchor::Middle)))
}

fn shade(share: f64) -> RGBColor {
    let Rgb([red, green, blue]) = of_share(share);
    RGBColor(red, green, blue)
}
