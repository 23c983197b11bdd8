//! A fixed number of past states, overwritten in turn.
use burn::tensor::{Int, Tensor, TensorData};

use crate::host::to_host;
use crate::vectors::{self, HostRows, Scaled};

/// The last `width` states of every sample, so that inner products with all of them, and combinations of all of them, are one
/// operation each.
pub(crate) struct Window {
    width: usize,
    states: States,
}

/// Where the states are.
#[allow(clippy::large_enum_variant, reason = "two or three of these to a solve")]
enum States {
    /// In this process's memory: one vector for each slot that has been set, the states of all samples one after another.
    Host { slots: Vec<Vec<f32>>, n: usize },
    /// On a device, `[rows, width, n]`.
    Device(Tensor<3>),
}

impl Window {
    /// Zeros, for states like the rows of `like`.
    pub(crate) fn new(width: usize, like: &Tensor<2>) -> Self {
        let [rows, n] = like.dims();
        let states = match HostRows::of(like) {
            Some(_) => States::Host { slots: Vec::new(), n },
            None => States::Device(Tensor::zeros([rows, width, n], (&like.device(), like.dtype()))),
        };
        Self { width, states }
    }

    /// Overwrites one slot of every sample. Slots are first set in order.
    pub(crate) fn set(&mut self, slot: usize, state: Tensor<2>) {
        match &mut self.states {
            States::Host { slots, .. } => {
                let values = place(slots, slot);
                values.clear();
                values.extend_from_slice(host(&state).all());
            }
            States::Device(states) => {
                let [rows, n] = state.dims();
                states.inplace(|states| states.slice_assign([0..rows, slot..slot + 1, 0..n], state.unsqueeze_dim(1)));
            }
        }
    }

    /// `<states[row][slot], state[row]>` for every row and slot, on the host.
    ///
    /// Not a matrix product: GPUs round the factors of those to 10 bits (TF32), and Gram matrices do not survive that.
    pub(crate) fn dots(&self, state: &Tensor<2>) -> Vec<Vec<f64>> {
        match &self.states {
            States::Host { slots, n } => {
                let of_row = |(row, state): (usize, &[f32])| {
                    let mut dots: Vec<f64> =
                        slots.iter().map(|slot| vectors::dot(&slot[row * n..(row + 1) * n], state)).collect();
                    dots.resize(self.width, 0.0);
                    dots
                };
                host(state).iter().enumerate().map(of_row).collect()
            }
            States::Device(states) => {
                let products = (states.clone() * state.clone().unsqueeze_dim(1)).sum_dim(2);
                to_host(products).chunks(self.width).map(<[f64]>::to_vec).collect()
            }
        }
    }

    /// `start[row] + factor sum_slot weights[row][slot] states[row][slot]` for every row.
    pub(crate) fn combine(&self, start: &Tensor<2>, factor: f64, weights: &[Vec<f64>]) -> Tensor<2> {
        match &self.states {
            States::Host { slots, n } => {
                let begin = host(start);
                let mut sums = Vec::with_capacity(begin.all().len());
                for (row, (start, weights)) in begin.iter().zip(weights).enumerate() {
                    let here = row * n..(row + 1) * n;
                    let terms = weights.iter().zip(slots);
                    let terms: Vec<Scaled> = terms
                        .map(|(&weight, slot)| Scaled { factor: (factor * weight) as f32, x: &slot[here.clone()] })
                        .filter(|term| term.factor != 0.0)
                        .collect();
                    vectors::append_combination(&mut sums, start, &terms);
                }
                Tensor::from_data(TensorData::new(sums, start.dims()), &start.device())
            }
            States::Device(states) => {
                let [rows, width, _] = states.dims();
                let flat: Vec<f64> = weights.iter().flatten().map(|weight| factor * weight).collect();
                let options = (&states.device(), states.dtype());
                let weights = Tensor::<3>::from_data(TensorData::new(flat, [rows, 1, width]), options);
                start.clone() + weights.matmul(states.clone()).squeeze_dim(1)
            }
        }
    }

    /// Keeps only these samples.
    pub(crate) fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        match &mut self.states {
            States::Host { slots, n } => {
                for slot in slots {
                    // Kept rows only move towards the front, so they can move in place.
                    for (to, &from) in indices.iter().enumerate() {
                        slot.copy_within(from * *n..(from + 1) * *n, to * *n);
                    }
                    slot.truncate(indices.len() * *n);
                }
            }
            States::Device(states) => states.inplace(|states| states.select(0, rows.clone())),
        }
    }
}

/// The memory of a slot, made when it is first asked for.
fn place(slots: &mut Vec<Vec<f32>>, slot: usize) -> &mut Vec<f32> {
    if slot == slots.len() {
        slots.push(Vec::new());
    }
    &mut slots[slot]
}

fn host(state: &Tensor<2>) -> HostRows {
    HostRows::of(state).expect("a solve stays where it began")
}
