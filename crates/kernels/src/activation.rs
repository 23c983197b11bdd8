//! Functions applied to every number on its own, and their derivatives.
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::elementary;
use crate::elementary::{exp_minus_one_below, negate, select, softplus};

/// The nonlinearity of a network: what the choice of the same name in `fedeq-models` is computed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `log(1 + e^x)`, a smooth version of it.
    Softplus,
}

impl Activation {
    /// `y = phi(x)`.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn forward(self, set: InstructionSet, x: &[f32], y: &mut [f32]) {
        assert_eq!(x.len(), y.len(), "an activation gives as many numbers as it gets");
        match self {
            Self::Relu => set.run(Forward(Relu, x, y)),
            Self::Softplus => set.run(Forward(Softplus, x, y)),
        }
    }

    /// `x <- phi(x)`.
    pub fn forward_in_place(self, set: InstructionSet, x: &mut [f32]) {
        match self {
            Self::Relu => set.run(ForwardInPlace(Relu, x)),
            Self::Softplus => set.run(ForwardInPlace(Softplus, x)),
        }
    }

    /// `dx = phi'(x) dy`, given the values `y = phi(x)`, from which both derivatives follow: `x` need not be kept.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn backward(self, set: InstructionSet, y: &[f32], dy: &[f32], dx: &mut [f32]) {
        assert!(y.len() == dy.len() && y.len() == dx.len(), "an activation has as many gradients as values");
        match self {
            Self::Relu => set.run(Backward(Relu, y, dy, dx)),
            Self::Softplus => set.run(Backward(Softplus, y, dy, dx)),
        }
    }

    /// `gradient <- phi'(x) gradient`, given the values `y = phi(x)`.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn backward_in_place(self, set: InstructionSet, y: &[f32], gradient: &mut [f32]) {
        assert_eq!(y.len(), gradient.len(), "an activation has as many gradients as values");
        match self {
            Self::Relu => set.run(BackwardInPlace(Relu, y, gradient)),
            Self::Softplus => set.run(BackwardInPlace(Softplus, y, gradient)),
        }
    }
}

/// The Gaussian error linear unit in its tanh form, `y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
///
/// # Panics
///
/// If the slices differ in length.
pub fn gelu(set: InstructionSet, x: &[f32], y: &mut [f32]) {
    assert_eq!(x.len(), y.len(), "an activation gives as many numbers as it gets");
    set.run(Forward(Gelu, x, y));
}

/// The gradient of the input of [`gelu`], given the input: `dx = gelu'(x) dy`.
///
/// # Panics
///
/// If the slices differ in length.
pub fn gelu_backward(set: InstructionSet, x: &[f32], dy: &[f32], dx: &mut [f32]) {
    assert!(x.len() == dy.len() && x.len() == dx.len(), "an activation has as many gradients as values");
    set.run(Backward(Gelu, x, dy, dx));
}

/// A function of one number, whose derivative can be told from its value.
pub(crate) trait Function: Copy {
    /// Whether it does nothing, so that its values need no memory of their own.
    const IDENTITY: bool = false;

    /// `phi(x)`
    fn value<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s;

    /// `phi'(x) gradient`, given `phi(x)`.
    fn pull_back<S: Simd>(self, simd: S, value: S::f32s, gradient: S::f32s) -> S::f32s;
}

/// `x`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Identity;

/// `max(x, 0)`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relu;

/// `log(1 + e^x)`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Softplus;

impl Function for Identity {
    const IDENTITY: bool = true;

    #[inline(always)]
    fn value<S: Simd>(self, _: S, x: S::f32s) -> S::f32s {
        x
    }

    #[inline(always)]
    fn pull_back<S: Simd>(self, _: S, _: S::f32s, gradient: S::f32s) -> S::f32s {
        gradient
    }
}

impl Function for Relu {
    #[inline(always)]
    fn value<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        // Not a maximum: that would hide what is not a number.
        let zero = simd.splat_f32s(0.0);
        select(simd, simd.less_than_f32s(x, zero), zero, x)
    }

    #[inline(always)]
    fn pull_back<S: Simd>(self, simd: S, value: S::f32s, gradient: S::f32s) -> S::f32s {
        let zero = simd.splat_f32s(0.0);
        select(simd, simd.less_than_f32s(zero, value), gradient, zero)
    }
}

impl Function for Softplus {
    #[inline(always)]
    fn value<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        softplus(simd, x)
    }

    #[inline(always)]
    fn pull_back<S: Simd>(self, simd: S, value: S::f32s, gradient: S::f32s) -> S::f32s {
        // The derivative is 1 / (1 + e^-x) = 1 - e^-y.
        let falling = exp_minus_one_below(simd, negate(simd, value));
        simd.mul_f32s(negate(simd, falling), gradient)
    }
}

/// The Gaussian error linear unit. Its value does not tell its derivative: `pull_back` is given `x` instead, so it is not for use outside.
#[derive(Clone, Copy, Debug)]
struct Gelu;

impl Function for Gelu {
    #[inline(always)]
    fn value<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        elementary::gelu(simd, x)
    }

    #[inline(always)]
    fn pull_back<S: Simd>(self, simd: S, x: S::f32s, gradient: S::f32s) -> S::f32s {
        simd.mul_f32s(elementary::gelu_derivative(simd, x), gradient)
    }
}

struct Forward<'a, F>(F, &'a [f32], &'a mut [f32]);

