//! What is measured along an axis.

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
