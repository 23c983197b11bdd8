//! The changes between the last states of a solve.
use std::collections::VecDeque;

use burn::tensor::{Int, Tensor, TensorData};

use super::window::Window;
use crate::rows::Rows;
use crate::vectors::{self, HostRows, ScaledChange};

/// The last `width` changes `c_k = s_{k+1} - s_k` of a sequence of states, for every sample. The change `c_k` has the number `k % width`,
/// its *slot*.
pub(super) struct Changes {
    width: usize,
    /// How many states there have been.
    count: usize,
    states: States,
}

/// Where the states are.
#[allow(clippy::large_enum_variant, reason = "two of these to a solve")]
enum States {
    /// In this process's memory, oldest first. Changes are never written down: subtracting takes no time beside reading.
    Host(VecDeque<HostRows>),
    /// On a device: the changes, the newest one of them and the newest state.
    Device { changes: Window, newest: Option<Tensor<2>>, last: Option<Tensor<2>> },
}

/// Inner products by row and slot.
pub(super) type Dots = Vec<Vec<f64>>;

impl Changes {
    /// Of states like the rows of `like`.
    pub(super) fn new(width: usize, like: &Tensor<2>) -> Self {
        let states = match HostRows::of(like) {
            Some(_) => States::Host(VecDeque::with_capacity(width + 1)),
            None => States::Device { changes: Window::new(width, like), newest: None, last: None },
        };
        Self { width, count: 0, states }
    }

    /// The next state. From the second on there is a newest change.
    pub(super) fn push(&mut self, state: &Tensor<2>) {
        self.count += 1;
        match &mut self.states {
            States::Host(states) => states.push_back(HostRows::of(state).expect("a solve stays where it began")),
            States::Device { changes, newest, last } => {
                *newest = last.replace(state.clone()).map(|last| state.clone() - last);
                if let Some(newest) = newest {
                    changes.set((self.count - 2) % self.width, newest.clone());
                }
            }
        }
    }

    /// The slot of the newest change.
    pub(super) fn newest(&self) -> Option<usize> {
        self.count.checked_sub(2).map(|number| number % self.width)
    }

    /// Drops the state that the next one makes superfluous, so that no more are ever held than are needed.
    pub(super) fn make_room(&mut self) {
        if let States::Host(states) = &mut self.states
            && states.len() > self.width
        {
            states.pop_front();
        }
    }

    /// The inner products of all changes with the newest one, and with the newest state.
    ///
    /// # Panics
    ///
    /// If there is no change yet.
    pub(super) fn dots(&self) -> (Dots, Dots) {
        match &self.states {
            States::Host(states) => {
                let rows = states.back().map_or(0, HostRows::count);
                (0..rows).map(|row| self.dots_of(&rows_of(states, row))).unzip()
            }
            States::Device { changes, newest, last } => {
                let [newest, last] = [newest, last].map(|state| changes.dots(state.as_ref().expect("two states make a change")));
                (newest, last)
            }
        }
    }

    /// Of one sample, whose states these are.
    fn dots_of(&self, states: &[&[f32]]) -> (Vec<f64>, Vec<f64>) {
        let (mut with_change, mut with_state) = (vec![0.0; self.width], vec![0.0; self.width]);
        for (index, (change, state)) in vectors::dots_of_changes(states).into_iter().enumerate() {
            let slot = self.slot(index, states.len());
            (with_change[slot], with_state[slot]) = (change, state);
        }
        (with_change, with_state)
    }

    /// The slot of the change that follows one of the held states.
    fn slot(&self, index: usize, held: usize) -> usize {
        (self.count - held + index) % self.width
    }

    /// `start[row] + factor sum_slot weights[row][slot] changes[row][slot]` for every row.
    pub(super) fn combine(&self, start: &Tensor<2>, factor: f64, weights: &[Vec<f64>]) -> Tensor<2> {
        match &self.states {
            States::Host(states) => {
                let begin = HostRows::of(start).expect("a solve stays where it began");
                let mut sums = Vec::with_capacity(begin.all().len());
                for (row, (start, weights)) in begin.iter().zip(weights).enumerate() {
                    vectors::append_combination(&mut sums, start, &self.terms(&rows_of(states, row), factor, weights));
                }
                Tensor::from_data(TensorData::new(sums, start.dims()), &start.device())
            }
            States::Device { changes, .. } => changes.combine(start, factor, weights),
        }
    }

    /// The changes of one sample, whose states these are, each with its weight; those without one are left out.
    fn terms<'a>(&self, states: &[&'a [f32]], factor: f64, weights: &[f64]) -> Vec<ScaledChange<'a>> {
        let term = |(index, pair): (usize, &[&'a [f32]])| ScaledChange {
            factor: (factor * weights[self.slot(index, states.len())]) as f32,
            new: pair[1],
            old: pair[0],
        };
        states.windows(2).enumerate().map(term).filter(|term| term.factor != 0.0).collect()
    }

    /// Keeps only these samples.
    pub(super) fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        match &mut self.states {
            States::Host(states) => states.iter_mut().for_each(|states| *states = states.pick(indices)),
            States::Device { changes, newest, last } => {
                changes.keep(rows, indices);
                *newest = newest.take().map(|newest| newest.pick(rows));
                *last = last.take().map(|last| last.pick(rows));
            }
        }
    }
}

/// One sample's states.
fn rows_of(states: &VecDeque<HostRows>, row: usize) -> Vec<&[f32]> {
    states.iter().map(|states| states.row(row)).collect()
}
