//! What several seeds say together: means, deviations and whether two means differ by more than chance.
use std::collections::BTreeMap;

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
    /// The standard error of the difference.
    #[serde(skip)]
    pub error: f64,
    /// The two-sided p-value.
    pub p: f64,
    /// The difference divided by a standard deviation: that of the differences where it was paired (Cohen's d_z), else the pooled one of both series (Hedges' g); nothing
    /// where that is zero.
    pub effect: Option<f64>,
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
        p_value(self.p)
    }

    /// The 95 % confidence interval of the difference, by Student's t.
    ///
    /// ```
    /// use fedeq_run::statistics::compare;
    /// let series = |numbers: [f64; 3]| (0..).zip(numbers).collect();
    /// let difference = compare(&series([11.0, 22.0, 33.0]), &series([10.0, 20.0, 30.0]), true).unwrap();
    /// let [low, high] = difference.interval(); // 2 +- 4.303 / sqrt(3)
    /// assert!((low + 0.484).abs() < 1e-3 && (high - 4.484).abs() < 1e-3);
    /// ```
    pub fn interval(&self) -> [f64; 2] {
        let half = quantile(self.freedom) * self.error;
        [self.means - half, self.means + half]
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
    let (test, error) = (Test::Paired { pairs: sample.count }, sample.variance_of_mean().sqrt());
    let effect = (sample.deviation > 0.0).then(|| sample.mean / sample.deviation);
    Difference { means: sample.mean, test, t, freedom, error, p: chance(t, freedom, sample.mean), effect }
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
    let effect = hedges_g(first, second);
    Some(Difference { means, test, t, freedom, error: variance.sqrt(), p: chance(t, freedom, means), effect })
}

/// The difference of two means in units of their pooled deviation, with Hedges' correction for few numbers: `1 - 3 / (4 n - 9)`.
fn hedges_g(first: &Sample, second: &Sample) -> Option<f64> {
    let all = (first.count + second.count) as f64;
    let squares = |sample: &Sample| (sample.count - 1) as f64 * sample.deviation.powi(2);
    let pooled = ((squares(first) + squares(second)) / (all - 2.0)).sqrt();
    (pooled > 0.0).then(|| (first.mean - second.mean) / pooled * (1.0 - 3.0 / (4.0 * all - 9.0)))
}

/// p-values corrected for their number by Holm's step-down method: the chance that any of them is as small where there is no difference at all is then
/// no larger than they say.
///
/// ```
/// use fedeq_run::statistics::holm;
/// // The smallest counts three times, the next twice, and none is smaller than one before it.
/// assert_eq!(holm(&[0.25, 0.01, 0.02]), [0.25, 0.03, 0.04]);
/// assert_eq!(holm(&[0.5, 0.4]), [0.8, 0.8]);
/// ```
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let mut corrected = vec![0.0; p.len()];
    let mut largest = 0.0f64;
    for (rank, place) in order.into_iter().enumerate() {
        largest = largest.max(p[place] * (p.len() - rank) as f64).min(1.0);
        corrected[place] = largest;
    }
    corrected
}

/// A p-value as people write it: `p = 0.031`.
pub fn p_value(p: f64) -> String {
    if p < 0.001 { "p < 0.001".into() } else { format!("p = {p:.3}") }
}

/// Numbers that do not vary differ for certain, or not at all.
fn chance(t: Option<f64>, freedom: f64, means: f64) -> f64 {
    match t {
        Some(t) => two_sided(t, freedom),
        None if means == 0.0 => 1.0,
        None => 0.0,
    }
}

/// The places of the best mean and of all that a test cannot tell from it; nothing where fewer than two series can be tested, as with one seed.
///
/// The tests are not corrected for their number.
/// `same_data` says of two places whether a seed means the same data to both, so that they can be paired.
pub fn best_beyond_scatter(series: &[BySeed], same_data: impl Fn(usize, usize) -> bool) -> Vec<usize> {
    let tested: Vec<usize> = (0..series.len()).filter(|place| series[*place].len() > 1).collect();
    let mean = |place: usize| series[place].values().sum::<f64>() / series[place].len() as f64;
    let Some(&best) = tested.iter().max_by(|a, b| mean(**a).total_cmp(&mean(**b))) else { return Vec::new() };
    let is_as_good = |place: &usize| {
        let difference = compare(&series[best], &series[*place], same_data(best, *place));
        *place == best || difference.is_some_and(|difference| !difference.is_significant())
    };
    let good: Vec<usize> = tested.iter().copied().filter(is_as_good).collect();
    if tested.len() > 1 { good } else { Vec::new() }
}

/// What stands under a table in which these stand out.
pub const BEST: &str = "the best, and all that a paired t-test over the seeds both have cannot tell from it (p >= 0.05, not corrected for the number of tests)";

/// The same where the tests of a data set are corrected for their number.
pub const BEST_CORRECTED: &str = "the best, and all that a paired t-test over the seeds both have cannot tell from it (p >= 0.05, corrected for the number of tests by Holm's method)";

/// The probability of being at least as far from 0 as `t`: `I_x(n/2, 1/2)` with `x = n / (n + t^2)`.
fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// How far from 0 `t` is with a probability of [`SIGNIFICANCE`], found by halving: the probability falls with the distance.
fn quantile(freedom: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1e3);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if two_sided(middle, freedom) > SIGNIFICANCE { low = middle } else { high = middle }
    }
    high
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The continued fraction converges fast on this side of the mean; the other side follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let logarithm = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * libm::log(x) + b * libm::log1p(-x);
    libm::exp(logarithm) / (a * fraction(x, a, b))
}

