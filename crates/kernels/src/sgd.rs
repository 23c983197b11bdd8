//! A step of stochastic gradient descent, with a linear term beside the gradient.
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::instructions::multiply_add;

/// `p <- p - learning_rate (gradient + decay p + offset)`, in one pass over the numbers.
///
/// A proximal term `strength / 2 |p - anchor|^2` is a decay of `strength` and an offset of `-strength anchor`.
///
/// ```
/// use fedeq_kernels::{InstructionSet, sgd::SgdStep};
///
/// let mut p = [1.0, 2.0];
/// let step = SgdStep { learning_rate: 0.5, decay: 0.0, gradient: &[2.0, 4.0], offset: None };
/// step.run(InstructionSet::best(), &mut p);
/// assert_eq!(p, [0.0, 0.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SgdStep<'a> {
    /// How far a step goes.
    pub learning_rate: f32,
    /// What parameters are multiplied by and added to their gradient: how strongly they are pulled towards zero.
    pub decay: f32,
    /// The gradient of the loss.
    pub gradient: &'a [f32],
    /// What is added to the gradient whatever the parameters are.
    pub offset: Option<&'a [f32]>,
}

impl SgdStep<'_> {
    /// Takes the step.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn run(self, set: InstructionSet, p: &mut [f32]) {
        assert_eq!(self.gradient.len(), p.len(), "a gradient for every parameter");
        assert!(self.offset.is_none_or(|offset| offset.len() == p.len()), "an offset for every parameter");
        set.run(Kernel(self, p));
    }
}

struct Kernel<'a, 'b>(SgdStep<'a>, &'b mut [f32]);

impl WithSimd for Kernel<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(SgdStep { learning_rate, decay, gradient, offset }, p) = self;
        let ((p, p_rest), (g, g_rest)) = (S::as_mut_simd_f32s(p), S::as_simd_f32s(gradient));
        let (o, o_rest) = S::as_simd_f32s(offset.unwrap_or_default());
        let kept = simd.splat_f32s(1.0 - learning_rate * decay);
        let back = simd.splat_f32s(-learning_rate);
        for (at, (p, &g)) in p.iter_mut().zip(g).enumerate() {
            let force = if o.is_empty() { g } else { simd.add_f32s(g, o[at]) };
            *p = multiply_add(simd, back, force, simd.mul_f32s(kept, *p));
        }
        for (at, (p, g)) in p_rest.iter_mut().zip(g_rest).enumerate() {
            let force = g + o_rest.get(at).copied().unwrap_or_default();
            *p = (1.0 - learning_rate * decay) * *p - learning_rate * force;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_follows_its_formula_for_any_length() {
        for set in InstructionSet::available() {
            for count in [0, 1, 5, 16, 37] {
                let numbers =
                    |seed: usize| -> Vec<f32> { (0..count).map(|at| ((at * 31 + seed) % 17) as f32 / 8.0 - 1.0).collect() };
                let (p, gradient, offset) = (numbers(1), numbers(2), numbers(3));
                for offset in [None, Some(&offset[..])] {
                    let mut found = p.clone();
                    SgdStep { learning_rate: 0.1, decay: 0.3, gradient: &gradient, offset }.run(set, &mut found);
                    for at in 0..count {
                        let force = gradient[at] + 0.3 * p[at] + offset.map_or(0.0, |offset| offset[at]);
                        assert!((found[at] - (p[at] - 0.1 * force)).abs() < 1e-6, "{}", set.name());
                    }
                }
            }
        }
    }
}
