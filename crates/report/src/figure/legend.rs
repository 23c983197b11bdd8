//! Which colour stands for which name.
use super::Figure;
use super::palette::{self, DASHES};
use super::panel::{BarSeries, Mark, Panel, Series};
use super::sheet::TEXT;
use crate::drawing::{Anchor, Colour, Drawing, Frame, Stroke};

/// The names of a figure, with the colours they have in all panels.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Legend {
    entries: Vec<LegendEntry>,
}

/// A name and how it is drawn.
#[derive(Clone, Debug, PartialEq)]
struct LegendEntry {
    name: String,
    /// Whose colour it has; no method's where series of this name are of several methods, or of none.
    method: Option<String>,
    /// By which number it is put in order among those of its method.
    order: Option<f64>,
    /// Which colour of the palette was chosen for it.
    place: Option<usize>,
    stroke: Stroke,
    swatch: Swatch,
    /// Whether there is anything of this name to be seen.
    is_seen: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Swatch {
    Line,
    Dot,
    Box,
}

const SWATCH: f64 = 22.0;
const GAP: f64 = 18.0;
const ROW: f64 = 20.0;
/// The paper's method is drawn stronger than the others.
const STRONG: f64 = 2.8;
const USUAL: f64 = 2.0;
/// Among more lines than this dashes are not told apart, and broad lines hide each other: they are thin and whole.
const CROWD: usize = 30;

impl Legend {
    /// All names, in the order of their appearance.
    pub(super) fn of(figure: &Figure) -> Self {
        let mut legend = Self::default();
        for panel in &figure.panels {
            match panel {
                Panel::Plot(plot) => plot.series.iter().for_each(|series| legend.admit(LegendEntry::of(series))),
                Panel::Bars(bars) => bars.series.iter().for_each(|series| legend.admit(LegendEntry::of_bars(series))),
                Panel::Heat(_) => {}
            }
        }
        legend.give_colours();
        legend
    }

    fn admit(&mut self, entry: LegendEntry) {
        match self.entries.iter_mut().find(|known| known.name == entry.name) {
            None => self.entries.push(entry),
            Some(known) => {
                known.is_seen |= entry.is_seen;
                known.method = known.method.take().filter(|method| entry.method.as_ref() == Some(method));
                known.order = known.order.filter(|order| entry.order == Some(*order));
            }
        }
    }

    /// Lines of a method have its colour in shades, other names what is free of the palette.
    fn give_colours(&mut self) {
        let is_crowd = self.entries.len() > CROWD;
        for at in 0..self.entries.len() {
            let stroke = match &self.entries[at].method {
                Some(method) => self.stroke_of_method(at, method),
                None => self.free_stroke(at),
            };
            let entry = &mut self.entries[at];
            let dashes = if entry.stroke.dashes.is_empty() { stroke.dashes } else { entry.stroke.dashes };
            entry.stroke = if is_crowd { Stroke::of(stroke.colour, stroke.width / 2.0) } else { Stroke { dashes, ..stroke } };
        }
    }

    fn stroke_of_method(&self, at: usize, method: &str) -> Stroke {
        let of_method = |entries: &[LegendEntry]| entries.iter().filter(|entry| entry.method.as_deref() == Some(method)).count();
        let (place, alike) = (of_method(&self.entries[..at]), of_method(&self.entries));
        let (own, is_strong) = palette::of_method(method);
        let width = if is_strong { STRONG } else { USUAL };
        let Some(part) = self.part(at, method) else {
            return Stroke { dashes: DASHES[place % DASHES.len()], ..Stroke::of(palette::shade(own, place, alike), width) };
        };
        // Where shades are in order, dashes that are not would only hide it: they tell apart what is shaded alike.
        let is_equal = |entry: &&LegendEntry| entry.method.as_deref() == Some(method) && entry.order == self.entries[at].order;
        let turn = if alike > DASHES.len() { self.entries[..at].iter().filter(is_equal).count() } else { place };
        Stroke { dashes: DASHES[turn % DASHES.len()], ..Stroke::of(palette::graded(own, part), width) }
    }

    /// How far a name is from the first in the order of its method, from 0 to 1; nothing where not all of them are in an order.
    fn part(&self, at: usize, method: &str) -> Option<f64> {
        let alike = self.entries.iter().filter(|entry| entry.method.as_deref() == Some(method));
        let mut numbers: Vec<f64> = alike.map(|entry| entry.order).collect::<Option<_>>()?;
        numbers.sort_by(f64::total_cmp);
        numbers.dedup();
        let place = numbers.iter().position(|number| Some(*number) == self.entries[at].order)?;
        (numbers.len() > 1).then(|| place as f64 / (numbers.len() - 1) as f64)
    }

