//! From values to places along an axis.
use super::axis::{Axis, AxisScale, Ticks, Unit, step};

/// An axis that knows its ends and its marks.
#[derive(Clone, Debug)]
pub(super) struct Coordinate {
    scale: AxisScale,
    low: f64,
    high: f64,
    ticks: Ticks,
}

/// How the ends of an axis relate to the values along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fit {
    /// From the first value to the last.
    Tight,
    /// A little further.
    Loose,
    /// From mark to mark, and from zero where zero is near.
    Round,
}

impl Coordinate {
    /// An axis for some values, with about `wanted` marks.
    pub(super) fn of(axis: &Axis, values: impl IntoIterator<Item = f64>, fit: Fit, wanted: usize) -> Self {
        let (low, high) = fitted(extent(axis, values), axis, fit, wanted);
        Self { scale: axis.scale, low, high, ticks: Ticks::of(axis, low, high, wanted) }
    }

    /// Room for named things: the first from 0 to 1, the next from 1 to 2.
    pub(super) fn across(names: Vec<String>) -> Self {
        let values = (0..names.len()).map(|index| index as f64 + 0.5).collect();
        Self { scale: AxisScale::Linear, low: 0.0, high: names.len().max(1) as f64, ticks: Ticks { values, labels: names } }
    }

    /// The same downwards: the first from 0 to -1, the next from -1 to -2.
    pub(super) fn down(names: Vec<String>) -> Self {
        let values = (0..names.len()).map(|index| -(index as f64) - 0.5).collect();
        Self { scale: AxisScale::Linear, low: -(names.len().max(1) as f64), high: 0.0, ticks: Ticks { values, labels: names } }
    }

    /// What is written along it.
    pub(super) fn labels(&self) -> &[String] {
        &self.ticks.labels
    }

    /// Whether a value can be shown.
    pub(super) fn can_show(&self, value: f64) -> bool {
        self.scale.can_show(value)
    }

    /// Where bars stand: zero, or the end that is nearest to it.
    pub(super) fn foot(&self) -> f64 {
        if self.scale == AxisScale::Log { self.low } else { 0.0f64.clamp(self.low, self.high) }
    }

    /// The places that are marked, and what is written there.
    pub(super) fn marks(&self) -> impl Iterator<Item = (&f64, &String)> {
        self.ticks.values.iter().zip(&self.ticks.labels)
    }

    /// How far along the axis a value is; what lies beyond is at the end.
    pub(super) fn share(&self, value: f64) -> f64 {
        let place = |value: f64| if self.scale == AxisScale::Log { libm::log10(value.max(f64::MIN_POSITIVE)) } else { value };
        ((place(value) - place(self.low)) / (place(self.high) - place(self.low))).clamp(0.0, 1.0)
    }
}

/// The ends of the values that can be shown, or what the axis says of them; never the same.
fn extent(axis: &Axis, values: impl IntoIterator<Item = f64>) -> (f64, f64) {
    let shown = values.into_iter().filter(|value| axis.scale.can_show(*value));
    let (low, high) = shown.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = axis.within.map_or((low, high), |(least, most)| (low.max(least), high.min(most)));
    let fixed = |end: Option<f64>| end.filter(|end| axis.scale.can_show(*end));
    let (low, high) = (fixed(axis.from).unwrap_or(low), fixed(axis.to).unwrap_or(high));
    // Shares end at the whole, even where what they scatter does not.
    let high = if axis.unit == Unit::Percent && axis.to.is_none() && low < 1.0 { high.min(1.0) } else { high };
    let low = if axis.unit == Unit::Percent && axis.from.is_none() && high > 0.0 { low.max(0.0) } else { low };
    let (low, high) = match (low.is_finite(), high.is_finite()) {
        (true, true) => (low.min(high), low.max(high)),
        (true, false) => (low, low),
        (false, true) => (high, high),
        (false, false) if axis.scale == AxisScale::Log => (0.1, 10.0),
        (false, false) => (0.0, 1.0),
    };
    if high - low > 1e-9 * high.abs().max(low.abs()) { (low, high) } else { widened(low, axis) }
}

