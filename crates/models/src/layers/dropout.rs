//! Dropout whose mask is a value: drawn once, used as often as needed.
use burn::tensor::{Tensor, TensorCreationOptions, TensorData};

use crate::graph::Dropout;

/// Entries of 0 with probability `rate` and `1 / (1 - rate)` otherwise, determined by `seed` and `path` alone.
pub(crate) fn dropout_mask<const D: usize>(
    seed: u64,
    path: &'static str,
    shape: [usize; D],
    rate: f64,
    options: impl Into<TensorCreationOptions>,
) -> Tensor<D> {
    let values = Dropout { name: path, rate }.multipliers(seed, shape.iter().product());
    Tensor::from_data(TensorData::new(values, shape), options)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn a_mask_keeps_the_mean_and_depends_on_seed_and_path_only() {
        let device = Device::default();
        let mask = |seed, path| dropout_mask(seed, path, [100, 100], 0.1, &device);
        assert_eq!(mask(1, "a").to_data(), mask(1, "a").to_data());
        assert_ne!(mask(1, "a").to_data(), mask(2, "a").to_data());
        assert_ne!(mask(1, "a").to_data(), mask(1, "b").to_data());
        assert!((mask(1, "a").mean().into_scalar::<f32>() - 1.0).abs() < 0.02);
    }
}
