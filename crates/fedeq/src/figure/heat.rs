//! A panel whose cells are the darker the more.
use image::Rgb;
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Drawn;
use super::coordinate::Coordinate;
use super::palette::{EMPTY, ON_DARK, ON_PALE};
use super::panel::{Cell, Heat};
use super::plot::{ABOVE, BELOW, Chart, chart};
use super::sheet::{LABEL, px};
use super::text::Anchor;
use crate::draw::of_share;

const LONGEST_NAME: i32 = px(90);
/// Cells are no thinner and no thicker than this, so that few rows do not fill a page and many can still be told apart.
const ROW: (u32, u32) = (5, 30);
const USUAL: u32 = 320;

/// How high a panel has to be.
pub(super) fn height(heat: &Heat) -> i32 {
    let rows = heat.rows.len().max(1) as u32;
    ABOVE + BELOW + px(rows * (USUAL / rows).clamp(ROW.0, ROW.1))
}

/// Draws a panel.
pub(super) fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, heat: &Heat) -> Drawn<DB> {
    let (area, _) = area.split_vertically(height(heat));
    let rows = thinned(heat.rows.iter().map(|name| LABEL.shorten(name, LONGEST_NAME)).collect(), 24);
    let room = area.dim_in_pixel().0 as i32 - LONGEST_NAME;
    let longest = heat.columns.iter().map(|name| LABEL.length(name)).max().unwrap_or(0) + px(6);
    let columns = thinned(heat.columns.clone(), (room / longest).max(1) as usize);
    let mut chart = chart(&area, Coordinate::across(columns), Coordinate::down(rows), [&heat.x, &heat.y], true)?;
    for (row, cells) in heat.cells.iter().enumerate() {
        for (column, cell) in cells.iter().enumerate() {
            draw_cell(&mut chart, cell, column as f64, -(row as f64))?;
        }
    }
    Ok(())
}

/// Only every so many names, so that they do not run into each other.
fn thinned(names: Vec<String>, most: usize) -> Vec<String> {
    let stride = names.len().div_ceil(most).max(1);
    let kept = |(index, name): (usize, String)| if index.is_multiple_of(stride) { name } else { String::new() };
    names.into_iter().enumerate().map(kept).collect()
}

fn draw_cell<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, cell: &Cell, x: f64, y: f64) -> Drawn<DB> {
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
