//! An identity whose backward pass is any linear map: how an implicit gradient enters burn's autodiff.
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, BackendTensor, Dispatch, DispatchKindConversion, DispatchTensor, Flex, backend_extension,
};
use burn::tensor::Tensor;

#[cfg(any(feature = "cuda", feature = "wgpu"))]
use burn::backend::Cube;

/// What the backward pass does to the incoming gradient; shapes are kept.
#[derive(Clone)]
pub(crate) struct Rule(Arc<Mutex<dyn FnMut(DispatchTensor) -> DispatchTensor + Send>>);

impl Rule {
    pub(crate) fn new<const D: usize>(mut rule: impl FnMut(Tensor<D>) -> Tensor<D> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(move |g| rule(Tensor::from_dispatch(g)).into_dispatch())))
    }

    fn apply(&self, gradient: DispatchTensor) -> DispatchTensor {
        // A rule that panicked once left nothing half-done that the next call would read.
        (self.0.lock().unwrap_or_else(PoisonError::into_inner))(gradient)
    }
}

impl fmt::Debug for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Rule")
    }
}

/// `x`, but the gradient that reaches `x` is `rule(gradient)`.
pub(crate) fn pullback<const D: usize>(x: Tensor<D>, rule: Rule) -> Tensor<D> {
    Tensor::from_dispatch(<Dispatch as PullbackBackend>::pullback(x.into_dispatch(), rule))
}

#[backend_extension(Flex, Cube: cfg(any(feature = "cuda", feature = "wgpu")), Autodiff)]
pub(crate) trait PullbackBackend: Backend {
    fn pullback(x: FloatTensor<Self>, rule: Rule) -> FloatTensor<Self> {
        let _ = rule; // Without autodiff there is no backward pass to change.
        x
    }
}

impl PullbackBackend for Flex {}

#[cfg(any(feature = "cuda", feature = "wgpu"))]
impl PullbackBackend for Cube {}

impl<B, C> PullbackBackend for Autodiff<B, C>
where
    B: Backend + PullbackBackend,
    C: CheckpointStrategy,
    DispatchTensor: DispatchKindConversion<B>,
{
    fn pullback(x: FloatTensor<Self>, rule: Rule) -> FloatTensor<Self> {
        let (value, node) = x.into_parts();
        match Pullback.prepare::<C>([node]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(rule, value),
            OpsKind::UnTracked(preparation) => preparation.finish(value),
        }
    }
}

#[derive(Debug)]
struct Pullback;

impl<B: Backend> Backward<B, 1> for Pullback
where
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = Rule;

    fn backward(self, ops: Ops<Rule, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let rule = ops.state;
        unary::<B, _>(ops.parents, ops.node, gradients, |gradient| {
            let passed = rule.apply(DispatchTensor::from_backend(BackendTensor::Float(gradient)));
            let passed = <DispatchTensor as DispatchKindConversion<B>>::try_into_backend(passed);
            passed.expect("a rule keeps the device of its gradient").float()
        });
    }
}
