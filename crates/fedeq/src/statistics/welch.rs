//! Welch's t-test: do two samples with their own variances have different means?
use serde::Serialize;

use super::Sample;
use super::student::two_sided;

/// How far two means are apart, and how likely chance alone puts them at least as far.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The first mean less the second.
    pub means: f64,
    /// Welch's t.
    pub t: f64,
    /// Welch's and Satterthwaite's degrees of freedom.
    pub freedom: f64,
    /// The two-sided p-value.
    pub p: f64,
}

impl Difference {
    /// The p-value as people write it: `p = 0.031`.
    pub fn chance(&self) -> String {
        if self.p < 0.001 { "p < 0.001".into() } else { format!("p = {:.3}", self.p) }
    }
}

/// Compares two samples of at least two numbers each; nothing if there are fewer, or if none of them varies.
///
/// ```
/// use fedeq::statistics::{Sample, welch};
/// let (a, b) = (Sample::of([1.0, 2.0, 3.0]), Sample::of([7.0, 8.0, 9.0]));
/// assert!(welch(&a, &b).is_some_and(|difference| difference.p < 0.01));
/// assert!(welch(&a, &Sample::of([7.0])).is_none());
/// ```
pub fn welch(first: &Sample, second: &Sample) -> Option<Difference> {
    let (a, b) = (first.variance_of_mean(), second.variance_of_mean());
    let variance = a + b;
    if first.count < 2 || second.count < 2 || variance <= 0.0 {
        return None;
    }
    let means = first.mean - second.mean;
    let t = means / variance.sqrt();
    let below = |part: f64, count: usize| part.powi(2) / (count - 1) as f64;
    let freedom = variance.powi(2) / (below(a, first.count) + below(b, second.count));
    Some(Difference { means, t, freedom, p: two_sided(t, freedom) })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A classic by hand: variances 2.5 and 10, so t = -3 / sqrt(2.5) and freedom = 6.25 / (0.25 / 4 + 4 / 4) = 100 / 17.
    #[test]
    fn t_and_freedom_are_those_computed_by_hand() {
        let a = Sample::of([1.0, 2.0, 3.0, 4.0, 5.0]);
        let b = Sample::of([2.0, 4.0, 6.0, 8.0, 10.0]);
        let difference = welch(&a, &b).expect("enough numbers");
        assert!((difference.t + 3.0 / 2.5f64.sqrt()).abs() < 1e-12);
        assert!((difference.freedom - 100.0 / 17.0).abs() < 1e-12);
    }

    #[test]
    fn the_order_changes_the_sign_and_nothing_else() {
        let (a, b) = (Sample::of([0.9, 0.91, 0.93]), Sample::of([0.8, 0.85, 0.7, 0.75]));
        let (ab, ba) = (welch(&a, &b).expect("enough"), welch(&b, &a).expect("enough"));
        assert_eq!((ab.t, ab.means), (-ba.t, -ba.means));
        assert!((ab.p - ba.p).abs() < 1e-12 && (ab.freedom - ba.freedom).abs() < 1e-12);
    }

    #[test]
    fn numbers_that_do_not_vary_are_not_judged() {
        assert!(welch(&Sample::of([1.0, 1.0]), &Sample::of([2.0, 2.0])).is_none());
    }
}
