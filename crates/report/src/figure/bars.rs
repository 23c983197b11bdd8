//! A panel of bars, one group for each category.
use super::coordinate::{Coordinate, Fit};
use super::field::{BARELY_ABOVE, BELOW, Field, GridLines};
use super::legend::Legend;
use super::panel::{BarSeries, Bars};
use super::sheet::LABEL;
use crate::drawing::{Colour, Drawing, Frame, INK, Stroke};

/// The thickness of a group.
const GROUP: f64 = 30.0;
/// The least thickness of a bar in a group.
const BAR: f64 = 13.0;
const LONGEST_NAME: f64 = 150.0;
/// How much of a group's thickness its bars fill.
const FILLED: f64 = 0.76;

/// How high a panel has to be.
pub(super) fn height(bars: &Bars) -> f64 {
    let group = if bars.stacked { GROUP } else { GROUP.max(BAR * bars.series.len() as f64 + 6.0) };
    BARELY_ABOVE + BELOW + bars.categories.len().max(1) as f64 * group
}

/// Draws a panel.
pub(super) fn draw(drawing: &mut Drawing, area: Frame, bars: &Bars, legend: &Legend) {
    let names = bars.categories.iter().map(|name| LABEL.shorten(name, LONGEST_NAME)).collect();
    let x = Coordinate::of(&bars.value, ends(bars), Fit::Round, 5);
    let area = Frame { height: height(bars), ..area };
    let field = Field::draw(drawing, area, [x, Coordinate::down(names)], [&bars.value.label, ""], GridLines::Down);
    for category in 0..bars.categories.len() {
        if bars.stacked {
            draw_stack(drawing, &field, bars, category, legend);
        } else {
            draw_group(drawing, &field, bars, category, legend);
        }
    }
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

fn draw_stack(drawing: &mut Drawing, field: &Field, bars: &Bars, category: usize, legend: &Legend) {
    let (mut from, top) = (0.0, -(category as f64) - (1.0 - FILLED) / 2.0);
    for series in &bars.series {
        let to = from + value(series, category).unwrap_or(0.0);
        draw_bar(drawing, field, [(from, top), (to, top - FILLED)], legend.pen(&series.name).colour);
        from = to;
    }
}

fn draw_group(drawing: &mut Drawing, field: &Field, bars: &Bars, category: usize, legend: &Legend) {
    let thickness = FILLED / bars.series.len().max(1) as f64;
    let foot = field.x.foot();
    for (index, series) in bars.series.iter().enumerate() {
        let Some(value) = value(series, category) else { continue };
        let top = -(category as f64) - (1.0 - FILLED) / 2.0 - index as f64 * thickness;
        draw_bar(drawing, field, [(foot, top), (value, top - thickness)], legend.pen(&series.name).colour);
        let spread = series.spread_at(category);
        if spread > 0.0 {
            let middle = top - thickness / 2.0;
            let whisker = [value - spread, value + spread].map(|end| field.place((end, middle)));
            drawing.line(&whisker, Stroke { opacity: 0.7, ..Stroke::of(INK, 1.5) });
        }
    }
}

fn draw_bar(drawing: &mut Drawing, field: &Field, corners: [(f64, f64); 2], colour: Colour) {
    drawing.rectangle(corners.map(|corner| field.place(corner)), colour, 0.85);
}
