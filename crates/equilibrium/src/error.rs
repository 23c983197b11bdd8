//! Settings that mean nothing, or that no machine has room for, are refused before anything runs.
use std::ops::RangeInclusive;

/// Vectors of the size of a state that a solver may keep for a sample: many times what anybody uses, and few enough to fit.
pub(crate) const MEMORY: RangeInclusive<usize> = 1..=200;
/// Applications of a cell that may be differentiated, each of which keeps what its gradient needs.
pub(crate) const PHANTOM_STEPS: RangeInclusive<usize> = 1..=1000;
/// Evaluations of a map for one sample.
pub(crate) const STEPS: RangeInclusive<usize> = 1..=1_000_000;

/// A setting outside the range in which it means something.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("`{name}` is `{value}`, but must be {expected}")]
pub struct InvalidSetting {
    /// The setting, as it is written in a configuration.
    pub name: String,
    /// The offending value.
    pub value: String,
    /// The range in which it means something.
    pub expected: String,
}

impl InvalidSetting {
    /// The same setting as part of something larger: `stop.max_steps` under `model.equilibrium` is `model.equilibrium.stop.max_steps`.
    pub fn under(mut self, prefix: &str) -> Self {
        self.name = format!("{prefix}.{}", self.name);
        self
    }
}

pub(crate) fn at_least(name: &str, value: usize, minimum: usize) -> Result<(), InvalidSetting> {
    ensure(value >= minimum, name, value, format!("at least {minimum}"))
}

pub(crate) fn within(name: &str, value: usize, range: RangeInclusive<usize>) -> Result<(), InvalidSetting> {
    let expected = || format!("a whole number from {} to {}", range.start(), range.end());
    if range.contains(&value) { Ok(()) } else { Err(invalid(name, value, expected())) }
}

pub(crate) fn non_negative(name: &str, value: f64) -> Result<(), InvalidSetting> {
    ensure(value.is_finite() && value >= 0.0, name, value, "a number of at least 0")
}

pub(crate) fn positive(name: &str, value: f64) -> Result<(), InvalidSetting> {
    ensure(value.is_finite() && value > 0.0, name, value, "a number above 0")
}

/// For shares of something that must not be all of it: 0 <= value < 1.
pub(crate) fn below_one(name: &str, value: f64) -> Result<(), InvalidSetting> {
    ensure((0.0..1.0).contains(&value), name, value, "at least 0 and below 1")
}

fn ensure(holds: bool, name: &str, value: impl std::fmt::Display, expected: impl Into<String>) -> Result<(), InvalidSetting> {
    if holds { Ok(()) } else { Err(invalid(name, value, expected.into())) }
}

fn invalid(name: &str, value: impl std::fmt::Display, expected: String) -> InvalidSetting {
    InvalidSetting { name: name.to_owned(), value: value.to_string(), expected }
}
