//! Do two series of numbers have different means, or does chance explain the difference?
use std::collections::BTreeMap;

use serde::Serialize;

use super::Sample;
use super::student::two_sided;

/// Below this probability chance is not held to explain a difference.
pub const SIGNIFICANCE: f64 = 0.05;

/// How far two means are apart, and how likely chance alone puts them at least as far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The first mean less the second.
    pub means: f64,
    /// How it was tested.
    pub test: Test,
    /// Student's or Welch's t; nothing where the differences do not vary.
    pub t: Option<f64>,
    /// Degrees of freedom: pairs less one, or Welch's and Satterthwaite's.
    pub freedom: f64,
    /// The two-sided p-value.
    pub p: f64,
}

/// How two series are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// The paired t-test: what both have at the same seed is subtracted first, since a seed also draws the clients' data.
    Paired {
        /// Seeds that both have.
        pairs: usize,
    },
    /// Welch's t-test: two independent samples with their own variances.
    Welch {
        /// Numbers in each.
        counts: [usize; 2],
    },
}

/// Numbers by seed.
pub type BySeed = BTreeMap<u64, f64>;

impl Difference {
    /// The p-value as people write it: `p = 0.031`.
    pub fn chance(&self) -> String {
        if self.p < 0.001 { "p < 0.001".into() } else { format!("p = {:.3}", self.p) }
    }

    /// Whether chance alone would hardly do it.
    pub fn is_significant(&self) -> bool {
        self.p < SIGNIFICANCE
    }
}

impl Test {
    /// What was done, in words: `paired t-test, n = 3`.
    pub fn words(&self) -> String {
        match self {
            Self::Paired { pairs } => format!("paired t-test, n = {pairs}"),
            Self::Welch { counts: [first, second] } => format!("Welch's t-test, n = {first} and {second}, not paired"),
        }
    }
}

/// Compares two series over the seeds that both have or, where fewer than two are common or a seed does not mean the same data to both (`same_data`), by
/// Welch's test; nothing if either has fewer than two numbers.
///
/// ```
/// use fedeq_run::statistics::{Test, compare};
/// let series = |numbers: [f64; 3]| (0..).zip(numbers).collect();
/// let difference = compare(&series([0.70, 0.80, 0.90]), &series([0.66, 0.75, 0.86]), true).unwrap();
/// assert_eq!(difference.test, Test::Paired { pairs: 3 });
/// assert!(difference.p < 0.01); // Not by Welch's test: the seeds scatter by ten points.
/// ```
pub fn compare(first: &BySeed, second: &BySeed, same_data: bool) -> Option<Difference> {
    let pairs: Vec<f64> = first.iter().filter_map(|(seed, number)| Some(number - second.get(seed)?)).collect();
    if same_data && pairs.len() > 1 {
        return Some(paired(&pairs));
    }
    let sample = |series: &BySeed| Sample::of(series.values().copied());
    welch(&sample(first), &sample(second))
}

/// The paired t-test: is the mean of at least two differences another than zero?
fn paired(differences: &[f64]) -> Difference {
    let sample = Sample::of(differences.iter().copied());
    let freedom = (sample.count - 1) as f64;
    let t = (sample.deviation > 0.0).then(|| sample.mean / sample.variance_of_mean().sqrt());
    Difference { means: sample.mean, test: Test::Paired { pairs: sample.count }, t, freedom, p: chance(t, freedom, sample.mean) }
}

/// Welch's t-test of two samples of at least two numbers each; nothing if there are fewer.
fn welch(first: &Sample, second: &Sample) -> Option<Difference> {
    if first.count < 2 || second.count < 2 {
        return None;
    }
    let (a, b) = (first.variance_of_mean(), second.variance_of_mean());
    let (variance, means) = (a + b, first.mean - second.mean);
    let below = |part: f64, count: usize| part.powi(2) / (count - 1) as f64;
    let t = (variance > 0.0).then(|| means / variance.sqrt());
    let freedom = match t {
        Some(_) => variance.powi(2) / (below(a, first.count) + below(b, second.count)),
        None => (first.count + second.count - 2) as f64,
    };
    let test = Test::Welch { counts: [first.count, second.count] };
    Some(Difference { means, test, t, freedom, p: chance(t, freedom, means) })
}

