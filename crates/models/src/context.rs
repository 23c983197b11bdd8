//! What a forward pass needs besides the network and its input.
use burn::tensor::Tensor;
use fedeq_equilibrium::WarmMemory;

use crate::error::{ModelError, Result};
use crate::statistics::Statistics;

/// Whether a network is being trained or used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Batch normalisation uses the batch's own statistics, and the running ones move.
    Train,
    /// Batch normalisation uses the running statistics, which stay as they are.
    Evaluate,
}

/// The state around a forward pass. Networks hold none, so the same network, input and context give the same output.
///
/// ```
/// use fedeq_models::{Context, Mode, Statistics};
/// let context = Context::evaluate(Statistics::default());
/// assert_eq!(context.mode, Mode::Evaluate);
/// assert_eq!(context.dropout, None);
/// ```
#[derive(Clone, Debug)]
pub struct Context<'a> {
    /// Training or evaluation.
    pub mode: Mode,
    /// The running statistics of batch normalisation; a training pass moves them.
    pub statistics: Statistics,
    /// The seed of the dropout masks, or none for no dropout. Each pass should get its own.
    pub dropout: Option<u64>,
    /// Where the equilibrium solve starts.
    pub start: Start<'a>,
}

/// Where the equilibrium solve starts.
#[derive(Clone, Debug, Default)]
pub enum Start<'a> {
    /// From the model's own choice.
    #[default]
    Model,
    /// From a state of `[B, n]`, such as that of an earlier [output](crate::Output).
    At(&'a Tensor<2>),
    /// From the remembered states of these samples, and from the model's own choice for those not remembered.
    Recalled(&'a WarmMemory, &'a [u64]),
}

impl<'a> Context<'a> {
    /// A training pass: dropout on, with masks determined by `seed`.
    pub fn train(statistics: Statistics, seed: u64) -> Self {
        Self { mode: Mode::Train, statistics, dropout: Some(seed), start: Start::Model }
    }

    /// An evaluation pass: dropout off.
    pub fn evaluate(statistics: Statistics) -> Self {
        Self { mode: Mode::Evaluate, statistics, dropout: None, start: Start::Model }
    }

    /// The same, with the equilibrium solve started elsewhere.
    pub fn starting(self, start: Start<'a>) -> Self {
        Self { start, ..self }
    }
}

impl Start<'_> {
    /// The starting state, where the model's own choice is `own`.
    pub(crate) fn resolve<const D: usize>(&self, own: Tensor<D>) -> Result<Tensor<D>> {
        let dims = own.dims();
        let expected = [dims[0], dims[1..].iter().product()];
        match self {
            Self::Model => Ok(own),
            Self::Recalled(memory, samples) => Ok(memory.recall_tensor(samples, own)),
            Self::At(state) if state.dims() == expected => Ok((*state).clone().without_autodiff().reshape(dims)),
            Self::At(state) => Err(ModelError::unfitting(
                format!("the solve is to start from a state of shape `{:?}`", state.dims()),
                format!("start from a state of shape {expected:?}, or from the model's own"),
            )),
        }
    }
}
