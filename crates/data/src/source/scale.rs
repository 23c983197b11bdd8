//! In which units the numbers of a table reach a model.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Error, Result, Scaling, Vectors};

/// What becomes of a table's features before a model sees them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Scale {
    /// Every column gets mean 0 and deviation 1 over the training samples of the federation.
    #[default]
    Standardise,
    /// Nothing: they stay as they are in the file.
    None,
    /// These numbers, whatever the samples are.
    By(Scaling),
}

impl Scale {
    /// What an experiment without this setting means.
    pub(super) fn absent() -> Self {
        Self::None
    }
}

impl Scaling {
    /// The mean and the (population) deviation of every column over the rows with these numbers; nothing if there are none.
    ///
    /// A column that is the same everywhere has no scale of its own: its deviation is set to 1, and it becomes 0.
    ///
    /// ```
    /// use fedeq_data::{Scaling, Vectors};
    /// let vectors = Vectors { width: 2, values: vec![0.0, 7.0, 255.0, 7.0, 9.0, 9.0] };
    /// let scaling = Scaling::of(&vectors, [0, 1]).expect("there are rows");
    /// assert_eq!((scaling.mean, scaling.deviation), (vec![127.5, 7.0], vec![127.5, 1.0]));
    /// ```
    pub fn of(vectors: &Vectors, rows: impl IntoIterator<Item = u32> + Clone) -> Option<Self> {
        let count = rows.clone().into_iter().count();
        let row = |index: u32| &vectors.values[index as usize * vectors.width..][..vectors.width];
        let average = |term: &dyn Fn(usize, f32) -> f64| {
            let mut sums = vec![0.0; vectors.width];
            for index in rows.clone() {
                sums.iter_mut().zip(row(index)).enumerate().for_each(|(column, (sum, &value))| *sum += term(column, value));
            }
            sums.iter_mut().for_each(|sum| *sum /= count as f64);
            sums
        };
        if count == 0 {
            return None;
        }
        let mean = average(&|_, value| f64::from(value));
        let variance = average(&|column, value| (f64::from(value) - mean[column]).powi(2));
        let deviation = |variance: &f64| if is_usable(variance.sqrt() as f32) { variance.sqrt() as f32 } else { 1.0 };
        Some(Self { mean: mean.iter().map(|&mean| mean as f32).collect(), deviation: variance.iter().map(deviation).collect() })
    }

    /// Refuses numbers that do not fit rows of this width, or that nothing can be divided by.
    pub fn check(&self, width: usize) -> Result<()> {
        let Self { mean, deviation } = self;
        if mean.len() != width || deviation.len() != width {
            let problem = format!("`{}` means and `{}` deviations do not fit `{width}` features", mean.len(), deviation.len());
            return Err(Error::unmeetable(problem, "give one of each for every column of features, in their order"));
        }
        if let Some(mean) = mean.iter().find(|mean| !mean.is_finite()) {
            return Err(Error::unmeetable(format!("the mean `{mean}` is not a finite number"), "give finite numbers"));
        }
        match deviation.iter().find(|deviation| !is_usable(**deviation)) {
            None => Ok(()),
            Some(deviation) => {
                Err(Error::unmeetable(format!("nothing can be divided by `{deviation}`"), "give deviations above 0"))
            }
        }
    }

    /// Scales rows in place; their width must be that of the scaling.
    pub fn apply(&self, rows: &mut [f32]) {
        for row in rows.chunks_exact_mut(self.mean.len().max(1)) {
            for ((value, &mean), &deviation) in row.iter_mut().zip(&self.mean).zip(&self.deviation) {
                // In double precision, so that values of any size keep their differences.
                *value = ((f64::from(*value) - f64::from(mean)) / f64::from(deviation)) as f32;
            }
        }
    }
}

/// Whether numbers can be divided by it.
fn is_usable(deviation: f32) -> bool {
    deviation.is_normal() && deviation > 0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standardised_columns_have_mean_0_and_deviation_1_and_constant_ones_are_0() {
        let mut vectors = Vectors { width: 2, values: (0..50).flat_map(|row| [(row * row) as f32, 3e38]).collect() };
        let scaling = Scaling::of(&vectors, 0..50).expect("there are rows");
        scaling.check(2).expect("usable");
        scaling.apply(&mut vectors.values);
        let first: Vec<f64> = vectors.values.iter().step_by(2).map(|&value| f64::from(value)).collect();
        let mean = first.iter().sum::<f64>() / 50.0;
        let variance = first.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / 50.0;
        assert!(mean.abs() < 1e-6 && (variance - 1.0).abs() < 1e-6, "{mean} {variance}");
        assert!(vectors.values.iter().skip(1).step_by(2).all(|&value| value == 0.0));
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let scaling = |mean: f32, deviation: f32| Scaling { mean: vec![mean], deviation: vec![deviation] };
        assert!(scaling(0.0, 1.0).check(1).is_ok() && scaling(0.0, 1.0).check(2).is_err());
        for (mean, deviation) in [(f32::NAN, 1.0), (0.0, 0.0), (0.0, -1.0), (0.0, f32::INFINITY), (0.0, 1e-45)] {
            assert!(scaling(mean, deviation).check(1).is_err(), "{mean} {deviation}");
        }
        assert_eq!(Scaling::of(&Vectors { width: 1, values: vec![1.0] }, []), None);
    }
}
