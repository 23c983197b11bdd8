//! States in this process's memory.
use super::vectors::{self, Scaled, ScaledChange};
use super::{Changes, PerSlot, States, Window, keep_pieces, move_pieces};

/// A batch of states as plain 32-bit floats, row after row.
///
/// ```
/// use fedeq_equilibrium::HostStates;
///
/// let states = HostStates::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0], 2, 3);
/// assert_eq!(states.row(1), [4.0, 5.0, 6.0]);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostStates {
    values: Vec<f32>,
    rows: usize,
    width: usize,
}

impl HostStates {
    /// `rows` states of `width` numbers each.
    ///
    /// # Panics
    ///
    /// If there are more or fewer values than that.
    pub fn new(values: Vec<f32>, rows: usize, width: usize) -> Self {
        assert_eq!(Some(values.len()), rows.checked_mul(width), "{rows} states of {width} numbers");
        Self { values, rows, width }
    }

    /// Zeros.
    pub fn zeros(rows: usize, width: usize) -> Self {
        let mut zeros = Self::default();
        zeros.resize(rows, width);
        zeros
    }

    /// Takes on a shape, within the memory there is if it is enough. What the numbers are afterwards is not said: overwrite them.
    ///
    /// # Panics
    ///
    /// If there cannot be that many numbers.
    pub fn resize(&mut self, rows: usize, width: usize) {
        let count = rows.checked_mul(width).expect("so many numbers can be counted");
        self.values.resize(count, 0.0);
        (self.rows, self.width) = (rows, width);
    }

    /// How many samples there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// The numbers of one state.
    pub fn width(&self) -> usize {
        self.width
    }

    /// All numbers, row after row.
    pub fn values(&self) -> &[f32] {
        &self.values
    }

    /// All numbers, row after row, to be changed.
    pub fn values_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }

    /// All numbers, row after row.
    pub fn into_values(self) -> Vec<f32> {
        self.values
    }

    /// The memory of the numbers.
    pub(crate) fn memory(&mut self) -> &mut Vec<f32> {
        &mut self.values
    }

    /// One sample's state.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.width..(row + 1) * self.width]
    }

    /// One sample's state, to be changed.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.width..(row + 1) * self.width]
    }

    fn each_row(&self) -> impl Iterator<Item = &[f32]> {
        (0..self.rows).map(|row| self.row(row))
    }

    /// `self <- f(self, other)`, number by number.
    fn update(&mut self, other: &Self, f: impl Fn(f32, f32) -> f32) {
        assert_eq!((self.rows, self.width), (other.rows, other.width), "states of one shape");
        vectors::update(&mut self.values, &other.values, f);
    }
}

impl States for HostStates {
    type Window = HostWindow;
    type Changes = HostChanges;

    fn rows(&self) -> usize {
        self.rows
    }

    fn width(&self) -> usize {
        self.width
    }

    fn reserve_like(&mut self, like: &Self) {
        self.resize(like.rows, like.width);
    }

    fn clear_like(&mut self, like: &Self) {
        self.resize(like.rows, like.width);
        self.values.fill(0.0);
    }

    fn copy_from(&mut self, from: &Self) {
        self.values.clear();
        self.values.extend_from_slice(&from.values);
        (self.rows, self.width) = (from.rows, from.width);
    }

    fn set_residual(&mut self, image: &Self, z: &Self, norms: &mut Vec<(f64, f64)>) {
        assert_eq!((image.rows, image.width), (z.rows, z.width), "states of one shape");
        self.reserve_like(z);
        norms.clear();
        let rows = self.values.chunks_exact_mut(z.width.max(1));
        norms.extend(rows.enumerate().map(|(row, y)| vectors::difference_with_norms(y, image.row(row), z.row(row))));
    }

    fn add(&mut self, other: &Self) {
        self.update(other, |y, x| y + x);
    }

    fn scale_and_add(&mut self, factor: f64, start: &Self) {
        let factor = factor as f32;
        self.update(start, |y, x| x + y * factor);
    }

    fn subtract_from(&mut self, start: &Self) {
        self.update(start, |y, x| x - y);
    }

    fn negate(&mut self) {
        self.values.iter_mut().for_each(|value| *value = -*value);
    }

    fn scale_rows(&mut self, factors: &[f64]) {
        for (row, &factor) in factors.iter().enumerate() {
            match factor as f32 {
                0.0 => self.row_mut(row).fill(0.0),
                factor => self.row_mut(row).iter_mut().for_each(|value| *value *= factor),
            }
        }
    }

    fn dots(&self, other: &Self, dots: &mut Vec<f64>) {
        dots.clear();
        dots.extend(self.each_row().zip(other.each_row()).map(|(a, b)| vectors::dot(a, b)));
    }

    fn overwrite_rows(&mut self, marked: &[bool], from: &Self) {
        for (row, _) in marked.iter().enumerate().filter(|(_, marked)| **marked) {
            self.row_mut(row).copy_from_slice(from.row(row));
        }
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        keep_pieces(&mut self.values, self.width, rows);
        self.rows = rows.len();
    }

    fn put_rows(&mut self, to: &[usize], from: &Self) {
        for (from, &to) in from.each_row().zip(to) {
            self.row_mut(to).copy_from_slice(from);
        }
    }
}

/// Batches of states in numbered slots, one after the other in one piece of memory.
#[derive(Default)]
struct Slots {
    numbers: Vec<f32>,
    /// The numbers of a slot: those of the batch at the beginning. Fewer are used once finished samples have been left out.
    room: usize,
    rows: usize,
    width: usize,
}

impl Slots {
    /// Nothing in any slot; they are for states like these.
    fn clear(&mut self, like: &HostStates) {
        (self.room, self.rows, self.width) = (like.values.len(), like.rows, like.width);
    }