/// Numbers that do not vary differ for certain, or not at all.
fn chance(t: Option<f64>, freedom: f64, means: f64) -> f64 {
    match t {
        Some(t) => two_sided(t, freedom),
        None if means == 0.0 => 1.0,
        None => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(numbers: &[f64]) -> BySeed {
        (0..).zip(numbers.iter().copied()).collect()
    }

    /// Differences 1, 2, 3: mean 2, deviation 1, so t = 2 sqrt(3) with two degrees of freedom, whose distribution has a closed form.
    #[test]
    fn a_paired_test_is_the_one_computed_by_hand() {
        let difference = compare(&series(&[11.0, 22.0, 33.0]), &series(&[10.0, 20.0, 30.0]), true).expect("enough numbers");
        let t = 12.0f64.sqrt();
        assert!((difference.t.expect("they vary") - t).abs() < 1e-12);
        assert!((difference.p - (1.0 - t / (2.0 + t * t).sqrt())).abs() < 1e-12, "{}", difference.p);
        assert_eq!((difference.means, difference.test), (2.0, Test::Paired { pairs: 3 }));
    }

    /// A classic by hand: variances 2.5 and 10, so t = -3 / sqrt(2.5) and freedom = 6.25 / (0.25 / 4 + 4 / 4) = 100 / 17.
    #[test]
    fn welchs_test_is_the_one_computed_by_hand() {
        let (a, b) = (series(&[1.0, 2.0, 3.0, 4.0, 5.0]), series(&[2.0, 4.0, 6.0, 8.0, 10.0]));
        let difference = compare(&a, &b, false).expect("enough numbers");
        assert!((difference.t.expect("they vary") + 3.0 / 2.5f64.sqrt()).abs() < 1e-12);
        assert!((difference.freedom - 100.0 / 17.0).abs() < 1e-12);
    }

    #[test]
    fn only_common_seeds_are_paired_and_the_rest_is_said() {
        let (a, b) = (BySeed::from([(0, 1.0), (1, 2.0), (5, 9.0)]), BySeed::from([(0, 1.5), (1, 2.1), (7, 0.0)]));
        assert_eq!(compare(&a, &b, true).map(|difference| difference.test), Some(Test::Paired { pairs: 2 }));
        let other = BySeed::from([(5, 1.0), (7, 2.0)]);
        assert_eq!(compare(&a, &other, true).map(|difference| difference.test), Some(Test::Welch { counts: [3, 2] }));
        assert_eq!(compare(&a, &BySeed::from([(0, 1.0)]), true), None, "one number has no scatter");
    }

    #[test]
    fn the_order_changes_the_sign_and_nothing_else() {
        for same_data in [true, false] {
            let (a, b) = (series(&[0.9, 0.91, 0.93]), series(&[0.8, 0.85, 0.7, 0.75]));
            let (ab, ba) = (compare(&a, &b, same_data).expect("enough"), compare(&b, &a, same_data).expect("enough"));
            assert!(
                (ab.means + ba.means).abs() < 1e-12 && (ab.p - ba.p).abs() < 1e-12 && (ab.freedom - ba.freedom).abs() < 1e-12
            );
        }
    }

    #[test]
    fn numbers_that_do_not_vary_differ_for_certain_or_not_at_all() {
        let p = |a: &[f64], b: &[f64]| compare(&series(a), &series(b), true).map(|difference| difference.p);
        assert_eq!((p(&[1.0, 1.0], &[2.0, 2.0]), p(&[1.0, 3.0], &[1.0, 3.0])), (Some(0.0), Some(1.0)));
    }
}
