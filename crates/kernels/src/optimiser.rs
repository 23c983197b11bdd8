//! Steps with momentum, and Adam's.

/// `m <- momentum m + g`, and `p <- p - learning_rate m`; with Nesterov's look ahead `p <- p - learning_rate (g + momentum m)`.
///
/// ```
/// use fedeq_kernels::optimiser::MomentumStep;
///
/// let (mut p, mut m) = ([1.0], [2.0]);
/// MomentumStep { learning_rate: 0.5, momentum: 0.5, nesterov: false }.run(&[1.0], &mut p, &mut m);
/// assert_eq!((p, m), ([0.0], [2.0]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MomentumStep {
    /// How far a step goes.
    pub learning_rate: f32,
    /// The share of the last direction that is kept.
    pub momentum: f32,
    /// Whether the step looks ahead.
    pub nesterov: bool,
}

impl MomentumStep {
    /// Takes the step.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn run(self, gradient: &[f32], p: &mut [f32], m: &mut [f32]) {
        assert!(gradient.len() == p.len() && m.len() == p.len(), "a gradient and a direction for every parameter");
        for ((p, m), g) in p.iter_mut().zip(m).zip(gradient) {
            *m = self.momentum * *m + g;
            let direction = if self.nesterov { g + self.momentum * *m } else { *m };
            *p -= self.learning_rate * direction;
        }
    }
}

/// `m <- beta_1 m + (1 - beta_1) g`, `v <- beta_2 v + (1 - beta_2) g^2`, and `p <- p - learning_rate (m / (1 - beta_1^t)) / (sqrt(v / (1 - beta_2^t)) + epsilon)`.
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    /// How far a step goes.
    pub learning_rate: f64,
    /// How much of both moments stays.
    pub betas: [f64; 2],
    /// Keeps the denominator from zero.
    pub epsilon: f32,
    /// `beta_1^t` and `beta_2^t`, where `t` counts steps from 1.
    pub powers: [f64; 2],
}

impl AdamStep {
    /// Takes the step.
    ///
    /// # Panics
    ///
    /// If the slices differ in length.
    pub fn run(self, gradient: &[f32], p: &mut [f32], m: &mut [f32], v: &mut [f32]) {
        assert!([gradient.len(), m.len(), v.len()] == [p.len(); 3], "a gradient and two moments for every parameter");
        let [beta_1, beta_2] = self.betas.map(|beta| beta as f32);
        let [new_1, new_2] = self.betas.map(|beta| (1.0 - beta) as f32);
        let rate = (self.learning_rate / (1.0 - self.powers[0])) as f32;
        let scale = (1.0 / (1.0 - self.powers[1])).sqrt() as f32;
        for (((p, m), v), g) in p.iter_mut().zip(m).zip(v).zip(gradient) {
            *m = beta_1 * *m + new_1 * g;
            *v = beta_2 * *v + new_2 * g * g;
            *p -= rate * *m / (scale * v.sqrt() + self.epsilon);
        }
    }
}

/// The sum of squares, in 64 bits and always in the same order.
pub fn sum_of_squares(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum()
}
