//! What is measured along an axis, the round numbers that stand beside it, and how they are written.
use fedeq_run::number::count;

/// An axis: a label, a scale and, where they matter, its ends.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Axis {
    /// What is measured, with its unit: `megabytes sent`.
    pub label: String,
    /// How values are spaced.
    pub scale: AxisScale,
    /// How values are written.
    pub unit: Unit,
    /// Where it begins; without it, where the values do.
    pub from: Option<f64>,
    /// Where it ends; without it, where the values do.
    pub to: Option<f64>,
    /// Between what values can be at all: scatter beyond that is not drawn.
    pub within: Option<(f64, f64)>,
}

/// How values are spaced along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AxisScale {
    /// Equal differences are equally long.
    #[default]
    Linear,
    /// Equal ratios are equally long; only values above zero can be shown.
    Log,
}

/// How values are written along an axis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// As they are.
    #[default]
    Number,
    /// Shares, as percentages: `0.25` is `25 %`.
    Percent,
    /// Whole things; nothing is marked between them.
    Count,
}

impl Axis {
    /// A linear axis of plain numbers.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), ..Self::default() }
    }

    /// A linear axis of whole things, from zero.
    pub fn count(label: impl Into<String>) -> Self {
        Self { unit: Unit::Count, from: Some(0.0), ..Self::new(label) }
    }

    /// A linear axis of shares.
    pub fn percent(label: impl Into<String>) -> Self {
        Self { unit: Unit::Percent, ..Self::new(label) }
    }

    /// A logarithmic axis of plain numbers.
    pub fn log(label: impl Into<String>) -> Self {
        Self { scale: AxisScale::Log, ..Self::new(label) }
    }

    /// With fixed ends; what lies beyond is drawn at the end.
    pub fn between(self, from: f64, to: f64) -> Self {
        Self { from: Some(from), to: Some(to), ..self }
    }

    /// Of values that can only be between these.
    pub fn within(self, low: f64, high: f64) -> Self {
        Self { within: Some((low, high)), ..self }
    }

    /// With a fixed beginning.
    pub fn starting_at(self, from: f64) -> Self {
        Self { from: Some(from), ..self }
    }
}

impl AxisScale {
    /// Whether a value has a place on an axis of this scale.
    pub(super) fn can_show(self, value: f64) -> bool {
        // Beyond this, differences of values would overflow.
        const LARGEST: f64 = 1e300;
        value.abs() < LARGEST && (self == Self::Linear || value > f64::MIN_POSITIVE)
    }
}

/// Places of an axis that are marked.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ticks {
    pub(super) values: Vec<f64>,
    pub(super) labels: Vec<String>,
}

impl Ticks {
    /// Round numbers between two ends, about `wanted` of them.
    pub(super) fn of(axis: &Axis, low: f64, high: f64, wanted: usize) -> Self {
        let decades = match axis.scale {
            AxisScale::Linear => Vec::new(),
            AxisScale::Log => logarithmic(low, high, wanted),
        };
        if decades.len() >= 2 {
            return Self { labels: written(&decades, axis.unit), values: decades };
        }
        let step = step(axis.unit, low, high, wanted);
        let values: Vec<f64> = multiples(step, low, high).collect();
        Self { labels: values.iter().map(|value| with_step(*value, step, high, axis.unit)).collect(), values }
    }
}

/// The smallest of 1, 2 or 5 times a power of ten that makes no more than `wanted` intervals.
pub(super) fn step(unit: Unit, low: f64, high: f64, wanted: usize) -> f64 {
    let least = (high - low) / wanted.max(1) as f64;
    let least = if unit == Unit::Count { least.max(1.0) } else { least };
    let power = libm::exp10(libm::floor(libm::log10(least)));
    // A hair's breadth of tolerance, so that an exact step is not passed over for the rounding of a quotient.
    [1.0, 2.0, 5.0].map(|digit| digit * power).into_iter().find(|step| *step >= least * (1.0 - 1e-9)).unwrap_or(10.0 * power)
}

/// The smallest round number that makes no more than `wanted` intervals of a count.
pub(crate) fn round_step(most: f64, wanted: usize) -> f64 {
    step(Unit::Count, 0.0, most, wanted)
}

fn multiples(step: f64, low: f64, high: f64) -> impl Iterator<Item = f64> {
    let slack = 1e-6;
    let (first, last) = (libm::ceil(low / step - slack), libm::floor(high / step + slack));
    (0..=(last - first).clamp(0.0, 100.0) as u32).map(move |index| (first + f64::from(index)) * step)
}

