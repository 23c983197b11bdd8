//! A kernel as a differentiable operation on burn's tensors.
use std::fmt::Debug;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::NoCheckpointing;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, DispatchTensor, Flex};
use burn::tensor::Tensor;

use super::host;

type Tracked = FloatTensor<Autodiff<Flex>>;

/// A function of `N` arrays with a gradient written by hand.
///
/// burn's extension macro knows operations of a fixed number of named tensors. A cell has ten and a layer of attention sixteen, so the way
/// into the graph is written out here, once, for any number.
pub(crate) trait Operation<const N: usize>: Clone + Debug + Send + 'static {
    /// What the backward pass needs beside inputs and output.
    type Saved: Clone + Debug + Send + 'static;

    /// The shape of the result.
    fn shape(&self) -> Vec<usize>;

    /// The result and what its gradient will need.
    fn run_saving(&self, inputs: [&[f32]; N]) -> (Vec<f32>, Self::Saved);

    /// The result alone.
    fn run(&self, inputs: [&[f32]; N]) -> Vec<f32> {
        self.run_saving(inputs).0
    }

    /// Whether the backward pass wants to see the inputs; else their memory can be used again.
    fn keeps_inputs(&self) -> bool {
        true
    }

    /// Whether the backward pass wants to see the output.
    fn keeps_output(&self) -> bool {
        false
    }

    /// The gradients of those inputs that are wanted.
    fn gradients(&self, past: Past<'_, Self::Saved, N>, wanted: [bool; N]) -> [Option<Vec<f32>>; N];
}

/// What a backward pass starts from.
pub(crate) struct Past<'a, S, const N: usize> {
    /// The inputs of the forward pass, if the operation keeps them.
    pub(crate) inputs: [&'a [f32]; N],
    /// Its output, if the operation keeps it.
    pub(crate) output: &'a [f32],
    /// What it saved.
    pub(crate) saved: &'a S,
    /// The gradient of the output.
    pub(crate) gradient: &'a [f32],
}

/// Of one gradient for each input, in order, those that are wanted.
pub(crate) fn only<const N: usize>(
    wanted: [bool; N],
    found: impl IntoIterator<Item = Option<Vec<f32>>>,
) -> [Option<Vec<f32>>; N] {
    let mut found = found.into_iter();
    wanted.map(|wanted| found.next().flatten().filter(|_| wanted))
}

/// The operation on these tensors if they are 32-bit floats on the CPU, attached to their graph; otherwise nothing.
pub(crate) fn apply<const N: usize, const D: usize>(
    operation: impl Operation<N>,
    inputs: [DispatchTensor; N],
) -> Option<Tensor<D>> {
    if !inputs.iter().all(host::is_here) {
        return None;
    }
    let result = if inputs.iter().any(host::is_differentiated) {
        host::attached(attach(operation, inputs.map(host::differentiated)).0)
    } else {
        let inputs = inputs.map(host::plain);
        let values = operation.run(inputs.each_ref().map(host::numbers));
        host::constant(host::tensor(values, operation.shape()))
    };
    Some(Tensor::from_dispatch(result))
}

/// The same, with what the operation saved.
pub(crate) fn apply_saving<const N: usize, const D: usize, O: Operation<N>>(
    operation: O,
    inputs: [DispatchTensor; N],
) -> Option<(Tensor<D>, O::Saved)> {
    if !inputs.iter().all(host::is_here) {
        return None;
    }
    let (result, saved) = attach(operation, inputs.map(host::differentiated));
    Some((Tensor::from_dispatch(host::attached(result)), saved))
}

fn attach<const N: usize, O: Operation<N>>(operation: O, inputs: [Tracked; N]) -> (Tracked, O::Saved) {
    let nodes = inputs.each_ref().map(Tracked::node);
    let inputs = inputs.map(|input| input.into_primitive().to_contiguous());
    let (values, saved) = operation.run_saving(inputs.each_ref().map(host::numbers));
    let result = host::tensor(values, operation.shape());
    let output = operation.keeps_output().then(|| result.clone());
    let keeps_inputs = operation.keeps_inputs();
    let inputs = inputs.map(|input| Input { shape: host::shape(&input), values: keeps_inputs.then_some(input) });
    let attached = match (Step { operation }).prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(preparation) => preparation.finish(State { inputs, output, saved: saved.clone() }, result),
        OpsKind::UnTracked(preparation) => preparation.finish(result),
    };
    (attached, saved)
}

/// What is kept of an input.
#[derive(Clone, Debug)]
struct Input {
    shape: Vec<usize>,
    values: Option<FlexTensor>,
}

#[derive(Clone, Debug)]
struct State<S, const N: usize> {
    inputs: [Input; N],
    output: Option<FlexTensor>,
    saved: S,
}

#[derive(Debug)]
struct Step<O> {
    operation: O,
}

impl<const N: usize, O: Operation<N>> Backward<Flex, N> for Step<O> {
    type State = State<O::Saved, N>;

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node).to_contiguous();
        let wanted = ops.parents.each_ref().map(Option::is_some);
        let State { inputs, output, saved } = ops.state;
        let past = Past {
            inputs: inputs.each_ref().map(|input| input.values.as_ref().map_or(&[][..], host::numbers)),
            output: output.as_ref().map_or(&[], host::numbers),
            saved: &saved,
            gradient: host::numbers(&gradient),
        };
        let found = self.operation.gradients(past, wanted);
        for ((parent, found), Input { shape, .. }) in ops.parents.into_iter().zip(found).zip(inputs) {
            if let (Some(parent), Some(found)) = (parent, found) {
                gradients.register::<Flex>(parent.id, host::tensor(found, shape));
            }
        }
    }
}
