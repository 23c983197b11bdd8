//! How a number varies.
use serde::Serialize;

/// How a number varies over clients, or over anything else.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The least.
    pub minimum: f64,
    /// The average.
    pub mean: f64,
    /// The greatest.
    pub maximum: f64,
    /// The standard deviation, of these values themselves (divided by their number, not one less).
    pub deviation: f64,
}

impl Spread {
    /// The spread of `values`; `None` where there are none.
    pub fn of(values: impl IntoIterator<Item = usize>) -> Option<Self> {
        let values: Vec<f64> = values.into_iter().map(|value| value as f64).collect();
        let minimum = values.iter().copied().reduce(f64::min)?;
        let maximum = values.iter().copied().reduce(f64::max)?;
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let variance = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
        Some(Self { minimum, mean, maximum, deviation: variance.sqrt() })
    }
}
