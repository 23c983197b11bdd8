//! The running statistics of batch normalisation, as a value of their own.
use std::collections::BTreeMap;

use burn::tensor::{Tensor, TensorCreationOptions, TensorData};

/// How much of the past an average keeps at each step.
const DECAY: f64 = 0.9;

/// The running mean and variance of every batch normalisation layer, by the layer's path.
///
/// A network does not hold them: they are passed through the [`Context`](crate::Context), travel between clients and server,
/// are averaged and counted like parameters, and carry no gradient.
#[derive(Clone, Debug, Default)]
pub struct Statistics {
    layers: BTreeMap<String, Moments>,
}

/// The running statistics of one layer of `C` channels.
#[derive(Clone, Debug)]
pub struct Moments {
    /// `[C]`, 0 before the first step.
    pub mean: Tensor<1>,
    /// `[C]`, 1 before the first step.
    pub variance: Tensor<1>,
    /// How many batches they have seen. A mean over clients need not be a whole number.
    pub steps: f32,
}

impl Moments {
    /// Mean 0, variance 1, nothing seen.
    pub fn fresh(channels: usize, options: impl Into<TensorCreationOptions>) -> Self {
        let options = options.into();
        let options = options.clone().with_device(options.device.without_autodiff());
        Self { mean: Tensor::zeros([channels], options.clone()), variance: Tensor::ones([channels], options), steps: 0.0 }
    }

    /// Fresh statistics for channels like those of `like`.
    pub(crate) fn fresh_like(like: &Tensor<1>) -> Self {
        Self::fresh(like.dims()[0], (&like.device(), like.dtype()))
    }

    /// One step of the zero-debiased exponential average, for the mean and the variance alike:
    ///
    /// `avg_t = (0.9 (1 - 0.9^(t-1)) avg_(t-1) + 0.1 x) / (1 - 0.9^t)`
    ///
    /// which is the average of all batches so far with weights falling by 0.9 a step into the past.
    fn observe(&mut self, mean: Tensor<1>, variance: Tensor<1>) {
        let t = f64::from(self.steps) + 1.0;
        let total = 1.0 - DECAY.powf(t);
        let old = DECAY * (1.0 - DECAY.powf(t - 1.0)) / total;
        let new = (1.0 - DECAY) / total;
        self.mean = self.mean.clone() * old + mean.without_autodiff() * new;
        self.variance = self.variance.clone() * old + variance.without_autodiff() * new;
        self.steps += 1.0;
    }
}

impl Moments {
    fn named(&self, path: &str) -> [(String, TensorData); 3] {
        let host = |tensor: &Tensor<1>| tensor.to_data().convert::<f32>();
        [
            (format!("{path}.mean"), host(&self.mean)),
            (format!("{path}.variance"), host(&self.variance)),
            (format!("{path}.steps"), TensorData::new(vec![self.steps], [1])),
        ]
    }

    fn take_named(&mut self, path: &str, values: &BTreeMap<String, TensorData>) {
        let value = |name: &str| values.get(&format!("{path}.{name}")).cloned();
        for (name, moment) in [("mean", &mut self.mean), ("variance", &mut self.variance)] {
            if let Some(data) = value(name) {
                let tensor = Tensor::from_data(data, (&moment.device(), moment.dtype()));
                assert_eq!(tensor.shape(), moment.shape(), "the shape of `{path}.{name}`");
                *moment = tensor;
            }
        }
        if let Some(data) = value("steps") {
            self.steps = data.iter::<f32>().next().unwrap_or_default();
        }
    }
}

impl Statistics {
    /// The statistics of one layer, if it has any.
    pub fn get(&self, path: &str) -> Option<&Moments> {
        self.layers.get(path)
    }

    /// Sets the statistics of one layer.
    pub fn insert(&mut self, path: impl Into<String>, moments: Moments) {
        self.layers.insert(path.into(), moments);
    }

    /// All layers, ordered by path.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Moments)> {
        self.layers.iter().map(|(path, moments)| (path.as_str(), moments))
    }

    /// How many numbers they hold: a mean and a variance a channel, and one step count a layer.
    pub fn count(&self) -> usize {
        self.layers.values().map(|moments| 2 * moments.mean.dims()[0] + 1).sum()
    }

    /// The numbers by name, as 32-bit floats on the host: `<path>.mean`, `<path>.variance` and `<path>.steps` of every layer.
    pub fn values(&self) -> BTreeMap<String, TensorData> {
        self.layers.iter().flat_map(|(path, moments)| moments.named(path)).collect()
    }

    /// The same layers with the numbers that [`values`](Self::values) named; a layer keeps what is not named.
    ///
    /// # Panics
    /// If a value has another shape than what it replaces.
    pub fn with_values(mut self, values: &BTreeMap<String, TensorData>) -> Self {
        for (path, moments) in &mut self.layers {
            moments.take_named(path, values);
        }
        self
    }

    /// Takes one batch into account.
    pub(crate) fn observe(&mut self, path: &str, mean: Tensor<1>, variance: Tensor<1>) {
        let moments = self.layers.entry(path.to_owned()).or_insert_with(|| Moments::fresh_like(&mean));
        moments.observe(mean, variance);
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn one(value: f32, device: &Device) -> Tensor<1> {
        Tensor::from_floats([value], device)
    }

    #[test]
    fn the_average_is_the_debiased_exponential_one() {
        let device = Device::default();
        let batches = [3.0_f32, -1.0, 4.0, 1.0, -5.0, 9.0];
        let mut statistics = Statistics::default();
        for (t, &x) in batches.iter().enumerate() {
            statistics.observe("norm", one(x, &device), one(x * x, &device));
            let weights: Vec<f64> = (0..=t).map(|age| 0.1 * 0.9_f64.powi((t - age) as i32)).collect();
            let total = 1.0 - 0.9_f64.powi(t as i32 + 1);
            let expected: f64 = weights.iter().zip(batches).map(|(w, x)| w * f64::from(x)).sum::<f64>() / total;
            let expected_square: f64 = weights.iter().zip(batches).map(|(w, x)| w * f64::from(x * x)).sum::<f64>() / total;
            let moments = statistics.get("norm").expect("observed");
            assert!((moments.mean.clone().into_scalar::<f64>() - expected).abs() < 1e-5);
            assert!((moments.variance.clone().into_scalar::<f64>() - expected_square).abs() < 1e-4);
            assert_eq!(moments.steps, t as f32 + 1.0);
        }
    }

    #[test]
    fn the_first_batch_replaces_whatever_was_there() {
        let device = Device::default();
        let mut statistics = Statistics::default();
        statistics.observe("norm", one(7.0, &device), one(2.0, &device));
        let moments = statistics.get("norm").expect("observed");
        assert_eq!(moments.mean.clone().into_scalar::<f32>(), 7.0);
        assert_eq!(moments.variance.clone().into_scalar::<f32>(), 2.0);
    }

    #[test]
    fn a_layer_that_has_seen_nothing_has_mean_zero_and_variance_one() {
        let fresh = Moments::fresh(3, &Device::default());
        assert_eq!(fresh.mean.sum().into_scalar::<f32>(), 0.0);
        assert_eq!(fresh.variance.sum().into_scalar::<f32>(), 3.0);
    }

    #[test]
    fn statistics_carry_no_autodiff() {
        let device = Device::default().autodiff();
        let mut statistics = Statistics::default();
        let tracked = one(7.0, &device).require_grad();
        statistics.observe("norm", tracked.clone(), tracked);
        assert!(!statistics.get("norm").expect("observed").mean.is_autodiff());
    }
}
