//! The running statistics of batch normalisation.
use fedeq_kernels::norm::Moments;

/// How much of the past an average keeps at each step.
const DECAY: f64 = 0.9;

/// The running statistics of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct RunningMoments {
    /// Mean and variance of every channel.
    pub moments: Moments,
    /// How many batches they have seen. A mean over clients need not be a whole number.
    pub steps: f32,
}

impl RunningMoments {
    /// Mean 0, variance 1, nothing seen.
    pub fn fresh(channels: usize) -> Self {
        Self { moments: Moments { mean: vec![0.0; channels], variance: vec![1.0; channels] }, steps: 0.0 }
    }

    /// One step of the zero-debiased exponential average, for the mean and the variance alike:
    ///
    /// `avg_t = (0.9 (1 - 0.9^(t-1)) avg_(t-1) + 0.1 x) / (1 - 0.9^t)`
    ///
    /// which is the average of all batches so far with weights falling by 0.9 a step into the past.
    pub(crate) fn observe(&mut self, batch: &Moments) {
        let t = f64::from(self.steps) + 1.0;
        let total = 1.0 - libm::pow(DECAY, t);
        let old = (DECAY * (1.0 - libm::pow(DECAY, t - 1.0)) / total) as f32;
        let new = ((1.0 - DECAY) / total) as f32;
        let Moments { mean, variance } = &mut self.moments;
        for (average, batch) in [(mean, &batch.mean), (variance, &batch.variance)] {
            for (average, &batch) in average.iter_mut().zip(batch) {
                *average = *average * old + batch * new;
            }
        }
        self.steps += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_is_the_debiased_exponential_one() {
        let batches = [3.0_f32, -1.0, 4.0, 1.0, -5.0, 9.0];
        let mut running = RunningMoments::fresh(1);
        for (t, &x) in batches.iter().enumerate() {
            running.observe(&Moments { mean: vec![x], variance: vec![x * x] });
            let weights: Vec<f64> = (0..=t).map(|age| 0.1 * 0.9_f64.powi((t - age) as i32)).collect();
            let total = 1.0 - 0.9_f64.powi(t as i32 + 1);
            let mean: f64 = weights.iter().zip(&batches).map(|(weight, &x)| weight * f64::from(x)).sum::<f64>() / total;
            assert!((f64::from(running.moments.mean[0]) - mean).abs() < 1e-5);
        }
        assert_eq!(running.steps, 6.0);
    }
}
