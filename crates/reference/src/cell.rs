//! The cell of an equilibrium, on flat states.
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use fedeq_equilibrium::Cell;
use fedeq_models::graph::{self, NormScope, Shape};

use crate::operations::{activate, convolve, group_norm, layer_norm, transformer};
use crate::parameters::Parameters;

/// A cell of a network with the parameters of the network.
#[derive(Module, Debug)]
pub(crate) struct FlatCell {
    parameters: Parameters,
    #[module(skip)]
    cell: graph::Cell,
    #[module(skip)]
    shape: Shape,
}

/// `u`, flat; the symbols of a sequence; and the multipliers of dropout, which stay the same during a solve.
pub(crate) type Injection = (Tensor<2>, Option<Tensor<2, Int>>, Option<Tensor<4>>);

impl FlatCell {
    pub(crate) fn new(parameters: Parameters, cell: graph::Cell, shape: Shape) -> Self {
        Self { parameters, cell, shape }
    }

    /// Where a solve starts.
    pub(crate) fn start(&self, u: &Tensor<2>) -> Tensor<2> {
        match self.cell {
            graph::Cell::Dense { .. } | graph::Cell::Residual { .. } => u.clone(),
            graph::Cell::Transformer { .. } => u.zeros_like(),
        }
    }

    /// The dropout inside the cell.
    pub(crate) fn stack(&self) -> Option<&graph::Transformer> {
        match &self.cell {
            graph::Cell::Transformer { layers, .. } => Some(layers),
            _ => None,
        }
    }

    /// `GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))`
    fn residual(&self, z: Tensor<4>, u: Tensor<4>) -> Tensor<4> {
        let graph::Cell::Residual { conv_a, norm_1, conv_b, norm_2, norm_3, over, activation } = &self.cell else {
            unreachable!("asked of a residual cell");
        };
        let (NormScope::Groups(groups) | NormScope::RowGroups(groups)) = *over else {
            unreachable!("a sound cell is not normalised over the batch");
        };
        let by_row = matches!(over, NormScope::RowGroups(_));
        let norm = |x, affine| group_norm(x, groups, by_row, self.parameters.affine(affine));
        let conv = |x, weight| convolve(x, self.parameters.get(weight), 1);
        let inner = norm(activate(*activation, conv(z.clone(), *conv_a)), norm_1);
        let change = norm(u + conv(inner, *conv_b), norm_2);
        norm(activate(*activation, z + change), norm_3)
    }
}

impl Cell<2> for FlatCell {
    type Input = Injection;

    fn step(&self, z: Tensor<2>, (u, symbols, masks): &Injection) -> Tensor<2> {
        let dims @ [samples, numbers] = z.dims();
        match (&self.cell, self.shape) {
            (graph::Cell::Dense { weight, activation }, _) => {
                activate(*activation, z.matmul(self.parameters.get(*weight)) + u.clone())
            }
            (graph::Cell::Residual { .. }, Shape::Image([height, width, channels])) => {
                let [z, u] = [z, u.clone()].map(|x| x.reshape([samples, height, width, channels]));
                self.residual(z, u).reshape(dims)
            }
            (graph::Cell::Transformer { layers, norm }, Shape::Sequence(width)) => {
                let [z, u] = [z, u.clone()].map(|x| x.reshape([samples, numbers / width, width]));
                let symbols = symbols.as_ref().expect("a network for sequences reads symbols");
                let h = transformer(&self.parameters, layers, z, &u, symbols, masks.as_ref());
                layer_norm(h, self.parameters.affine(norm)).reshape(dims)
            }
            _ => unreachable!("a sound cell fits its states"),
        }
    }
}
