//! What optimisers remember during a training phase.
use std::ops::Range;

use fedeq_core::Optimiser;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::optimiser::{AdamStep, MomentumStep, sum_of_squares};
use fedeq_kernels::sgd::SgdStep;

use crate::pool::Pool;

/// The first and second moments of everything that is trained; empty where an optimiser has none. They begin at zero in every phase.
#[derive(Debug)]
pub(crate) struct OptimiserMoments {
    first: Vec<f32>,
    second: Vec<f32>,
    /// `beta_1^t` and `beta_2^t` after `t` steps.
    powers: [f64; 2],
}

/// One plain step: `p <- p - rate (gradient + (strength p + offset) / share)`, without the second term where there is no offset.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainStep {
    pub(crate) rate: f64,
    pub(crate) strength: f32,
    pub(crate) share: f64,
}

impl PlainStep {
    /// Moves some parameters along their gradient, which is changed.
    pub(crate) fn run(&self, p: &mut [f32], gradient: &mut [f32], offset: Option<&[f32]>) {
        let (mut rate, mut decay) = (self.rate, 0.0);
        if offset.is_some() {
            decay = self.strength;
            if self.share != 1.0 {
                // rate (gradient + pull / share) = (rate / share) (share gradient + pull)
                gradient.iter_mut().for_each(|gradient| *gradient *= self.share as f32);
                rate /= self.share;
            }
        }
        SgdStep { learning_rate: rate as f32, decay, gradient, offset }.run(InstructionSet::best(), p);
    }
}

/// `gradient + (strength p + offset) / share`
pub(crate) fn add_proximal(gradient: &mut [f32], p: &[f32], offset: &[f32], strength: f32, share: f32) {
    gradient.iter_mut().zip(p).zip(offset).for_each(|((g, p), offset)| *g += (strength * p + offset) / share);
}

/// One step of an optimiser.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Sgd { step: MomentumStep, decay: f32 },
    Adam { step: AdamStep, decay: f32, decoupled: bool },
}

impl OptimiserMoments {
    /// Those of so many parameters.
    pub(crate) fn new(optimiser: &Optimiser, parameters: usize, pool: &mut Pool) -> Self {
        let (first, second) = match *optimiser {
            Optimiser::Sgd { momentum, .. } => (momentum != 0.0, false),
            Optimiser::Adam { .. } => (true, true),
        };
        let mut zeros = |needed: bool| {
            let mut values = pool.take(if needed { parameters } else { 0 });
            values.fill(0.0);
            values
        };
        Self { first: zeros(first), second: zeros(second), powers: [1.0; 2] }
    }

    /// The next step, at this rate.
    pub(crate) fn next(&mut self, optimiser: Optimiser, rate: f64) -> Step {
        match optimiser {
            Optimiser::Sgd { momentum, nesterov, weight_decay } => {
                let step = MomentumStep { learning_rate: rate as f32, momentum: momentum as f32, nesterov };
                Step::Sgd { step, decay: weight_decay as f32 }
            }
            Optimiser::Adam { betas, epsilon, weight_decay, decoupled } => {
                self.powers = [0, 1].map(|at| self.powers[at] * betas[at]);
                let step = AdamStep { learning_rate: rate, betas, epsilon: epsilon as f32, powers: self.powers };
                Step::Adam { step, decay: weight_decay as f32, decoupled }
            }
        }
    }

    /// Moves some parameters along their gradient, which is changed; `at` is where they are among all that are trained.
    pub(crate) fn step(&mut self, step: &Step, p: &mut [f32], gradient: &mut [f32], at: Range<usize>) {
        match *step {
            Step::Sgd { step, decay } => {
                decayed(gradient, p, decay);
                if self.first.is_empty() {
                    p.iter_mut().zip(&*gradient).for_each(|(p, g)| *p -= step.learning_rate * g);
                } else {
                    step.run(gradient, p, &mut self.first[at]);
                }
            }
            Step::Adam { step, decay, decoupled } => {
                if decoupled {
                    let kept = 1.0 - step.learning_rate as f32 * decay;
                    p.iter_mut().for_each(|p| *p *= kept);
                } else {
                    decayed(gradient, p, decay);
                }
                step.run(gradient, p, &mut self.first[at.clone()], &mut self.second[at]);
            }
        }
    }

    /// Gives the memory back.
    pub(crate) fn release(self, pool: &mut Pool) {
        pool.give(self.first);
        pool.give(self.second);
    }
}

/// `gradient + decay p`
fn decayed(gradient: &mut [f32], p: &[f32], decay: f32) {
    if decay != 0.0 {
        gradient.iter_mut().zip(p).for_each(|(g, p)| *g += decay * p);
    }
}

/// Shortens a gradient that is longer than `most`.
pub(crate) fn clip(gradient: &mut [f32], most: f64) {
    let norm = sum_of_squares(gradient).sqrt();
    if norm > most {
        let factor = (most / norm) as f32;
        gradient.iter_mut().for_each(|g| *g *= factor);
    }
}
