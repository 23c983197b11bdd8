//! A panel of curves, points and histograms.
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Drawn;
use super::coordinate::{Coordinate, Fit};
use super::legend::Legend;
use super::palette::{GREY, GRID};
use super::panel::{Mark, Plot, Series};
use super::sheet::{LABEL, px};
use super::text::{Anchor, Letters};

pub(super) const HEIGHT: i32 = px(270);
/// Room for what is measured upwards, written above its axis, where it need not be turned.
pub(super) const ABOVE: i32 = px(24);
/// The same where nothing is written there.
pub(super) const BARELY_ABOVE: i32 = px(6);
/// Room for the marks to the right and what is measured.
pub(super) const BELOW: i32 = px(40);
/// From marks to what is written beside them.
const TICK: i32 = px(4);

/// A panel with both axes.
pub(super) type Chart<'a, DB> = ChartContext<'a, DB, Cartesian2d<Coordinate, Coordinate>>;

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

/// Draws a panel.
pub(super) fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, plot: &Plot, legend: &Legend) -> Drawn<DB> {
    let mut chart = chart(area, horizontal(plot), vertical(plot), [&plot.x.label, &plot.y.label], GridLines::Across)?;
    plot.series.iter().try_for_each(|series| draw_spread(&mut chart, series, legend))?;
    plot.series.iter().try_for_each(|series| draw_series(&mut chart, series, legend))?;
    plot.series.iter().try_for_each(|series| draw_labels(&mut chart, series))?;
    let is_empty = plot.series.iter().all(|series| pieces(&chart, series).is_empty());
    if is_empty { say_empty(area) } else { Ok(()) }
}

fn horizontal(plot: &Plot) -> Coordinate {
    let ends = |series: &Series| {
        let half = if let Mark::Bars { width } = series.mark { width / 2.0 } else { 0.0 };
        series.points.iter().flat_map(move |(x, _)| [x - half, x + half]).collect::<Vec<_>>()
    };
    let fit = if plot.series.iter().any(|series| series.mark == Mark::Points) { Fit::Loose } else { Fit::Tight };
    Coordinate::of(&plot.x, plot.series.iter().flat_map(ends), fit, 6)
}

fn vertical(plot: &Plot) -> Coordinate {
    let ends = |series: &Series| {
        let from_zero = if matches!(series.mark, Mark::Bars { .. }) { Some(0.0) } else { None };
        let ends = series.points.iter().enumerate().flat_map(|(index, (_, y))| {
            let spread = series.spread_at(index);
            [y - spread, y + spread]
        });
        ends.chain(from_zero).collect::<Vec<_>>()
    };
    Coordinate::of(&plot.y, plot.series.iter().flat_map(ends), Fit::Round, 5)
}

/// Axes, their marks and a thin grid.
pub(super) fn chart<'a, DB: DrawingBackend>(
    area: &'a DrawingArea<DB, Shift>,
    x: Coordinate,
    y: Coordinate,
    labels: [&str; 2],
    grid: GridLines,
) -> Result<Chart<'a, DB>, DrawingAreaErrorKind<DB::ErrorType>> {
    let left = y.labels().iter().map(|label| LABEL.length(label)).max().unwrap_or(0) + 3 * TICK;
    let right = x.labels().last().map_or(0, |label| LABEL.length(label) / 2);
    let (width, height) = area.dim_in_pixel();
    let above = if labels[1].is_empty() { BARELY_ABOVE } else { ABOVE };
    write(area, labels[1], (0, ABOVE / 4), Anchor::Start)?;
    write(area, labels[0], ((left + width as i32) / 2, height as i32 - px(8)), Anchor::Middle)?;
    let mut builder = ChartBuilder::on(area);
    builder.margin_top(above).margin_right(right.max(px(8))).margin_bottom(px(16));
    builder.x_label_area_size(BELOW - px(16)).y_label_area_size(left);
    let mut chart = builder.build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    mesh.bold_line_style(GRID.stroke_width(px(1) as u32)).axis_style(GRID.stroke_width(px(1) as u32));
    mesh.label_style(LABEL.style(Anchor::Start)).set_all_tick_mark_size(TICK);
    if grid != GridLines::Across {
        mesh.disable_y_mesh();
    }
    if grid != GridLines::Down {
        mesh.disable_x_mesh();
    }
    mesh.draw()?;
    Ok(chart)
}

fn write<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, text: &str, place: (i32, i32), anchor: Anchor) -> Drawn<DB> {
    area.draw(&Text::new(text, place, LABEL.style(anchor)))
}

