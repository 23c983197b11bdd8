//! Batches of states, wherever they live: what a solver does with them, and nothing else.
mod host;
mod vectors;

pub use host::HostStates;

/// A batch of states: one row a sample, all of the same width.
///
/// The solvers are written once, in terms of this. [`HostStates`] are plain numbers in memory; with the feature `burn` there are states on any of
/// burn's devices too. Whatever is written to takes on the shape of what it is computed from, and keeps its memory where it can.
pub trait States: Default + Clone {
    /// A number of past states.
    type Window: Window<Self>;
    /// The changes between past states.
    type Changes: Changes<Self>;

    /// How many samples there are.
    fn rows(&self) -> usize;

    /// The numbers of one state.
    fn width(&self) -> usize;

    /// Makes room for states of the shape of `like`, whose numbers are about to be overwritten.
    fn reserve_like(&mut self, like: &Self);

    /// `self <- 0`, of the shape of `like`.
    fn clear_like(&mut self, like: &Self);

    /// `self <- from`
    fn copy_from(&mut self, from: &Self);

    /// `self <- image - z`; the norms of that and of `image`, row by row.
    fn set_residual(&mut self, image: &Self, z: &Self, norms: &mut Vec<(f64, f64)>);

    /// `self <- self + other`
    fn add(&mut self, other: &Self);

    /// `self <- start + factor self`
    fn scale_and_add(&mut self, factor: f64, start: &Self);

    /// `self <- start - self`
    fn subtract_from(&mut self, start: &Self);

    /// `self <- -self`
    fn negate(&mut self);

    /// Every row times its factor; a factor of 0 gives zeros, whatever the row was.
    fn scale_rows(&mut self, factors: &[f64]);

    /// `<self, other>`, row by row.
    fn dots(&self, other: &Self, dots: &mut Vec<f64>);

    /// Takes the marked rows from `from`.
    fn overwrite_rows(&mut self, marked: &[bool], from: &Self);

    /// Keeps only these rows, which are given in ascending order.
    fn keep_rows(&mut self, rows: &[usize]);

    /// `self[to[i]] <- from[i]` for every row `i` of `from`.
    fn put_rows(&mut self, to: &[usize], from: &Self);
}

/// A fixed number of past states a sample, in numbered slots, so that inner products with all of them, and combinations of all of them, are one
/// operation each.
pub trait Window<S>: Default {
    /// Zeros in so many slots, for states like these.
    fn clear(&mut self, slots: usize, like: &S);

    /// Overwrites one slot of every sample. Slots are first set in order.
    fn set(&mut self, slot: usize, states: &S);

    /// `<slot, state>` for every row and slot.
    fn dots(&self, states: &S, dots: &mut PerSlot);

    /// `y <- y + factor sum_slot weights[row][slot] slot` for every row.
    fn add_combination(&self, y: &mut S, factor: f64, weights: &PerSlot);

    /// Keeps only these rows, which are given in ascending order.
    fn keep_rows(&mut self, rows: &[usize]);
}

/// The last changes `c_k = s_{k+1} - s_k` of a sequence of states. The change `c_k` has the number `k % width`, its *slot*.
///
/// The newest state stays with the caller until it is [pushed](Changes::push), so that none is stored that the next one makes superfluous.
pub trait Changes<S>: Default {
    /// Forgets everything; from now on there are at most `width` changes.
    fn clear(&mut self, width: usize, like: &S);

    /// The slot of the change that leads to the newest state; nothing at the first state.
    fn newest_slot(&self) -> Option<usize>;

    /// Tells of the newest state, before anything is asked about it.
    fn observe(&mut self, newest: &S);

    /// The inner products of all changes with the newest change, and with the newest state.
    fn dots(&self, newest: &S, with_change: &mut PerSlot, with_state: &mut PerSlot);

    /// `y <- newest - sum_slot weights[row][slot] change[slot]` for every row.
    fn subtract_combination(&self, y: &mut S, newest: &S, weights: &PerSlot);

    /// The newest state becomes one of the past.
    fn push(&mut self, newest: &S);

    /// Keeps only these rows, which are given in ascending order.
    fn keep_rows(&mut self, rows: &[usize]);
}

/// One number for every row and slot.
#[derive(Clone, Debug, Default)]
pub struct PerSlot {
    values: Vec<f64>,
    slots: usize,
}

impl PerSlot {
    /// Zeros.
    pub fn clear(&mut self, rows: usize, slots: usize) {
        self.values.clear();
        self.values.resize(rows * slots, 0.0);
        self.slots = slots;
    }

    /// These numbers, row after row.
    ///
    /// # Panics
    ///
    /// If they are not so many a row.
    pub fn set(&mut self, values: Vec<f64>, slots: usize) {
        assert!(values.len().is_multiple_of(slots), "{slots} numbers a row");
        (self.values, self.slots) = (values, slots);
    }

    /// All numbers, row after row.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The numbers of one row.
    pub fn row(&self, row: usize) -> &[f64] {
        &self.values[row * self.slots..(row + 1) * self.slots]
    }

    /// The numbers of one row, to be changed.
    pub fn row_mut(&mut self, row: usize) -> &mut [f64] {
        &mut self.values[row * self.slots..(row + 1) * self.slots]
    }
}

/// Moves the kept ones of equally long pieces to the front; `kept` is in ascending order, so each can move in place.
pub(crate) fn keep_pieces<T: Copy>(values: &mut Vec<T>, length: usize, kept: &[usize]) {
    move_pieces(values, length, kept);
    values.truncate(kept.len() * length);
}

/// The same, leaving what comes after them.
fn move_pieces<T: Copy>(values: &mut [T], length: usize, kept: &[usize]) {
    for (to, &from) in kept.iter().enumerate() {
        values.copy_within(from * length..(from + 1) * length, to * length);
    }
}
