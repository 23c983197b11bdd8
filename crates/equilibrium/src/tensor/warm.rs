//! Warm starts of burn models.
use burn::tensor::Tensor;

use super::host::row_mask;
use super::states::TensorStates;
use crate::states::HostStates;
use crate::warm::{WarmMemory, WarmStart};

impl WarmMemory {
    /// Where to start for these samples: their remembered states, and the rows of `own` for the rest. See [`recall`](WarmMemory::recall).
    pub fn recall_tensor<const D: usize>(&self, samples: &[u64], own: Tensor<D>) -> Tensor<D> {
        let shape = own.dims();
        let width = shape[1..].iter().product();
        let known: Vec<bool> = self.known(samples, width).collect();
        if samples.len() != shape[0] || !known.contains(&true) {
            return own;
        }
        let mut recalled = HostStates::zeros(shape[0], width);
        self.recall(samples, &mut recalled);
        let rows = own.reshape([shape[0], width]);
        let recalled = recalled.into_tensor(&rows.device()).cast(rows.dtype());
        let mask = row_mask(&known, &rows);
        rows.mask_where(mask, recalled).reshape(shape)
    }

    /// Stores the fixed points of these samples, see [`remember`](WarmMemory::remember).
    pub fn remember_tensor<const D: usize>(&mut self, samples: &[u64], z: &Tensor<D>) {
        let shape = z.dims();
        if self.policy() != WarmStart::Off && !shape.contains(&0) {
            let rows = z.clone().without_autodiff().reshape([shape[0], shape[1..].iter().product()]);
            self.remember(samples, &HostStates::from_tensor(rows));
        }
    }
}
