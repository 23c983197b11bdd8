//! A fixed number of past states, overwritten in turn.
use burn::tensor::{Int, Tensor, TensorData};

use crate::host::to_host;
use crate::vectors::{self, HostRows};

/// The last `width` states of every sample, so that inner products with all of them, and combinations of all of them, are one
/// operation each.
pub(crate) struct Window {
    width: usize,
    states: States,
}

/// Where the states are.
#[allow(clippy::large_enum_variant, reason = "two or three of these to a solve")]
enum States {
    /// In this process's memory: the states of a sample one after another.
    Host { values: Vec<f32>, n: usize },
    /// On a device, `[rows, width, n]`.
    Device(Tensor<3>),
}

impl Window {
    /// Zeros, for states like the rows of `like`.
    pub(crate) fn new(width: usize, like: &Tensor<2>) -> Self {
        let [rows, n] = like.dims();
        let states = match HostRows::of(like) {
            Some(_) => States::Host { values: vec![0.0; rows * width * n], n },
            None => States::Device(Tensor::zeros([rows, width, n], (&like.device(), like.dtype()))),
        };
        Self { width, states }
    }

    /// Overwrites one slot of every sample.
    pub(crate) fn set(&mut self, slot: usize, state: Tensor<2>) {
        match &mut self.states {
            States::Host { values, n } => {
                let states = values.chunks_exact_mut(self.width * *n);
                states.zip(host(&state).iter()).for_each(|(states, new)| slot_of(states, slot, *n).copy_from_slice(new));
            }
            States::Device(states) => {
                let [rows, n] = state.dims();
                states.inplace(|states| states.slice_assign([0..rows, slot..slot + 1, 0..n], state.unsqueeze_dim(1)));
            }
        }
    }

    /// Overwrites one slot of every sample with a difference, `new - old`.
    pub(crate) fn set_difference(&mut self, slot: usize, new: &Tensor<2>, old: &Tensor<2>) {
        match &mut self.states {
            States::Host { values, n } => {
                let (new, old) = (host(new), host(old));
                for ((states, new), old) in values.chunks_exact_mut(self.width * *n).zip(new.iter()).zip(old.iter()) {
                    vectors::subtract(slot_of(states, slot, *n), new, old);
                }
            }
            States::Device(_) => self.set(slot, new.clone() - old.clone()),
        }
    }

    /// `<states[row][slot], states[row][other]>` for every row and every other slot, on the host.
    pub(crate) fn dots_of_slot(&self, slot: usize) -> Vec<Vec<f64>> {
        match &self.states {
            States::Host { values, n } => {
                let of_row = |states: &[f32]| dots(states, &states[slot * n..(slot + 1) * n]);
                values.chunks_exact(self.width * n).map(of_row).collect()
            }
            States::Device(states) => self.dots(&states.clone().narrow(1, slot, 1).squeeze_dim(1)),
        }
    }

    /// `<states[row][slot], state[row]>` for every row and slot, on the host.
    ///
    /// Not a matrix product: GPUs round the factors of those to 10 bits (TF32), and Gram matrices do not survive that.
    pub(crate) fn dots(&self, state: &Tensor<2>) -> Vec<Vec<f64>> {
        match &self.states {
            States::Host { values, n } => {
                values.chunks_exact(self.width * n).zip(host(state).iter()).map(|(states, state)| dots(states, state)).collect()
            }
            States::Device(states) => {
                let products = (states.clone() * state.clone().unsqueeze_dim(1)).sum_dim(2);
                to_host(products).chunks(self.width).map(<[f64]>::to_vec).collect()
            }
        }
    }

    /// `start[row] + factor sum_slot weights[row][slot] states[row][slot]` for every row.
    pub(crate) fn combine(&self, start: Tensor<2>, factor: f64, weights: &[Vec<f64>]) -> Tensor<2> {
        match &self.states {
            States::Host { values, n } => {
                let shape = start.dims();
                let options = start.device();
                let mut sums = start.into_data().try_into_vec::<f32>().expect("a window of 32-bit floats combines such");
                for ((sum, states), weights) in sums.chunks_exact_mut(*n).zip(values.chunks_exact(self.width * n)).zip(weights) {
                    let terms = weights.iter().map(|&weight| (factor * weight) as f32).zip(states.chunks_exact(*n));
                    vectors::add_combination(sum, terms.filter(|&(weight, _)| weight != 0.0));
                }
                Tensor::from_data(TensorData::new(sums, shape), &options)
            }
            States::Device(states) => {
                let [rows, width, _] = states.dims();
                let flat: Vec<f64> = weights.iter().flatten().map(|weight| factor * weight).collect();
                let options = (&states.device(), states.dtype());
                let weights = Tensor::<3>::from_data(TensorData::new(flat, [rows, 1, width]), options);
                start + weights.matmul(states.clone()).squeeze_dim(1)
            }
        }
    }

    /// Keeps only these samples.
    pub(crate) fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        match &mut self.states {
            States::Host { values, n } => {
                let size = self.width * *n;
                // Kept rows only move towards the front, so they can move in place.
                for (to, &from) in indices.iter().enumerate() {
                    values.copy_within(from * size..(from + 1) * size, to * size);
                }
                values.truncate(indices.len() * size);
            }
            States::Device(states) => states.inplace(|states| states.select(0, rows.clone())),
        }
    }
}

fn slot_of(states: &mut [f32], slot: usize, n: usize) -> &mut [f32] {
    &mut states[slot * n..(slot + 1) * n]
}

fn dots(states: &[f32], state: &[f32]) -> Vec<f64> {
    states.chunks_exact(state.len()).map(|each| vectors::dot(each, state)).collect()
}

fn host(state: &Tensor<2>) -> HostRows {
    HostRows::of(state).expect("a solve stays where it began")
}