/// The continued fraction `1 + d_1 / (1 + d_2 / (1 + ...))` of the incomplete beta function, from the innermost term outwards.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TERMS: u32 = 400;
    let term = |index: u32| {
        let m = f64::from(index / 2);
        if index.is_multiple_of(2) {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        }
    };
    (1..=TERMS).rev().fold(1.0, |inner, index| 1.0 + term(index) / inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

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

    /// Differences 1, 2, 3 have mean 2 and deviation 1; the classic of Welch has a pooled variance of 6.25, and J = 1 - 3 / 31.
    #[test]
    fn effect_sizes_are_those_computed_by_hand() {
        let paired = compare(&series(&[11.0, 22.0, 33.0]), &series(&[10.0, 20.0, 30.0]), true).expect("enough numbers");
        assert!((paired.effect.expect("they vary") - 2.0).abs() < 1e-12);
        let (a, b) = (series(&[1.0, 2.0, 3.0, 4.0, 5.0]), series(&[2.0, 4.0, 6.0, 8.0, 10.0]));
        let g = compare(&a, &b, false).expect("enough numbers").effect.expect("they vary");
        assert!((g + 3.0 / 2.5 * (28.0 / 31.0)).abs() < 1e-12, "{g}");
        assert_eq!(compare(&series(&[1.0, 1.0]), &series(&[2.0, 2.0]), true).expect("enough").effect, None);
    }

    /// Holm (1979), as in R: p.adjust(c(0.01, 0.04, 0.03, 0.005), "holm") is 0.03 0.06 0.06 0.02.
    #[test]
    fn holms_correction_is_that_of_other_programs() {
        let corrected = holm(&[0.01, 0.04, 0.03, 0.005]);
        assert!(corrected.iter().zip([0.03, 0.06, 0.06, 0.02]).all(|(p, known)| (p - known).abs() < 1e-12), "{corrected:?}");
        assert!(holm(&[]).is_empty());
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

    #[test]
    fn what_lies_within_the_scatter_of_the_best_is_as_good() {
        let (best, near, far) = (series(&[0.90, 0.94, 0.92]), series(&[0.91, 0.90, 0.93]), series(&[0.80, 0.84, 0.82]));
        assert_eq!(best_beyond_scatter(&[far.clone(), best.clone(), near], |_, _| true), [1, 2]);
        assert_eq!(best_beyond_scatter(&[far, best], |_, _| true), [1]);
    }

    #[test]
    fn one_seed_says_nothing_about_who_is_best() {
        let one = |number: f64| BySeed::from([(0, number)]);
        assert!(best_beyond_scatter(&[one(0.9), one(0.1)], |_, _| true).is_empty());
        assert!(best_beyond_scatter(&[series(&[0.9, 0.8, 0.7]), one(0.1)], |_, _| true).is_empty(), "the only one of its kind");
        assert!(best_beyond_scatter(&[], |_, _| true).is_empty());
    }

    /// With one and two degrees of freedom the distribution has closed forms.
    #[test]
    fn closed_forms_agree() {
        for t in [0.1, 0.5, 1.0, 2.0, 5.0, 30.0] {
            let cauchy = 1.0 - 2.0 * f64::atan(t) / PI;
            let two = 1.0 - t / f64::sqrt(2.0 + t * t);
            assert!((two_sided(t, 1.0) - cauchy).abs() < 1e-12, "{t}");
            assert!((two_sided(-t, 2.0) - two).abs() < 1e-12, "{t}");
        }
    }

    /// The 97.5 % quantiles of every statistics textbook.
    #[test]
    fn textbook_quantiles_have_their_probability() {
        for (freedom, quantile) in [(3.0, 3.182_446), (10.0, 2.228_139), (30.0, 2.042_272), (1_000.0, 1.962_339)] {
            assert!((two_sided(quantile, freedom) - 0.05).abs() < 1e-6, "{freedom}");
            assert!((super::quantile(freedom) - quantile).abs() < 1e-5, "{freedom}");
        }
    }

    /// An interval leaves zero out exactly where the test finds a difference.
    #[test]
    fn confidence_intervals_agree_with_the_test() {
        for shift in [0.0, 0.5, 1.2, 1.3, 3.0] {
            for same_data in [true, false] {
                let (a, b) = (series(&[1.0, 2.0, 3.0, 4.0, 5.5]), series(&[0.4, 2.1, 2.2, 3.6, 4.4]));
                let moved = a.iter().map(|(seed, number)| (*seed, number + shift)).collect();
                let difference = compare(&moved, &b, same_data).expect("enough numbers");
                let [low, high] = difference.interval();
                assert_eq!(low > 0.0 || high < 0.0, difference.is_significant(), "{shift} {difference:?}");
                assert!((f64::midpoint(low, high) - difference.means).abs() < 1e-12);
            }
        }
        let same = compare(&series(&[1.0, 2.0]), &series(&[1.0, 2.0]), true).expect("enough numbers");
        assert_eq!(same.interval(), [0.0, 0.0]);
    }

    #[test]
    fn no_difference_is_certain_to_be_reached() {
        assert_eq!(two_sided(0.0, 4.2), 1.0);
    }
}
