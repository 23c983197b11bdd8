//! What the shared part of a network hands to the personal part.
use burn::tensor::{Bool, Tensor};
use fedeq_equilibrium::{AdjointRecord, Cell, Equilibrium, Report};

use crate::context::Context;
use crate::error::Result;

/// Everything the personal part needs to know of an input.
#[derive(Clone, Debug)]
pub struct Representation {
    /// What is known of it.
    pub features: Features,
    /// The fixed point on the way, in an equilibrium network.
    pub equilibrium: Option<Equilibrated>,
}

/// What is known of an input.
#[derive(Clone, Debug)]
#[allow(clippy::large_enum_variant)] // Tensors are handles; there is one of these to a batch.
pub enum Features {
    /// One vector a sample.
    Vector {
        /// What the personal layer reads, `[B, n]`.
        features: Tensor<2>,
        /// What stands for the sample in nearest-neighbour methods, `[B, m]`.
        embedding: Tensor<2>,
    },
    /// One vector a position.
    Sequence {
        /// What the personal layer reads, `[B, T, d]`.
        hidden: Tensor<3>,
        /// What the personal layer adds to it, `[B, T, d]`.
        injection: Tensor<3>,
        /// Where attention may not go, `[B, 1, T, T]`.
        blocked: Tensor<4, Bool>,
    },
}

/// The fixed point of an equilibrium network.
#[derive(Clone, Debug)]
pub struct Equilibrated {
    /// The state, `[B, n]`, without a gradient: where the next solve for the same samples may start.
    pub state: Tensor<2>,
    /// How the solve went.
    pub report: Report,
    /// How the backward pass's own solve went, once it has run.
    pub adjoint: AdjointRecord,
}

impl Representation {
    pub(crate) fn explicit(features: Features) -> Self {
        Self { features, equilibrium: None }
    }
}

/// Solves for the fixed point, from where the context says; `own` is the model's own choice.
pub(crate) fn settle<const D: usize, C: Cell<D>>(
    equilibrium: &Equilibrium,
    cell: &C,
    x: &C::Input,
    own: Tensor<D>,
    context: &Context,
) -> Result<(Tensor<D>, Equilibrated)> {
    let start = context.start.resolve(own.without_autodiff())?;
    let settled = equilibrium.forward(cell, x, start);
    let state = settled.fixed_point.flatten(1, D - 1);
    Ok((settled.z, Equilibrated { state, report: settled.report, adjoint: settled.adjoint }))
}
