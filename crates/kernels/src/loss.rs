//! Softmax and the cross-entropy loss of logits, with its gradient.
//!
//! The loss of a row `x` with class `t` is `ln(sum_j e^(x_j - m)) + m - x_t` with `m` the largest entry, and its gradient
//! `softmax(x) - onehot(t)`. Exponentials are summed in single precision, everything after that is in double precision; no function
//! of a system's library is called.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::loss::{Predictions, cross_entropy_with_gradient};
//!
//! let rows = Predictions { logits: &[1.0, 1.0, 9.0, 0.0], classes: 2, targets: &[0, 1], ignored: Some(&[false, true]) };
//! let mut gradient = [f32::NAN; 4];
//! let loss = cross_entropy_with_gradient(InstructionSet::best(), rows, 1.0, &mut gradient);
//! assert_eq!((loss.count, gradient), (1, [-0.5, 0.5, 0.0, 0.0]));
//! assert!((loss.sum - 2f64.ln()).abs() < 1e-7);
//! ```
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::elementary::{exp, ln, select};

/// What a network says of some rows (samples, or positions of sequences), and what it should say.
#[derive(Clone, Copy, Debug)]
pub struct Predictions<'a> {
    /// `[rows, classes]`.
    pub logits: &'a [f32],
    /// How many classes there are.
    pub classes: usize,
    /// The class of each row.
    pub targets: &'a [i32],
    /// Which rows are padding and do not count; their targets may be anything. All rows count where there is nothing.
    pub ignored: Option<&'a [bool]>,
}

/// A loss summed over rows.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    /// The sum over the rows that count.
    pub sum: f64,
    /// How many count.
    pub count: usize,
}

impl Predictions<'_> {
    /// How many rows count.
    pub fn count(&self) -> usize {
        self.ignored.map_or(self.targets.len(), |ignored| ignored.iter().filter(|&&ignored| !ignored).count())
    }

    /// How many of the rows that count have their largest entry (the first one of several) at their target. What is not a number
    /// counts as larger than any.
    ///
    /// # Panics
    ///
    /// As [`cross_entropy`].
    pub fn correct(&self) -> usize {
        self.check();
        let rows = self.logits.chunks_exact(self.classes).enumerate();
        rows.filter(|&(row, logits)| self.target(row).is_some_and(|target| target == largest_at(logits))).count()
    }

    fn check(&self) {
        check_rows(self.classes, self.logits.len());
        assert!(self.targets.len().checked_mul(self.classes) == Some(self.logits.len()), "every row has a target");
        assert!(self.ignored.is_none_or(|ignored| ignored.len() == self.targets.len()), "every row counts or does not");
    }

    /// The class of a row, if it counts.
    #[inline(always)]
    fn target(&self, row: usize) -> Option<usize> {
        if self.ignored.is_some_and(|ignored| ignored[row]) {
            return None;
        }
        let target = usize::try_from(self.targets[row]).ok().filter(|&target| target < self.classes);
        Some(target.unwrap_or_else(|| panic!("the target of a row is not one of `{}` classes", self.classes)))
    }
}

/// The place of the largest entry of a row, the first one of several; what is not a number counts as larger than any.
pub fn largest_at(row: &[f32]) -> usize {
    let mut best = 0;
    for (at, value) in row.iter().enumerate() {
        if value.is_nan() {
            return at;
        }
        if *value > row[best] {
            best = at;
        }
    }
    best
}

/// The cross-entropy of the rows that count.
///
/// # Panics
///
/// If there is not a target for every row of logits, or the target of a row that counts is not a class.
pub fn cross_entropy(set: InstructionSet, predictions: Predictions<'_>) -> Loss {
    predictions.check();
    set.run(CrossEntropy { predictions, gradient: None })
}

/// The same, and the gradient of `scale` times the sum: `scale (softmax - onehot)`, zero in rows that do not count.
///
/// The mean is trained with a scale of one over [`Predictions::count`].
///
/// # Panics
///
/// As [`cross_entropy`], or if the gradient is not as long as the logits.
pub fn cross_entropy_with_gradient(set: InstructionSet, predictions: Predictions<'_>, scale: f32, gradient: &mut [f32]) -> Loss {
    predictions.check();
    assert_eq!(gradient.len(), predictions.logits.len(), "there is a gradient for every logit");
    set.run(CrossEntropy { predictions, gradient: Some((scale, gradient)) })
}