    /// Of a colour that no name before it has, and dashed where there is none.
    fn free_stroke(&self, at: usize) -> Stroke {
        let is_taken = |colour: Colour| self.entries[..at].iter().any(|entry| entry.stroke.colour == colour);
        let free = || (0..64).find(|place| palette::is_repeated(*place) || !is_taken(palette::series(*place)));
        let place = self.entries[at].place.or_else(free).unwrap_or(0);
        let is_repeated = palette::is_repeated(place) || is_taken(palette::series(place));
        Stroke { dashes: DASHES[usize::from(is_repeated)], ..Stroke::of(palette::series(place), USUAL) }
    }

    /// How lines of a name are drawn.
    pub(super) fn pen(&self, name: &str) -> Stroke {
        let entry = self.entries.iter().find(|entry| entry.name == name);
        entry.map_or(Stroke::of(palette::series(0), USUAL), |entry| entry.stroke)
    }

    /// What is named: a single name needs no legend, the title says what is shown.
    fn shown(&self) -> Vec<&LegendEntry> {
        self.entries.iter().filter(|entry| entry.is_seen && self.entries.len() > 1).collect()
    }

    /// How high it is in a figure of that width.
    pub(super) fn height(&self, width: f64) -> f64 {
        let rows = self.places(width).last().map_or(0, |(_, row)| row + 1);
        if rows == 0 { 0.0 } else { f64::from(rows) * ROW + 6.0 }
    }

    /// How far from the left and in which row each name is.
    fn places(&self, width: f64) -> Vec<(f64, i32)> {
        let (mut places, mut x, mut row) = (Vec::new(), 0.0, 0);
        for entry in self.shown() {
            let length = SWATCH + TEXT.length(&entry.name);
            if x > 0.0 && x + length > width {
                (x, row) = (0.0, row + 1);
            }
            places.push((x, row));
            x += length + GAP;
        }
        places
    }

    /// Draws it from the upper left corner of a frame on.
    pub(super) fn draw(&self, drawing: &mut Drawing, frame: Frame) {
        for (entry, (x, row)) in self.shown().into_iter().zip(self.places(frame.width)) {
            let (x, y) = (frame.x + x, frame.y + (f64::from(row) + 0.5) * ROW);
            entry.draw(drawing, x, y);
            drawing.text((x + SWATCH, y), &TEXT.shorten(&entry.name, frame.width - SWATCH), TEXT, Anchor::Start);
        }
    }
}

impl LegendEntry {
    fn of(series: &Series) -> Self {
        let swatch = match series.mark {
            Mark::Points => Swatch::Dot,
            Mark::Bars { .. } => Swatch::Box,
            Mark::Line | Mark::LineAndPoints => Swatch::Line,
        };
        let dashes = DASHES[usize::from(series.dashed)];
        Self {
            name: series.name.clone(),
            method: series.method.clone(),
            order: series.order,
            place: None,
            stroke: Stroke { dashes, ..Stroke::of(palette::series(0), USUAL) },
            swatch,
            is_seen: !series.points.is_empty(),
        }
    }

    fn of_bars(series: &BarSeries) -> Self {
        Self {
            name: series.name.clone(),
            method: None,
            order: None,
            place: series.colour,
            stroke: Stroke::of(palette::series(0), USUAL),
            swatch: Swatch::Box,
            is_seen: true,
        }
    }

