//! A fixed number of past states, overwritten in turn.
use burn::tensor::{Int, Tensor, TensorData};

use crate::host::to_host;

/// The last `width` states of every sample as one tensor `[rows, width, n]`, so that inner products with all of them, and
/// combinations of all of them, are one operation each.
pub(crate) struct Window {
    states: Tensor<3>,
}

impl Window {
    pub(crate) fn new(width: usize, like: &Tensor<2>) -> Self {
        let [rows, n] = like.dims();
        Self { states: Tensor::zeros([rows, width, n], (&like.device(), like.dtype())) }
    }

    /// Overwrites one slot of every sample.
    pub(crate) fn set(&mut self, slot: usize, state: Tensor<2>) {
        let [rows, n] = state.dims();
        self.states.inplace(|states| states.slice_assign([0..rows, slot..slot + 1, 0..n], state.unsqueeze_dim(1)));
    }

    /// `<states[row][slot], state[row]>` for every row and slot, on the host.
    ///
    /// Not a matrix product: GPUs round the factors of those to 10 bits (TF32), and Gram matrices do not survive that.
    pub(crate) fn dots(&self, state: &Tensor<2>) -> Vec<Vec<f64>> {
        let products = (self.states.clone() * state.clone().unsqueeze_dim(1)).sum_dim(2);
        let width = self.states.dims()[1];
        to_host(products).chunks(width).map(<[f64]>::to_vec).collect()
    }

    /// `sum_slot weights[row][slot] states[row][slot]` for every row.
    pub(crate) fn combine(&self, weights: &[Vec<f64>]) -> Tensor<2> {
        let [rows, width, _] = self.states.dims();
        let flat: Vec<f64> = weights.iter().flatten().copied().collect();
        let options = (&self.states.device(), self.states.dtype());
        let weights = Tensor::<3>::from_data(TensorData::new(flat, [rows, 1, width]), options);
        weights.matmul(self.states.clone()).squeeze_dim(1)
    }

    /// Keeps only these samples.
    pub(crate) fn keep(&mut self, rows: &Tensor<1, Int>) {
        self.states.inplace(|states| states.select(0, rows.clone()));
    }
}
