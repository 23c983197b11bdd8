//! Where attention may not go, in the order the kernels read it.
use super::parameters::LayerShape;
use crate::size::product;

/// How many queries share a [`Panel`].
const PANEL: usize = 16;

/// Where attention may not go.
#[derive(Clone, Debug, Default)]
pub struct Blocked {
    length: usize,
    /// `[batch, key, query]`, 1 where blocked and 0 elsewhere.
    flags: Vec<f32>,
    /// `[batch, length / PANEL]`, rounded up.
    panels: Vec<Panel>,
}

/// Some neighbouring queries, and how far they see: where the past alone is seen, this spares almost half of the work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Panel {
    /// The first of the queries.
    pub(super) first: usize,
    /// How many there are.
    pub(super) count: usize,
    /// Keys from here on have no weight for any of them.
    pub(super) horizon: usize,
}

/// Where attention may not go in one sequence.
#[derive(Clone, Copy)]
pub(super) struct BlockedSequence<'a> {
    /// `[key, query]`, 1 where blocked and 0 elsewhere.
    pub(super) flags: &'a [f32],
    /// All queries, in order.
    pub(super) panels: &'a [Panel],
}

impl Blocked {
    /// From `[batch, length, length]`, true where a query (second axis) may not look at a key (last axis).
    ///
    /// # Panics
    ///
    /// If that is not a whole number of sequences.
    pub fn new(length: usize, blocked: &[bool]) -> Self {
        assert!(length > 0 && blocked.len().is_multiple_of(product([length, length])), "blocked is not [batch, length, length]");
        let (size, mut new) = (length * length, Self::default());
        new.set([blocked.len() / size, length], |sequence, query, key| blocked[sequence * size + query * length + key]);
        new
    }

    /// Becomes that of `[batch, length]`, in its own memory: `blocked` tells of a sequence whether a query may not look at a key.
    ///
    /// # Panics
    ///
    /// If there is no position.
    pub fn set(&mut self, [batch, length]: [usize; 2], blocked: impl Fn(usize, usize, usize) -> bool) {
        assert!(length > 0, "a sequence has at least one position");
        self.length = length;
        self.flags.clear();
        self.panels.clear();
        for sequence in 0..batch {
            let blocked = |query, key| blocked(sequence, query, key);
            let flag = |at: usize| f32::from(u8::from(blocked(at % length, at / length)));
            self.flags.extend((0..product([length, length])).map(flag));
            self.panels.extend((0..length).step_by(PANEL).map(|first| Panel::new(first, length, blocked)));
        }
    }

    /// Becomes that of some sequences of `from`, in its own memory.
    ///
    /// # Panics
    ///
    /// If there are no such sequences.
    pub fn pick(&mut self, from: &Self, sequences: &[usize]) {
        let (size, count) = (from.length * from.length, from.length.div_ceil(PANEL));
        self.length = from.length;
        self.flags.clear();
        self.panels.clear();
        for &index in sequences {
            self.flags.extend_from_slice(&from.flags[index * size..][..size]);
            self.panels.extend_from_slice(&from.panels[index * count..][..count]);
        }
    }

    pub(super) fn sequence(&self, index: usize) -> BlockedSequence<'_> {
        let (size, count) = (self.length * self.length, self.length.div_ceil(PANEL));
        BlockedSequence { flags: &self.flags[index * size..][..size], panels: &self.panels[index * count..][..count] }
    }

    pub(super) fn fits(&self, shape: &LayerShape) -> bool {
        self.length == shape.length && self.flags.len() == product([shape.batch, shape.length, shape.length])
    }
}

impl Panel {
    /// The queries from `first` on, given whether a query may not look at a key.
    fn new(first: usize, length: usize, blocked: impl Fn(usize, usize) -> bool) -> Self {
        let count = PANEL.min(length - first);
        // Keys from there on have no weight. A query which may see nothing gives all of them the same.
        let horizon = |query: usize| (0..length).rev().find(|&key| !blocked(query, key)).map_or(length, |last| last + 1);
        Self { first, count, horizon: (first..first + count).map(horizon).max().unwrap_or(length) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn panels_see_as_far_as_their_last_query_or_everything_where_one_sees_nothing() {
        let length = 40;
        let causal = |blind: usize| {
            Blocked::new(
                length,
                &(0..length * length).map(|at| at % length > at / length || at / length == blind).collect::<Vec<_>>(),
            )
        };
        let horizons =
            |blocked: Blocked| blocked.panels.iter().map(|panel| (panel.first, panel.count, panel.horizon)).collect::<Vec<_>>();
        assert_eq!(horizons(causal(length)), [(0, 16, 16), (16, 16, 32), (32, 8, 40)]);
        assert_eq!(horizons(causal(17)), [(0, 16, 16), (16, 16, 40), (32, 8, 40)]);
    }
}
