//! What an equilibrium layer is made of: a cell, and what is injected into it.
use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Bool, Int, Tensor};

use super::map::{Injected, TensorMap, Transposed};
use super::rows::Rows;

/// One application of the layer whose fixed point is sought: `g(z; x)`, with the parameters in `self`.
///
/// The leading axis of `z` and of everything in `x` counts samples, and a sample's result must not depend on the other
/// samples of the batch: that is what lets every sample stop on its own. (Group and layer normalisation are fine inside a
/// cell, batch normalisation is not.)
///
/// `D` is the rank of the state, leading axis included. (The enum of the same name in `fedeq-models` describes cells as data.)
///
/// ```
/// use burn::module::Module;
/// use burn::nn::Linear;
/// use burn::tensor::Tensor;
/// use fedeq_equilibrium::Cell;
///
/// /// tanh(B z + b + x)
/// #[derive(Module, Debug)]
/// struct Recurrent { b: Linear }
///
/// impl Cell<2> for Recurrent {
///     type Input = Tensor<2>;
///     fn step(&self, z: Tensor<2>, x: &Tensor<2>) -> Tensor<2> {
///         (self.b.forward(z) + x.clone()).tanh()
///     }
/// }
/// ```
pub trait Cell<const D: usize>: Module + 'static {
    /// What is injected at every step.
    type Input: Rows;

    /// `g(z; x)`, of the same shape as `z`.
    fn step(&self, z: Tensor<D>, x: &Self::Input) -> Tensor<D>;

    /// `z -> g(z; x)` for one solve, during which `x` and the parameters do not change.
    ///
    /// Called on a cell and an input without autodiff. A cell that can prepare its parameters, once for all steps, does it here.
    fn held<'a>(&'a self, x: &Self::Input) -> Box<dyn TensorMap<D> + 'a> {
        Box::new(Injected::new(self, x.clone()))
    }

    /// `u -> (dg/dz)^T u` at one `(z, x)`, for the solve of an implicit gradient.
    ///
    /// Called on a cell and inputs without autodiff. A cell that can do a part of the work once for all products does it here.
    fn transposed<'a>(&'a self, z: Tensor<D>, x: &Self::Input) -> Box<dyn TensorMap<D> + 'a> {
        Box::new(Transposed::new(self, z, x.clone()))
    }

    /// The vector-Jacobian product `(dg/dz)^T u` at `(z, x)`.
    ///
    /// Called on a cell and inputs without autodiff. The default differentiates [`step`](Cell::step) and so runs it again each
    /// time; a cell that knows its own derivative may do better.
    fn pull_back(&self, z: Tensor<D>, x: &Self::Input, u: Tensor<D>) -> Tensor<D> {
        let z = z.autodiff().require_grad();
        let paired = (self.step(z.clone(), x) * u).sum();
        if !paired.is_tracked() {
            return z.inner().zeros_like(); // The cell ignores its state.
        }
        let gradients = paired.backward();
        z.grad(&gradients).unwrap_or_else(|| z.inner().zeros_like())
    }
}

/// Whether a backward pass through the module would reach one of its parameters.
pub(crate) fn has_trainable_parameters<M: Module>(module: &M) -> bool {
    struct Search(bool);
    impl ModuleVisitor for Search {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.0 |= param.val().is_tracked();
        }
        fn visit_int<const D: usize>(&mut self, _: &Param<Tensor<D, Int>>) {}
        fn visit_bool<const D: usize>(&mut self, _: &Param<Tensor<D, Bool>>) {}
    }
    let mut search = Search(false);
    module.visit(&mut search);
    search.0
}