    /// One sample's state in a slot.
    fn row(&self, slot: usize, row: usize) -> &[f32] {
        &self.numbers[slot * self.room + row * self.width..][..self.width]
    }

    /// Puts states into a slot; there are to be no more than `most`.
    fn set(&mut self, slot: usize, states: &HostStates, most: usize) {
        (self.rows, self.width) = (states.rows, states.width);
        let (start, end) = (slot * self.room, (slot + 1) * self.room);
        if self.numbers.capacity() < end {
            // Twice as many slots as before, but none that are never used.
            let slots = (2 * slot).max(4).min(most).max(slot + 1);
            self.numbers.reserve_exact(slots * self.room - self.numbers.len());
        }
        if self.numbers.len() < end {
            self.numbers.resize(end, 0.0);
        }
        self.numbers[start..start + states.values.len()].copy_from_slice(&states.values);
    }

    /// Keeps only these rows of the first slots.
    fn keep_rows(&mut self, slots: usize, rows: &[usize]) {
        for slot in self.numbers.chunks_exact_mut(self.room.max(1)).take(slots) {
            move_pieces(slot, self.width, rows);
        }
        self.rows = rows.len();
    }
}

/// One batch of states a slot; slots that were never set are zero.
#[derive(Default)]
pub struct HostWindow {
    /// Of which the first `set` mean something.
    slots: Slots,
    set: usize,
    count: usize,
}

impl HostWindow {
    /// The memory that it works in.
    pub(crate) fn memory(&mut self) -> &mut Vec<f32> {
        &mut self.slots.numbers
    }
}

impl Window<HostStates> for HostWindow {
    fn clear(&mut self, slots: usize, like: &HostStates) {
        (self.count, self.set) = (slots, 0);
        self.slots.clear(like);
    }

    fn set(&mut self, slot: usize, states: &HostStates) {
        assert!(slot <= self.set && slot < self.count, "slots are first set in order");
        self.slots.set(slot, states, self.count);
        self.set = self.set.max(slot + 1);
    }

    fn dots(&self, states: &HostStates, dots: &mut PerSlot) {
        dots.clear(states.rows, self.count);
        for row in 0..states.rows {
            for (slot, dot) in dots.row_mut(row).iter_mut().enumerate().take(self.set) {
                *dot = vectors::dot(self.slots.row(slot, row), states.row(row));
            }
        }
    }

    fn add_combination(&self, y: &mut HostStates, factor: f64, weights: &PerSlot) {
        for row in 0..y.rows {
            let terms = weights.row(row).iter().enumerate().take(self.set);
            let terms = terms.map(|(slot, &weight)| Scaled { factor: (factor * weight) as f32, x: self.slots.row(slot, row) });
            vectors::add_combination(y.row_mut(row), terms.filter(|term| term.factor != 0.0));
        }
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.slots.keep_rows(self.set, rows);
    }
}

/// The last states themselves: changes are never written down, since subtracting takes no time beside reading.
#[derive(Default)]
pub struct HostChanges {
    /// The state number `k` of the past is in the slot `k % width`.
    past: Slots,
    width: usize,
    /// How many states have been pushed.
    count: usize,
}

impl HostChanges {
    /// The memory that it works in.
    pub(crate) fn memory(&mut self) -> &mut Vec<f32> {
        &mut self.past.numbers
    }

    /// The slots of the states that are held, oldest first. The change that follows a state has the number of its slot.
    fn slots(&self) -> impl Iterator<Item = usize> + Clone {
        let width = self.width;
        (self.count - self.count.min(width)..self.count).map(move |number| number % width)
    }

    /// The slot, the new and the old state of every change of one sample, oldest first.
    fn pairs<'a>(&'a self, row: usize, newest: &'a HostStates) -> impl Iterator<Item = (usize, &'a [f32], &'a [f32])> + Clone {
        let followers = self.slots().skip(1).map(move |slot| self.past.row(slot, row)).chain([newest.row(row)]);
        self.slots().zip(followers).map(move |(slot, new)| (slot, new, self.past.row(slot, row)))
    }
}

impl Changes<HostStates> for HostChanges {
    fn clear(&mut self, width: usize, like: &HostStates) {
        (self.width, self.count) = (width, 0);
        self.past.clear(like);
    }

    fn newest_slot(&self) -> Option<usize> {
        self.count.checked_sub(1).map(|number| number % self.width)
    }

    fn observe(&mut self, _: &HostStates) {}

    fn dots(&self, newest: &HostStates, with_change: &mut PerSlot, with_state: &mut PerSlot) {
        with_change.clear(newest.rows, self.width);
        with_state.clear(newest.rows, self.width);
        let Some(before) = self.newest_slot() else { return };
        for row in 0..newest.rows {
            let (changes, states) = (with_change.row_mut(row), with_state.row_mut(row));
            vectors::dots_of_changes(self.pairs(row, newest), newest.row(row), self.past.row(before, row), |slot, found| {
                changes[slot] += found.0;
                states[slot] += found.1;
            });
        }
    }

    fn subtract_combination(&self, y: &mut HostStates, newest: &HostStates, weights: &PerSlot) {
        y.reserve_like(newest);
        for row in 0..newest.rows {
            let weights = weights.row(row);
            let terms = self.pairs(row, newest).map(|(slot, new, old)| ScaledChange { factor: -weights[slot] as f32, new, old });
            let y = y.row_mut(row);
            vectors::set_combination(y, newest.row(row), terms.filter(|term| term.factor != 0.0));
        }
    }

    fn push(&mut self, newest: &HostStates) {
        self.past.set(self.count % self.width, newest, self.width);
        self.count += 1;
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.past.keep_rows(self.count.min(self.width), rows);
    }
}