/// The negative log-likelihood of probabilities instead of logits, none of them counted as smaller than the smallest normal number.
///
/// # Panics
///
/// As [`cross_entropy`].
pub fn negative_log_likelihood(probabilities: Predictions<'_>) -> Loss {
    probabilities.check();
    let mut loss = Loss::default();
    for (row, probabilities_of_row) in probabilities.logits.chunks_exact(probabilities.classes).enumerate() {
        if let Some(target) = probabilities.target(row) {
            let probability = probabilities_of_row[target];
            // Not a maximum: that would hide what is not a number.
            let probability = if probability < f32::MIN_POSITIVE { f32::MIN_POSITIVE } else { probability };
            loss = Loss { sum: loss.sum - ln(f64::from(probability)), count: loss.count + 1 };
        }
    }
    loss
}

/// Every row made positive with the sum 1: `e^x / sum(e^x)`. `[rows, classes]`
///
/// # Panics
///
/// If the classes do not divide the numbers, or the slices differ in length.
pub fn softmax(set: InstructionSet, classes: usize, x: &[f32], y: &mut [f32]) {
    check_rows(classes, x.len());
    assert_eq!(x.len(), y.len(), "softmax gives as many numbers as it gets");
    set.run(Softmax { classes, x, y });
}

/// The logarithm of [`softmax`], which stays exact where that is close to zero: `x - ln(sum(e^x))`. `[rows, classes]`
///
/// # Panics
///
/// As [`softmax`].
pub fn log_softmax(set: InstructionSet, classes: usize, x: &[f32], y: &mut [f32]) {
    check_rows(classes, x.len());
    assert_eq!(x.len(), y.len(), "softmax gives as many numbers as it gets");
    set.run(LogSoftmax { classes, x, y });
}

fn check_rows(classes: usize, numbers: usize) {
    assert!(classes > 0 && numbers.is_multiple_of(classes), "there are whole rows of `{classes}` classes");
}

struct CrossEntropy<'a> {
    predictions: Predictions<'a>,
    /// What the gradient is multiplied by, and where it goes.
    gradient: Option<(f32, &'a mut [f32])>,
}

impl WithSimd for CrossEntropy<'_> {
    type Output = Loss;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> Loss {
        let Self { predictions, mut gradient } = self;
        let (classes, mut loss) = (predictions.classes, Loss::default());
        for (row, logits) in predictions.logits.chunks_exact(classes).enumerate() {
            let gradient = gradient.as_mut().map(|(scale, all)| (*scale, &mut all[row * classes..][..classes]));
            let Some(target) = predictions.target(row) else {
                if let Some((_, gradient)) = gradient {
                    gradient.fill(0.0);
                }
                continue;
            };
            let largest = largest(simd, logits);
            let sum = match gradient {
                None => exponentials::<S>(simd, logits, largest, None),
                Some((scale, gradient)) => {
                    let sum = exponentials(simd, logits, largest, Some(&mut *gradient));
                    multiply(simd, scale / sum, gradient);
                    gradient[target] -= scale;
                    sum
                }
            };
            loss.sum += ln(f64::from(sum)) + (f64::from(largest) - f64::from(logits[target]));
            loss.count += 1;
        }
        loss
    }
}

struct Softmax<'a> {
    classes: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (x, y) in self.x.chunks_exact(self.classes).zip(self.y.chunks_exact_mut(self.classes)) {
            let sum = exponentials(simd, x, largest(simd, x), Some(&mut *y));
            multiply(simd, 1.0 / sum, y);
        }
    }
}

struct LogSoftmax<'a> {
    classes: usize,
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for LogSoftmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (x, y) in self.x.chunks_exact(self.classes).zip(self.y.chunks_exact_mut(self.classes)) {
            let largest = largest(simd, x);
            let all = ln(f64::from(exponentials::<S>(simd, x, largest, None)));
            for (x, y) in x.iter().zip(y) {
                *y = (f64::from(*x) - f64::from(largest) - all) as f32;
            }
        }
    }
}

