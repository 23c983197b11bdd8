//! The damped fixed-point iteration.
use burn::tensor::{Int, Tensor};

use super::Iteration;

pub(super) struct FixedPointIteration {
    damping: f64,
}

impl FixedPointIteration {
    pub(super) fn new(damping: f64) -> Self {
        Self { damping }
    }
}

impl Iteration for FixedPointIteration {
    fn next(&mut self, z: &Tensor<2>, residual: &Tensor<2>) -> Tensor<2> {
        z.clone() + residual.clone().mul_scalar(1.0 - self.damping)
    }

    fn keep(&mut self, _: &Tensor<1, Int>, _: &[usize]) {}
}
