//! A panel of bars, one group for each category.
use plotters::coord::Shift;
use plotters::prelude::*;

use super::Drawn;
use super::coordinate::{Coordinate, Fit};
use super::legend::Legend;
use super::palette::INK;
use super::panel::{BarSeries, Bars};
use super::plot::{BARELY_ABOVE, BELOW, Chart, GridLines, chart};
use super::sheet::{LABEL, px};

/// The thickness of a group.
const GROUP: u32 = 30;
/// The least thickness of a bar in a group.
const BAR: u32 = 13;
const LONGEST_NAME: i32 = px(150);
/// How much of a group's thickness its bars fill.
const FILLED: f64 = 0.76;

/// How high a panel has to be.
pub(super) fn height(bars: &Bars) -> i32 {
    let group = if bars.stacked { GROUP } else { GROUP.max(BAR * bars.series.len() as u32 + 6) };
    BARELY_ABOVE + BELOW + bars.categories.len().max(1) as i32 * px(group)
}

/// Draws a panel.
pub(super) fn draw<DB: DrawingBackend>(area: &DrawingArea<DB, Shift>, bars: &Bars, legend: &Legend) -> Drawn<DB> {
    let names = bars.categories.iter().map(|name| LABEL.shorten(name, LONGEST_NAME)).collect();
    let x = Coordinate::of(&bars.value, ends(bars), Fit::Round, 5);
    let (area, _) = area.split_vertically(height(bars));
    let mut chart = chart(&area, x, Coordinate::down(names), [&bars.value.label, ""], GridLines::Down)?;
    for category in 0..bars.categories.len() {
        if bars.stacked {
            draw_stack(&mut chart, bars, category, legend)?;
        } else {
            draw_group(&mut chart, bars, category, legend)?;
        }
    }
    Ok(())
}

/// What the axis must reach: zero, and the ends of all bars.
fn ends(bars: &Bars) -> Vec<f64> {
    let whole = |category: usize| bars.series.iter().filter_map(|series| value(series, category)).sum::<f64>();
    let single = |series: &BarSeries| {
        let with_spread = |(index, value): (usize, &f64)| value + series.spread_at(index);
        series.values.iter().enumerate().map(with_spread).collect::<Vec<_>>()
    };
    let ends: Vec<f64> = match bars.stacked {
        true => (0..bars.categories.len()).map(whole).collect(),
        false => bars.series.iter().flat_map(single).collect(),
    };
    ends.into_iter().chain([0.0]).collect()
}

fn value(series: &BarSeries, category: usize) -> Option<f64> {
    series.values.get(category).copied().filter(|value| value.is_finite())
}

fn draw_stack<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, bars: &Bars, category: usize, legend: &Legend) -> Drawn<DB> {
    let (mut from, top) = (0.0, -(category as f64) - (1.0 - FILLED) / 2.0);
    for series in &bars.series {
        let to = from + value(series, category).unwrap_or(0.0);
        draw_bar(chart, [(from, top), (to, top - FILLED)], legend.colour(&series.name))?;
        from = to;
    }
    Ok(())
}

fn draw_group<DB: DrawingBackend>(chart: &mut Chart<'_, DB>, bars: &Bars, category: usize, legend: &Legend) -> Drawn<DB> {
    let thickness = FILLED / bars.series.len().max(1) as f64;
    let foot = chart.plotting_area().as_coord_spec().x_spec().foot();
    for (index, series) in bars.series.iter().enumerate() {
        let Some(value) = value(series, category) else { continue };
        let top = -(category as f64) - (1.0 - FILLED) / 2.0 - index as f64 * thickness;
        draw_bar(chart, [(foot, top), (value, top - thickness)], legend.colour(&series.name))?;
        let spread = series.spread_at(category);
        if spread > 0.0 {
            let whisker = vec![(value - spread, top - thickness / 2.0), (value + spread, top - thickness / 2.0)];
            chart.plotting_area().draw(&PathElement::new(whisker, INK.mix(0.7).stroke_width(px(1) as u32 + 2)))?;
        }
    }
    Ok(())
}

fn draw_bar<DB: DrawingBackend>(chart: &Chart<'_, DB>, corners: [(f64, f64); 2], colour: RGBColor) -> Drawn<DB> {
    chart.plotting_area().draw(&Rectangle::new(corners, colour.mix(0.85).filled()))
}
