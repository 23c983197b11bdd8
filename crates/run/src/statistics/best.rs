//! Which of several series are best, beyond their scatter.
use super::test::{BySeed, compare};

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

#[cfg(test)]
mod tests {
    use super::*;

    fn series(numbers: [f64; 3]) -> BySeed {
        (0..).zip(numbers).collect()
    }

    #[test]
    fn what_lies_within_the_scatter_of_the_best_is_as_good() {
        let (best, near, far) = (series([0.90, 0.94, 0.92]), series([0.91, 0.90, 0.93]), series([0.80, 0.84, 0.82]));
        assert_eq!(best_beyond_scatter(&[far.clone(), best.clone(), near], |_, _| true), [1, 2]);
        assert_eq!(best_beyond_scatter(&[far, best], |_, _| true), [1]);
    }

    #[test]
    fn one_seed_says_nothing_about_who_is_best() {
        let one = |number: f64| BySeed::from([(0, number)]);
        assert!(best_beyond_scatter(&[one(0.9), one(0.1)], |_, _| true).is_empty());
        assert!(best_beyond_scatter(&[series([0.9, 0.8, 0.7]), one(0.1)], |_, _| true).is_empty(), "the only one of its kind");
        assert!(best_beyond_scatter(&[], |_, _| true).is_empty());
    }
}
