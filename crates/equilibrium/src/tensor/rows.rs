//! Things with one entry a sample, from which samples can be taken.
use burn::tensor::{Int, Tensor, kind};

/// A value (or several) whose leading axis counts samples.
///
/// Implemented for tensors, for `()`, and for options and tuples of such values.
pub trait Rows: Clone + Send + 'static {
    /// Only the given samples, in that order.
    fn pick(&self, rows: &Tensor<1, Int>) -> Self;

    /// The same values, cut off from any autodiff graph.
    fn frozen(&self) -> Self;

    /// Whether a backward pass would reach any of it.
    fn is_tracked(&self) -> bool;
}

impl Rows for () {
    fn pick(&self, _: &Tensor<1, Int>) -> Self {}

    fn frozen(&self) -> Self {}

    fn is_tracked(&self) -> bool {
        false
    }
}

/// Tensor kinds, told apart only by whether they can carry a gradient.
pub trait RowKind: kind::Basic + kind::Autodiff + Send + Sync + 'static {
    /// Whether this tensor participates in an autodiff graph.
    fn is_tracked<const D: usize>(tensor: &Tensor<D, Self>) -> bool
    where
        Self: Sized;
}

impl RowKind for burn::tensor::Float {
    fn is_tracked<const D: usize>(tensor: &Tensor<D, Self>) -> bool {
        tensor.is_tracked()
    }
}

impl RowKind for Int {
    fn is_tracked<const D: usize>(_: &Tensor<D, Self>) -> bool {
        false
    }
}

impl RowKind for burn::tensor::Bool {
    fn is_tracked<const D: usize>(_: &Tensor<D, Self>) -> bool {
        false
    }
}

impl<const D: usize, K: RowKind> Rows for Tensor<D, K> {
    fn pick(&self, rows: &Tensor<1, Int>) -> Self {
        self.clone().select(0, rows.clone())
    }

    fn frozen(&self) -> Self {
        self.clone().without_autodiff()
    }

    fn is_tracked(&self) -> bool {
        K::is_tracked(self)
    }
}

impl<R: Rows> Rows for Option<R> {
    fn pick(&self, rows: &Tensor<1, Int>) -> Self {
        self.as_ref().map(|inner| inner.pick(rows))
    }

    fn frozen(&self) -> Self {
        self.as_ref().map(Rows::frozen)
    }

    fn is_tracked(&self) -> bool {
        self.as_ref().is_some_and(Rows::is_tracked)
    }
}

macro_rules! rows_for_tuple {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Rows),+> Rows for ($($name,)+) {
            fn pick(&self, rows: &Tensor<1, Int>) -> Self {
                ($(self.$index.pick(rows),)+)
            }

            fn frozen(&self) -> Self {
                ($(self.$index.frozen(),)+)
            }

            fn is_tracked(&self) -> bool {
                false $(|| self.$index.is_tracked())+
            }
        }
    };
}

rows_for_tuple!(A 0);
rows_for_tuple!(A 0, B 1);
rows_for_tuple!(A 0, B 1, C 2);
rows_for_tuple!(A 0, B 1, C 2, D 3);