impl<F: Function> WithSimd for Forward<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(function, x, y) = self;
        let ((x, x_rest), (y, y_rest)) = (S::as_simd_f32s(x), S::as_mut_simd_f32s(y));
        for (x, y) in x.iter().zip(y) {
            *y = function.value(simd, *x);
        }
        simd.partial_store_f32s(y_rest, function.value(simd, simd.partial_load_f32s(x_rest)));
    }
}

struct ForwardInPlace<'a, F>(F, &'a mut [f32]);

impl<F: Function> WithSimd for ForwardInPlace<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(function, x) = self;
        let (x, rest) = S::as_mut_simd_f32s(x);
        for x in x {
            *x = function.value(simd, *x);
        }
        let last = function.value(simd, simd.partial_load_f32s(rest));
        simd.partial_store_f32s(rest, last);
    }
}

struct BackwardInPlace<'a, F>(F, &'a [f32], &'a mut [f32]);

impl<F: Function> WithSimd for BackwardInPlace<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(function, y, gradient) = self;
        let ((y, y_rest), (gradient, rest)) = (S::as_simd_f32s(y), S::as_mut_simd_f32s(gradient));
        for (y, gradient) in y.iter().zip(gradient) {
            *gradient = function.pull_back(simd, *y, *gradient);
        }
        let last = function.pull_back(simd, simd.partial_load_f32s(y_rest), simd.partial_load_f32s(rest));
        simd.partial_store_f32s(rest, last);
    }
}

struct Backward<'a, F>(F, &'a [f32], &'a [f32], &'a mut [f32]);

impl<F: Function> WithSimd for Backward<'_, F> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self(function, y, dy, dx) = self;
        let ((y, y_rest), (dy, dy_rest), (dx, dx_rest)) = (S::as_simd_f32s(y), S::as_simd_f32s(dy), S::as_mut_simd_f32s(dx));
        for ((y, dy), dx) in y.iter().zip(dy).zip(dx) {
            *dx = function.pull_back(simd, *y, *dy);
        }
        let (y, dy) = (simd.partial_load_f32s(y_rest), simd.partial_load_f32s(dy_rest));
        simd.partial_store_f32s(dx_rest, function.pull_back(simd, y, dy));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exact(activation: Activation, x: f64) -> (f64, f64) {
        match activation {
            Activation::Relu => (x.max(0.0), f64::from(u8::from(x > 0.0))),
            Activation::Softplus => (x.max(0.0) + (-x.abs()).exp().ln_1p(), 1.0 / (1.0 + (-x).exp())),
        }
    }

    #[test]
    fn values_and_derivatives_are_exact_for_any_length() {
        for set in InstructionSet::available() {
            for activation in [Activation::Relu, Activation::Softplus] {
                for count in [0, 1, 7, 16, 33, 1001] {
                    let x: Vec<f32> =
                        (0..count).map(|at| (at as f32 - count as f32 / 2.0) * 80.0 / count as f32 + 0.01).collect();
                    let (mut y, mut dx, dy) = (vec![0.0; count], vec![0.0; count], vec![2.0; count]);
                    activation.forward(set, &x, &mut y);
                    activation.backward(set, &y, &dy, &mut dx);
                    for at in 0..count {
                        let (value, slope) = exact(activation, f64::from(x[at]));
                        assert!((f64::from(y[at]) - value).abs() <= 6e-7 * value, "{} {activation:?}({})", set.name(), x[at]);
                        assert!(
                            (f64::from(dx[at]) - 2.0 * slope).abs() <= 3e-6 * slope,
                            "{} {activation:?}'({})",
                            set.name(),
                            x[at]
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn working_in_place_gives_the_same_bits() {
        for set in InstructionSet::available() {
            for activation in [Activation::Relu, Activation::Softplus] {
                for count in [0, 1, 15, 16, 37] {
                    let x: Vec<f32> = (0..count).map(|at| at as f32 - count as f32 / 2.0 + 0.25).collect();
                    let (mut y, mut dx, mut in_place, mut gradient) = (x.clone(), x.clone(), x.clone(), x.clone());
                    activation.forward(set, &x, &mut y);
                    activation.backward(set, &y, &x, &mut dx);
                    activation.forward_in_place(set, &mut in_place);
                    activation.backward_in_place(set, &y, &mut gradient);
                    assert_eq!((in_place, gradient), (y, dx));
                }
            }
        }
    }

    #[test]
    fn gelu_and_its_gradient_follow_the_formula_for_any_length() {
        let inner = |x: f64| (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
        let exact = |x: f64| x / 2.0 * (1.0 + inner(x).tanh());
        for set in InstructionSet::available() {
            for count in [0, 1, 16, 37] {
                let x: Vec<f32> = (0..count).map(|at| (at as f32 - count as f32 / 2.0) / 5.0).collect();
                let (mut y, mut dx, dy) = (vec![0.0; count], vec![0.0; count], vec![2.0; count]);
                gelu(set, &x, &mut y);
                gelu_backward(set, &x, &dy, &mut dx);
                for at in 0..count {
                    let x = f64::from(x[at]);
                    let slope = (exact(x + 1e-5) - exact(x - 1e-5)) / 2e-5;
                    assert!((f64::from(y[at]) - exact(x)).abs() < 1e-6 && (f64::from(dx[at]) - 2.0 * slope).abs() < 5e-6);
                }
            }
        }
    }
}