/// The pieces of a series between its gaps: what can be shown, with its index.
fn pieces<DB: DrawingBackend>(chart: &Chart<'_, DB>, series: &Series) -> Vec<Vec<(usize, f64, f64)>> {
    let (x_axis, y_axis) = axes(chart);
    let mut pieces = vec![Vec::new()];
    for (index, &(x, y)) in series.points.iter().enumerate() {
        match pieces.last_mut() {
            Some(piece) if x_axis.can_show(x) && y_axis.can_show(y) => piece.push((index, x, y)),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn axes<'c, DB: DrawingBackend>(chart: &'c Chart<'_, DB>) -> (&'c Coordinate, &'c Coordinate) {
    let spec = chart.plotting_area().as_coord_spec();
    (spec.x_spec(), spec.y_spec())
}

fn draw_spread<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, series: &Series, legend: &Legend) -> Drawn<DB> {
    if series.spread.is_none() {
        return Ok(());
    }
    let colour = legend.colour(&series.name);
    // Below the axis there is nothing to draw, but the axis's end: on a logarithmic one a spread may reach below zero.
    let bottom = axes(chart).1.range().start;
    let low = |index: usize, y: f64| (y - series.spread_at(index)).max(bottom);
    for piece in pieces(chart, series) {
        if matches!(series.mark, Mark::Line | Mark::LineAndPoints) && piece.len() > 1 {
            let above = piece.iter().map(|(index, x, y)| (*x, y + series.spread_at(*index)));
            let below = piece.iter().rev().map(|(index, x, y)| (*x, low(*index, *y)));
            let outline: Vec<(f64, f64)> = above.chain(below).collect();
            chart.plotting_area().draw(&Polygon::new(outline, colour.mix(0.16)))?;
        } else {
            for (index, x, y) in piece {
                let whisker = vec![(x, low(index, y)), (x, y + series.spread_at(index))];
                chart.plotting_area().draw(&PathElement::new(whisker, colour.mix(0.6).stroke_width(px(2) as u32)))?;
            }
        }
    }
    Ok(())
}

fn draw_series<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, series: &Series, legend: &Legend) -> Drawn<DB> {
    let colour = legend.colour(&series.name);
    for piece in pieces(chart, series) {
        let points: Vec<(f64, f64)> = piece.into_iter().map(|(_, x, y)| (x, y)).collect();
        match series.mark {
            Mark::Bars { width } => draw_bars(chart, &points, width, colour)?,
            Mark::Points => draw_dots(chart, &points, colour)?,
            // A single point between two gaps has no line.
            Mark::Line if points.len() > 1 => draw_line(chart, &points, colour, legend.is_dashed(&series.name))?,
            Mark::Line => draw_dots(chart, &points, colour)?,
            Mark::LineAndPoints => {
                draw_line(chart, &points, colour, legend.is_dashed(&series.name))?;
                draw_dots(chart, &points, colour)?;
            }
        }
    }
    Ok(())
}

fn draw_line<DB: DrawingBackend>(chart: &Chart<'_, DB>, points: &[(f64, f64)], colour: RGBColor, dashed: bool) -> Drawn<DB> {
    let style = colour.stroke_width(px(2) as u32);
    if !dashed {
        return chart.plotting_area().draw(&PathElement::new(points, style));
    }
    chart.plotting_area().draw(&plotters::element::DashedPathElement::new(points.to_vec(), px(6), px(4), style))
}

fn draw_dots<DB: DrawingBackend>(chart: &Chart<'_, DB>, points: &[(f64, f64)], colour: RGBColor) -> Drawn<DB> {
    points.iter().try_for_each(|point| chart.plotting_area().draw(&Circle::new(*point, px(3) + 2, colour.filled())))
}

fn draw_bars<DB: DrawingBackend>(chart: &Chart<'_, DB>, points: &[(f64, f64)], width: f64, colour: RGBColor) -> Drawn<DB> {
    let foot = axes(chart).1.foot();
    for (x, y) in points {
        let mut bar = Rectangle::new([(x - width / 2.0, *y), (x + width / 2.0, foot)], colour.mix(0.85).filled());
        bar.set_margin(0, 0, px(1) as u32, px(1) as u32);
        chart.plotting_area().draw(&bar)?;
    }
    Ok(())
}

/// Words to the right of points, or to the left where they would leave the panel.
fn draw_labels<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, series: &Series) -> Drawn<DB> {
    let area = chart.plotting_area();
    let end = area.get_x_axis_pixel_range().end;
    let screen = area.strip_coord_spec();
    let (left, top) = area.get_base_pixel();
    for (index, x, y) in pieces(chart, series).concat() {
        let Some(label) = series.labels.get(index) else { continue };
        let (x, y) = area.map_coordinate(&(x, y));
        let length = LABEL.length(label);
        let start = if x + px(7) + length > end { x - px(7) - length } else { x + px(7) };
        screen.draw(&Text::new(label.as_str(), (start - left, y - top), LABEL.style(Anchor::Start)))?;
    }
    Ok(())
}

fn say_empty<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>) -> Drawn<DB> {
    let (width, height) = area.dim_in_pixel();
    let letters = Letters::new(13, GREY);
    area.draw(&Text::new("nothing to show", (width as i32 / 2, height as i32 / 2), letters.style(Anchor::Middle)))
}
