//! What all image networks have in common: how they begin and how they end.
use crate::builder::Builder;
use crate::graph::{Fusion, ValueId};
use crate::layers::{Activation, NormKind};

/// The shared end of an image network: `before = phi(fc2(phi(fc1(x))))` and `norm(before)`.
pub(crate) fn dense_end(head: &mut Builder<'_>, x: ValueId, widths: [usize; 2], style: Style) -> [ValueId; 2] {
    let h = head.dense("fc1", x, widths[0], Some(style.activation));
    let before = head.dense("fc2", h, widths[1], Some(style.activation));
    [before, head.norm("norm", before, style.norm, Fusion::None)]
}

/// The choices that run through a whole network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) norm: NormKind,
    pub(crate) activation: Activation,
}
