//! A panel of curves, points and histograms.
use super::coordinate::{Coordinate, Fit};
use super::field::{Field, GridLines};
use super::legend::Legend;
use super::panel::{Mark, Plot, Series};
use super::sheet::LABEL;
use crate::drawing::{Anchor, Drawing, Frame, GREY, Letters, Place, Stroke};

pub(super) const HEIGHT: f64 = 270.0;

/// Draws a panel.
pub(super) fn draw(drawing: &mut Drawing, area: Frame, plot: &Plot, legend: &Legend) {
    let area = Frame { height: HEIGHT, ..area };
    let axes = [horizontal(plot), vertical(plot)];
    let field = Field::draw(drawing, area, axes, [&plot.x.label, &plot.y.label], GridLines::Across);
    plot.series.iter().for_each(|series| draw_spread(drawing, &field, series, legend));
    plot.series.iter().for_each(|series| draw_series(drawing, &field, series, legend));
    plot.series.iter().for_each(|series| draw_labels(drawing, &field, series));
    if plot.series.iter().all(|series| pieces(&field, series).is_empty()) {
        let middle = (area.x + area.width / 2.0, area.y + area.height / 2.0);
        drawing.text(middle, "nothing to show", Letters::new(13, GREY), Anchor::Middle);
    }
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

/// The pieces of a series between its gaps: what can be shown, with its index.
fn pieces(field: &Field, series: &Series) -> Vec<Vec<(usize, f64, f64)>> {
    let mut pieces = vec![Vec::new()];
    for (index, &(x, y)) in series.points.iter().enumerate() {
        match pieces.last_mut() {
            Some(piece) if field.can_show((x, y)) => piece.push((index, x, y)),
            _ => pieces.push(Vec::new()),
        }
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

/// Values beyond an axis are drawn at its end, so a band never leaves the range of what it shows.
fn draw_spread(drawing: &mut Drawing, field: &Field, series: &Series, legend: &Legend) {
    if series.spread.is_none() {
        return;
    }
    let colour = legend.pen(&series.name).colour;
    let ends = |index: usize, x: f64, y: f64| {
        let spread = series.spread_at(index);
        [field.place((x, y + spread)), field.place((x, y - spread))]
    };
    for piece in pieces(field, series) {
        let ends: Vec<[Place; 2]> = piece.into_iter().map(|(index, x, y)| ends(index, x, y)).collect();
        if matches!(series.mark, Mark::Line | Mark::LineAndPoints) && ends.len() > 1 {
            let outline: Vec<Place> = ends.iter().map(|[high, _]| *high).chain(ends.iter().rev().map(|[_, low]| *low)).collect();
            drawing.polygon(&outline, colour, 0.16);
        } else {
            ends.iter().for_each(|ends| drawing.line(ends, Stroke { opacity: 0.6, ..Stroke::of(colour, 2.0) }));
        }
    }
}

fn draw_series(drawing: &mut Drawing, field: &Field, series: &Series, legend: &Legend) {
    let pen = legend.pen(&series.name);
    let dots = |drawing: &mut Drawing, places: &[Place]| places.iter().for_each(|place| drawing.dot(*place, 3.4, pen.colour));
    for piece in pieces(field, series) {
        let places: Vec<Place> = piece.iter().map(|(_, x, y)| field.place((*x, *y))).collect();
        match series.mark {
            Mark::Bars { width } => piece.iter().for_each(|(_, x, y)| draw_bar(drawing, field, (*x, *y), width, pen)),
            // A single point between two gaps has no line.
            Mark::Line if places.len() > 1 => drawing.line(&places, pen),
            Mark::Points | Mark::Line => dots(drawing, &places),
            Mark::LineAndPoints => {
                drawing.line(&places, pen);
                dots(drawing, &places);
            }
        }
    }
}

fn draw_bar(drawing: &mut Drawing, field: &Field, (x, y): (f64, f64), width: f64, pen: Stroke) {
    let (left, top) = field.place((x - width / 2.0, y));
    let (right, foot) = field.place((x + width / 2.0, field.y.foot()));
    drawing.rectangle([(left + 1.0, top), ((right - 1.0).max(left + 1.0), foot)], pen.colour, 0.85);
}

/// Words to the right of points, or to the left where they would leave the panel.
fn draw_labels(drawing: &mut Drawing, field: &Field, series: &Series) {
    for (index, x, y) in pieces(field, series).concat() {
        let Some(label) = series.labels.get(index) else { continue };
        let (x, y) = field.place((x, y));
        let leaves = x + 7.0 + LABEL.length(label) > field.frame.right();
        let (x, anchor) = if leaves { (x - 7.0, Anchor::End) } else { (x + 7.0, Anchor::Start) };
        drawing.text((x, y), label, LABEL, anchor);
    }
}