/// Some room around a single value.
fn widened(value: f64, axis: &Axis) -> (f64, f64) {
    if axis.scale == AxisScale::Log {
        return (value / 2.0, value * 2.0);
    }
    let least = if axis.unit == Unit::Percent { 0.05 } else { 0.5 };
    let room = if value == 0.0 { 2.0 * least } else { (0.1 * value.abs()).min(least) };
    (if value == 0.0 { 0.0 } else { value - room }, value + room)
}

fn fitted((low, high): (f64, f64), axis: &Axis, fit: Fit, wanted: usize) -> (f64, f64) {
    let (lower, higher) = match (fit, axis.scale) {
        (Fit::Tight, _) => (low, high),
        (Fit::Loose, AxisScale::Linear) => (low - 0.05 * (high - low), high + 0.05 * (high - low)),
        (Fit::Round, AxisScale::Linear) => rounded(axis.unit, if is_near_zero(low, high) { 0.0 } else { low }, high, wanted),
        (Fit::Loose | Fit::Round, AxisScale::Log) => {
            let room = libm::pow(high / low, 0.05);
            (low / room, high * room)
        }
    };
    (if axis.from.is_some() { low } else { lower }, if axis.to.is_some() { high } else { higher })
}

fn is_near_zero(low: f64, high: f64) -> bool {
    low >= 0.0 && low < 0.4 * high
}

fn rounded(unit: Unit, low: f64, high: f64, wanted: usize) -> (f64, f64) {
    let step = step(unit, low, high, wanted);
    (libm::floor(low / step + 1e-9) * step, libm::ceil(high / step - 1e-9) * step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(axis: &Axis, values: &[f64], fit: Fit) -> (f64, f64) {
        let Coordinate { low, high, .. } = Coordinate::of(axis, values.iter().copied(), fit, 5);
        (low, high)
    }

    #[test]
    fn ends_are_never_the_same_and_always_finite() {
        let odd = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX];
        for values in [&[][..], &odd, &[3.0], &[3.0, 3.0], &[0.0], &[-2.0, f64::NAN]] {
            for axis in [Axis::new(""), Axis::percent(""), Axis::log("")] {
                for fit in [Fit::Tight, Fit::Loose, Fit::Round] {
                    let (low, high) = range(&axis, values, fit);
                    assert!(low.is_finite() && high.is_finite() && low < high, "{values:?} {axis:?} {fit:?}: {low} {high}");
                }
            }
        }
    }

    #[test]
    fn an_axis_of_round_ends_starts_at_zero_where_zero_is_near() {
        assert_eq!(range(&Axis::new(""), &[1.0, 9.5], Fit::Round), (0.0, 10.0));
        assert_eq!(range(&Axis::new(""), &[8.0, 9.5], Fit::Round), (8.0, 9.5));
    }

    #[test]
    fn shares_stay_between_nothing_and_the_whole() {
        assert_eq!(range(&Axis::percent(""), &[0.1, 1.05], Fit::Round), (0.0, 1.0));
        assert_eq!(range(&Axis::percent(""), &[-0.05, 0.4], Fit::Round).0, 0.0);
    }

    #[test]
    fn scatter_beyond_what_values_can_be_has_no_place() {
        assert_eq!(range(&Axis::new("").within(0.0, 100.0), &[-4.0, 96.0, 103.0], Fit::Round), (0.0, 100.0));
    }

    #[test]
    fn fixed_ends_hold_and_values_beyond_them_are_drawn_at_the_end() {
        let coordinate = Coordinate::of(&Axis::percent("").between(0.0, 1.0), [0.4, 7.0], Fit::Round, 5);
        assert_eq!((coordinate.low, coordinate.high), (0.0, 1.0));
        assert_eq!((coordinate.share(7.0), coordinate.share(0.4)), (1.0, 0.4));
    }
}