/// The largest number of a row; anything where there is one that is none.
#[inline(always)]
fn largest<S: Simd>(simd: S, row: &[f32]) -> f32 {
    let (vectors, rest) = S::as_simd_f32s(row);
    let lowest = simd.splat_f32s(f32::NEG_INFINITY);
    let largest = vectors.iter().fold(lowest, |largest, x| simd.max_f32s(largest, *x));
    let exists = simd.mask_between_m32s(0, rest.len() as u32).mask();
    let last = select(simd, exists, simd.partial_load_f32s(rest), lowest);
    simd.reduce_max_f32s(simd.max_f32s(largest, last))
}

/// The sum of `e^(x - largest)`, and these numbers themselves if wanted.
#[inline(always)]
fn exponentials<S: Simd>(simd: S, x: &[f32], largest: f32, y: Option<&mut [f32]>) -> f32 {
    let (x, x_rest) = S::as_simd_f32s(x);
    let (y, y_rest) = S::as_mut_simd_f32s(y.unwrap_or_default());
    let (largest, mut sum) = (simd.splat_f32s(largest), simd.splat_f32s(0.0));
    for (at, x) in x.iter().enumerate() {
        let value = exp(simd, simd.sub_f32s(*x, largest));
        sum = simd.add_f32s(sum, value);
        if let Some(y) = y.get_mut(at) {
            *y = value;
        }
    }
    let exists = simd.mask_between_m32s(0, x_rest.len() as u32).mask();
    let last = exp(simd, simd.sub_f32s(simd.partial_load_f32s(x_rest), largest));
    simd.partial_store_f32s(y_rest, last);
    simd.reduce_sum_f32s(simd.add_f32s(sum, select(simd, exists, last, simd.splat_f32s(0.0))))
}

