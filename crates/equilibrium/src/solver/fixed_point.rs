//! The damped fixed-point iteration.
use burn::tensor::{Int, Tensor};

use super::{Evaluation, Iteration};

pub(super) struct FixedPointIteration {
    damping: f64,
}

impl FixedPointIteration {
    pub(super) fn new(damping: f64) -> Self {
        Self { damping }
    }
}

impl Iteration for FixedPointIteration {
    fn next(&mut self, at: &Evaluation<'_>) -> Tensor<2> {
        match self.damping {
            0.0 => at.image.clone(),
            damping => at.z.clone() + at.residual.clone().mul_scalar(1.0 - damping),
        }
    }

    fn keep(&mut self, _: &Tensor<1, Int>, _: &[usize]) {}
}
