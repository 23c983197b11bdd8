//! What several seeds say together: means, deviations and whether two means differ by more than chance.
//!
//! # Layout
//! - this file: means and deviations
//! - `test`: the paired t-test and Welch's; `student`: the distribution they need
//! - `best`: which of several are best, beyond their scatter
mod best;
mod student;
mod test;

pub use best::{BEST, best_beyond_scatter};
pub use test::{BySeed, Difference, SIGNIFICANCE, Test, compare};

use serde::Serialize;

/// The mean of some numbers and how far they spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Sample {
    /// How many there are.
    pub count: usize,
    /// Their mean; 0 if there are none.
    pub mean: f64,
    /// Their standard deviation, with `count - 1` below; 0 for fewer than two.
    pub deviation: f64,
}

impl Sample {
    /// The mean and deviation of some numbers.
    ///
    /// ```
    /// use fedeq_run::statistics::Sample;
    /// let sample = Sample::of([2.0, 4.0, 6.0]);
    /// assert_eq!((sample.count, sample.mean, sample.deviation), (3, 4.0, 2.0));
    /// ```
    pub fn of(numbers: impl IntoIterator<Item = f64>) -> Self {
        let numbers: Vec<f64> = numbers.into_iter().collect();
        let count = numbers.len();
        let mean = numbers.iter().sum::<f64>() / count.max(1) as f64;
        let squares: f64 = numbers.iter().map(|number| (number - mean).powi(2)).sum();
        Self { count, mean, deviation: if count < 2 { 0.0 } else { (squares / (count - 1) as f64).sqrt() } }
    }

    /// The variance of the mean.
    fn variance_of_mean(&self) -> f64 {
        self.deviation.powi(2) / self.count as f64
    }
}
