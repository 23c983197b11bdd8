//! The map whose fixed point is sought, seen as something that acts on a batch of states.
use crate::states::States;

/// A map on a batch of states; samples do not influence each other.
///
/// Any closure `FnMut(&S, &mut S)` is one. A map that [can leave samples out](Map::keep) costs less once most of them are finished.
pub trait Map<S> {
    /// `out <- f(z)`. What is in `out` before means nothing, but it has the shape of `z` already.
    fn apply(&mut self, z: &S, out: &mut S);

    /// From now on only these samples (indices into the present ones, ascending) will be asked for. Says whether it can do that.
    fn keep(&mut self, _rows: &[usize]) -> bool {
        false
    }
}

impl<S, F: FnMut(&S, &mut S)> Map<S> for F {
    fn apply(&mut self, z: &S, out: &mut S) {
        self(z, out);
    }
}

impl<S> Map<S> for Box<dyn Map<S> + '_> {
    fn apply(&mut self, z: &S, out: &mut S) {
        self.as_mut().apply(z, out);
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        self.as_mut().keep(rows)
    }
}

/// `u -> v + J^T u`, whose fixed point is the gradient that passes through an equilibrium.
pub(crate) struct Adjoining<'a, S, M: ?Sized> {
    pub(crate) transposed: &'a mut M,
    pub(crate) v: &'a mut S,
}

impl<S: States, M: Map<S> + ?Sized> Map<S> for Adjoining<'_, S, M> {
    fn apply(&mut self, u: &S, out: &mut S) {
        self.transposed.apply(u, out);
        out.add(self.v);
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        let kept = self.transposed.keep(rows);
        if kept {
            self.v.keep_rows(rows);
        }
        kept
    }
}