/// Powers of ten, or where these are few also their doubles and fives; never more than about `wanted`.
fn logarithmic(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let slack = 1e-9;
    let (first, last) = (libm::ceil(libm::log10(low) - slack) as i32, libm::floor(libm::log10(high) + slack) as i32);
    let stride = (last - first + 1).max(1).unsigned_abs().div_ceil(wanted.max(1) as u32);
    if last - first >= 2 {
        return (first..=last).step_by(stride as usize).map(|power| libm::exp10(power.into())).collect();
    }
    let finer = (first - 1..=last).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * libm::exp10(power.into())));
    finer.filter(|value| (low * (1.0 - slack)..=high * (1.0 + slack)).contains(value)).collect()
}

/// A value among others at steps of `step` up to `high`.
fn with_step(value: f64, step: f64, high: f64, unit: Unit) -> String {
    let (value, step, suffix) = match unit {
        Unit::Percent => (100.0 * value, 100.0 * step, " %"),
        Unit::Number | Unit::Count if high.abs() >= 1e6 => (value / 1e6, step / 1e6, " M"),
        Unit::Number | Unit::Count => (value, step, ""),
    };
    let decimals = (-libm::floor(libm::log10(step) + 1e-9)).max(0.0) as usize;
    if decimals > 5 || value.abs() >= 1e9 {
        return format!("{}{suffix}", scientific(value));
    }
    format!("{}{suffix}", separated(value, decimals))
}

/// Values that stand for themselves, all in one manner: `0.01`, `5,000` or, where some are too long for that, `10⁻⁵`.
fn written(values: &[f64], unit: Unit) -> Vec<String> {
    let (factor, suffix) = if unit == Unit::Percent { (100.0, " %") } else { (1.0, "") };
    let values = values.iter().map(|value| factor * value);
    let is_short = values.clone().all(|value| (9.9e-4..1e6).contains(&value));
    values.map(|value| format!("{}{suffix}", if is_short { plain(value) } else { scientific(value) })).collect()
}

fn plain(value: f64) -> String {
    separated(value, (-libm::floor(libm::log10(value) + 1e-9)).max(0.0) as usize)
}

fn separated(value: f64, decimals: usize) -> String {
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let whole = whole.parse().map_or_else(|_| whole.to_owned(), count);
    let sign = if value < 0.0 && text.bytes().any(|digit| (b'1'..=b'9').contains(&digit)) { "−" } else { "" };
    if rest.is_empty() { format!("{sign}{whole}") } else { format!("{sign}{whole}.{rest}") }
}

/// `2×10⁻⁵`.
fn scientific(value: f64) -> String {
    if value == 0.0 {
        return "0".into();
    }
    let text = format!("{value:.1e}");
    let (digits, power) = text.split_once('e').unwrap_or((&text, "0"));
    let digits = digits.trim_end_matches(".0").replace('-', "−");
    let power: String = power.chars().map(raised).collect();
    if digits == "1" { format!("10{power}") } else { format!("{digits}×10{power}") }
}

fn raised(digit: char) -> char {
    match digit {
        '-' => '⁻',
        '1' => '¹',
        '2' => '²',
        '3' => '³',
        _ => digit.to_digit(10).and_then(|digit| char::from_u32(0x2070 + digit)).unwrap_or(digit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(axis: &Axis, low: f64, high: f64) -> Vec<String> {
        Ticks::of(axis, low, high, 5).labels
    }

    #[test]
    fn linear_ticks_are_round_and_equally_precise() {
        assert_eq!(labels(&Axis::new(""), 0.0, 20.0), ["0", "5", "10", "15", "20"]);
        assert_eq!(labels(&Axis::new(""), -0.5, 0.5), ["−0.4", "−0.2", "0.0", "0.2", "0.4"]);
        assert_eq!(labels(&Axis::percent(""), 0.85, 0.95), ["86 %", "88 %", "90 %", "92 %", "94 %"]);
        assert_eq!(labels(&Axis::new(""), 0.0, 5e6), ["0 M", "1 M", "2 M", "3 M", "4 M", "5 M"]);
        assert_eq!(labels(&Axis::count(""), 0.0, 2.0), ["0", "1", "2"]);
        assert_eq!(labels(&Axis::new(""), 0.0, 2_000.0), ["0", "500", "1,000", "1,500", "2,000"]);
    }

    #[test]
    fn logarithmic_ticks_are_powers_of_ten_where_there_are_enough() {
        assert_eq!(labels(&Axis::log(""), 0.001, 10.0), ["0.001", "0.01", "0.1", "1", "10"]);
        assert_eq!(labels(&Axis::log(""), 1e-8, 1e-5), ["10⁻⁸", "10⁻⁷", "10⁻⁶", "10⁻⁵"]);
        assert_eq!(labels(&Axis::log(""), 1.0, 1e10).len(), 4);
        assert_eq!(labels(&Axis::log(""), 1e4, 1e6), ["10⁴", "10⁵", "10⁶"]);
        assert_eq!(labels(&Axis::log(""), 3.0, 60.0), ["5", "10", "20", "50"]);
        assert_eq!(labels(&Axis::log(""), 0.31, 0.39), ["0.32", "0.34", "0.36", "0.38"]);
    }
}
