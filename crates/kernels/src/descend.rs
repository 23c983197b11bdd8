//! A gradient step with a pull towards elsewhere.
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::instructions::multiply_add;

/// `p <- p - rate (gradient + strength p + offset)`, in one pass over the numbers.
///
/// ```
/// use fedeq_kernels::{InstructionSet, descend::Descent};
///
/// let mut p = [1.0, 2.0];
/// let descent = Descent { rate: 0.5, strength: 0.0, gradient: &[2.0, 4.0], offset: None };
/// descent.run(InstructionSet::best(), &mut p);
/// assert_eq!(p, [0.0, 0.0]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Descent<'a> {
    /// The size of the step.
    pub rate: f32,
    /// How strongly parameters are pulled towards zero.
    pub strength: f32,
    /// The gradient of the loss.
    pub gradient: &'a [f32],
    /// A force that does not depend on the parameters.
    pub offset: Option<&'a [f32]>,
}

impl Descent<'_> {
    /// Takes the step.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn run(self, set: InstructionSet, p: &mut [f32]) {
        assert_eq!(self.gradient.len(), p.len(), "a gradient for every parameter");
        assert!(self.offset.is_none_or(|offset| offset.len() == p.len()), "an offset for every parameter");
        set.run(Step(self, p));
    }
}

struct Step<'a, 'b>(Descent<'a>, &'b mut [f32]);

impl WithSimd for Step<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(Descent { rate, strength, gradient, offset }, p) = self;
        let ((p, p_rest), (g, g_rest)) = (S::as_mut_simd_f32s(p), S::as_simd_f32s(gradient));
        let (o, o_rest) = S::as_simd_f32s(offset.unwrap_or_default());
        let kept = simd.splat_f32s(1.0 - rate * strength);
        let back = simd.splat_f32s(-rate);
        for (at, (p, &g)) in p.iter_mut().zip(g).enumerate() {
            let force = if o.is_empty() { g } else { simd.add_f32s(g, o[at]) };
            *p = multiply_add(simd, back, force, simd.mul_f32s(kept, *p));
        }
        for (at, (p, g)) in p_rest.iter_mut().zip(g_rest).enumerate() {
            let force = g + o_rest.get(at).copied().unwrap_or_default();
            *p = (1.0 - rate * strength) * *p - rate * force;
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
                    Descent { rate: 0.1, strength: 0.3, gradient: &gradient, offset }.run(set, &mut found);
                    for at in 0..count {
                        let force = gradient[at] + 0.3 * p[at] + offset.map_or(0.0, |offset| offset[at]);
                        assert!((found[at] - (p[at] - 0.1 * force)).abs() < 1e-6, "{}", set.name());
                    }
                }
            }
        }
    }
}