/// `y <- factor y`
#[inline(always)]
fn multiply<S: Simd>(simd: S, factor: f32, y: &mut [f32]) {
    let (vectors, rest) = S::as_mut_simd_f32s(y);
    for y in vectors {
        *y = simd.mul_f32s(*y, simd.splat_f32s(factor));
    }
    for y in rest {
        *y *= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logits(rows: usize, classes: usize) -> Vec<f32> {
        (0..rows * classes).map(|at| (((at * 7919 + 13) % 2003) as f32 / 1001.5 - 1.0) * (1 + at / classes * 7) as f32).collect()
    }

    /// `ln(softmax)` of a row, in double precision.
    fn exact(row: &[f32]) -> Vec<f64> {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = row.iter().map(|&x| (f64::from(x) - f64::from(largest)).exp()).sum();
        row.iter().map(|&x| f64::from(x) - f64::from(largest) - sum.ln()).collect()
    }

    #[test]
    fn softmax_and_its_logarithm_agree_with_double_precision() {
        for set in InstructionSet::available() {
            for (rows, classes) in [(0, 3), (4, 1), (9, 2), (5, 10), (6, 16), (7, 62), (3, 100)] {
                let x = logits(rows, classes);
                let (mut plain, mut logs) = (vec![0.0; x.len()], vec![0.0; x.len()]);
                softmax(set, classes, &x, &mut plain);
                log_softmax(set, classes, &x, &mut logs);
                for (at, exact) in x.chunks_exact(classes).flat_map(exact).enumerate() {
                    let name = set.name();
                    assert!((f64::from(plain[at]) - exact.exp()).abs() < 1e-6, "{name} {}: {}", plain[at], exact.exp());
                    assert!((f64::from(logs[at]) - exact).abs() < 1e-6 * exact.abs().max(1.0), "{name} {}: {exact}", logs[at]);
                }
            }
        }
    }

    #[test]
    fn losses_and_gradients_agree_with_double_precision_and_leave_out_what_does_not_count() {
        for set in InstructionSet::available() {
            for (rows, classes) in [(0, 3), (4, 1), (9, 2), (5, 10), (6, 16), (7, 62), (3, 100)] {
                let x = logits(rows, classes);
                let ignored: Vec<bool> = (0..rows).map(|row| row % 3 == 1).collect();
                // Targets of rows that do not count may be anything.
                let target = |row: usize| if ignored[row] { -5 } else { ((row * 31 + 7) % classes) as i32 };
                let targets: Vec<i32> = (0..rows).map(target).collect();
                let predictions = Predictions { logits: &x, classes, targets: &targets, ignored: Some(&ignored) };
                let mut gradient = vec![f32::NAN; x.len()];
                let loss = cross_entropy_with_gradient(set, predictions, 0.5, &mut gradient);
                assert_eq!(loss, cross_entropy(set, predictions));
                assert_eq!(loss.count, predictions.count());
                let mut sum = 0.0;
                for (row, logs) in x.chunks_exact(classes).map(exact).enumerate() {
                    for (class, log) in logs.iter().enumerate() {
                        let chosen = f64::from(u8::from(targets[row] == class as i32));
                        let wanted = if ignored[row] { 0.0 } else { 0.5 * (log.exp() - chosen) };
                        assert!((f64::from(gradient[row * classes + class]) - wanted).abs() < 1e-6, "{}", set.name());
                    }
                    sum -= if ignored[row] { 0.0 } else { logs[targets[row] as usize] };
                }
                assert!((loss.sum - sum).abs() < 1e-6 * sum.max(1.0), "{}: {} {sum}", set.name(), loss.sum);
            }
        }
    }

    #[test]
    fn the_gradient_is_the_difference_quotient_of_the_loss() {
        let set = InstructionSet::best();
        let (x, targets) = (logits(3, 5), [4, 0, 2]);
        fn predictions<'a>(logits: &'a [f32], targets: &'a [i32]) -> Predictions<'a> {
            Predictions { logits, classes: 5, targets, ignored: None }
        }
        let mut gradient = vec![0.0; x.len()];
        cross_entropy_with_gradient(set, predictions(&x, &targets), 1.0, &mut gradient);
        for (at, found) in gradient.iter().enumerate() {
            let moved = |by: f32| {
                let mut x = x.clone();
                x[at] += by;
                cross_entropy(set, predictions(&x, &targets)).sum
            };
            let quotient = (moved(0.0625) - moved(-0.0625)) / 0.125;
            assert!((quotient - f64::from(*found)).abs() < 2e-3, "{quotient} {found}");
        }
    }

    #[test]
    fn what_is_not_a_number_is_not_hidden() {
        for set in InstructionSet::available() {
            for bad in [f32::NAN, f32::INFINITY] {
                for at in [0, 3, 17] {
                    let mut x = vec![0.5; 20];
                    x[at] = bad;
                    let predictions = Predictions { logits: &x, classes: 20, targets: &[1], ignored: None };
                    assert!(cross_entropy(set, predictions).sum.is_nan(), "{} {bad} at {at}", set.name());
                    assert_eq!(predictions.correct(), 0);
                }
            }
        }
        let probabilities = Predictions { logits: &[f32::NAN, 0.0], classes: 2, targets: &[0], ignored: None };
        assert!(negative_log_likelihood(probabilities).sum.is_nan());
    }

    #[test]
    fn the_first_of_the_largest_entries_is_what_is_predicted() {
        let logits = [1.0, 3.0, 3.0, 2.0, 2.0, 2.0, 0.0, f32::NAN, 9.0];
        let predictions = |targets| Predictions { logits: &logits, classes: 3, targets, ignored: None };
        assert_eq!(predictions(&[1, 0, 1]).correct(), 3);
        assert_eq!(predictions(&[2, 1, 2]).correct(), 0);
    }

    #[test]
    fn the_likelihood_of_probabilities_is_bounded_where_they_are_zero() {
        let rows = Predictions { logits: &[0.25, 0.75, 0.0, 1.0], classes: 2, targets: &[0, 0], ignored: None };
        let exact = -(0.25f64.ln()) - f64::from(f32::MIN_POSITIVE).ln();
        assert!((negative_log_likelihood(rows).sum - exact).abs() < 1e-12 * exact);
    }

    #[test]
    #[should_panic = "the target of a row is not one of `2` classes"]
    fn a_target_that_is_no_class_is_refused() {
        cross_entropy(InstructionSet::best(), Predictions { logits: &[0.0; 2], classes: 2, targets: &[2], ignored: None });
    }
}