    fn draw(&self, drawing: &mut Drawing, x: f64, y: f64) {
        let end = x + SWATCH - 6.0;
        match self.swatch {
            Swatch::Line => drawing.line(&[(x, y), (end, y)], self.stroke),
            Swatch::Dot => drawing.dot(((x + end) / 2.0, y), 4.0, self.stroke.colour),
            Swatch::Box => drawing.rectangle([(end - 11.0, y - 5.0), (end, y + 6.0)], self.stroke.colour, 1.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::Value;

    use super::*;
    use crate::figure::{Axis, Plot};

    fn legend(panels: &[&[(&str, &str)]]) -> Legend {
        let series = |(name, method): &(&str, &str)| Series::line(*name, vec![(0.0, 1.0)]).of_method(*method);
        let plot = |lines: &&[(&str, &str)]| Plot {
            title: String::new(),
            x: Axis::new("x"),
            y: Axis::new("y"),
            series: lines.iter().map(series).collect(),
        };
        Legend::of(&Figure::new("figure", "Figure", panels.iter().map(|lines| plot(lines).into()).collect()))
    }

    #[test]
    fn lines_of_a_method_are_shades_and_dashes_of_its_colour() {
        let legend = legend(&[&[("rho = 1", "fedeq"), ("FedRep", "fedrep"), ("rho = 2", "fedeq"), ("rho = 3", "fedeq")]]);
        let (own, _) = palette::of_method("fedeq");
        let pens: Vec<Stroke> = ["rho = 1", "rho = 2", "rho = 3"].map(|name| legend.pen(name)).to_vec();
        let expected: Vec<Colour> = (0..3).map(|place| palette::shade(own, place, 3)).collect();
        assert_eq!(pens.iter().map(|pen| pen.colour).collect::<Vec<_>>(), expected);
        assert_eq!(pens.iter().map(|pen| pen.dashes).collect::<Vec<_>>(), DASHES[..3]);
        assert_eq!(legend.pen("FedRep"), Stroke::of(palette::of_method("fedrep").0, USUAL));
    }

    /// The cases are the page's too: `browser/cases.json`, read by `browser/logic.test.js`.
    #[test]
    fn several_lines_of_a_method_have_the_shades_and_dashes_that_they_have_on_the_page() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../browser/cases.json");
        let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).expect("cases")).expect("JSON");
        let texts = |value: &Value| value.as_array().expect("a list").iter().map(text).collect::<Vec<_>>();
        for case in cases["shades"].as_array().expect("a list") {
            let method = text(&case["method"]);
            let settings: Vec<BTreeMap<String, String>> = case["settings"]
                .as_array()
                .expect("a list")
                .iter()
                .map(|line| serde_json::from_value(line.clone()).expect("settings"))
                .collect();
            let orders = fedeq_viewer::orders(&settings.iter().map(|settings| (method.as_str(), settings)).collect::<Vec<_>>());
            let names: Vec<String> = (0..settings.len()).map(|line| line.to_string()).collect();
            let series = names
                .iter()
                .zip(orders)
                .map(|(name, order)| Series::line(name, vec![(0.0, 1.0)]).of_method(&method).in_order(order));
            let plot = Plot { series: series.collect(), ..Plot::default() };
            let legend = Legend::of(&Figure::new("figure", "Figure", vec![plot.into()]));
            let pens: Vec<Stroke> = names.iter().map(|name| legend.pen(name)).collect();
            let shades: Vec<String> = pens.iter().map(|pen| pen.colour.hex()).collect();
            assert_eq!(shades, texts(&case["shades"]), "{}", case["what"]);
            assert_eq!(pens.iter().map(|pen| pen.dashes).collect::<Vec<_>>(), texts(&case["dashes"]), "{}", case["what"]);
        }
    }

    fn text(value: &Value) -> String {
        value.as_str().expect("a text").to_owned()
    }

    #[test]
    fn a_name_that_stands_for_several_numbers_is_in_no_order() {
        let series = |name: &str, order: f64| Series::line(name, vec![(0.0, 1.0)]).of_method("fedeq").in_order(Some(order));
        let panel =
            |lines: [(&str, f64); 2]| Plot { series: lines.map(|(name, order)| series(name, order)).to_vec(), ..Plot::default() };
        let figure = |second| Figure::new("figure", "Figure", vec![panel([("a", 2.0), ("b", 1.0)]).into(), panel(second).into()]);
        let own = palette::of_method("fedeq").0;
        let colours = |figure: &Figure| ["a", "b"].map(|name| Legend::of(figure).pen(name).colour);
        assert_eq!(colours(&figure([("a", 2.0), ("b", 1.0)])), [1.0, 0.0].map(|part| palette::graded(own, part)));
        assert_eq!(colours(&figure([("a", 2.0), ("b", 5.0)])), [0, 1].map(|place| palette::shade(own, place, 2)));
    }

    #[test]
    fn a_name_that_stands_for_several_methods_has_the_colour_of_none() {
        let legend = legend(&[&[("mean", "fedeq"), ("median", "fedeq")], &[("mean", "fedavg"), ("median", "fedavg")]]);
        assert_eq!(["mean", "median"].map(|name| legend.pen(name).colour), [0, 1].map(palette::series));
    }

    #[test]
    fn among_many_lines_all_are_thin_and_whole() {
        let names: Vec<String> = (0..=CROWD).map(|at| at.to_string()).collect();
        let lines: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "fedeq")).collect();
        let legend = legend(&[&lines]);
        assert!(names.iter().map(|name| legend.pen(name)).all(|pen| pen.dashes.is_empty() && pen.width < USUAL));
    }
}
