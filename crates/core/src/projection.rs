//! Keeping the cell of DEQ-MLP contractive.
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use fedeq_equilibrium::contract::{project_onto_linf_ball, project_rows_onto_l1_sphere};
use fedeq_models::{Network, PathTracker};
use serde::{Deserialize, Serialize};

use crate::error::Result;
use crate::training::positive;

/// Where the matrix `B` of DEQ-MLP's cell `z = phi(B z + C x + b)` is put back to, at the start and after every gradient step.
///
/// In an experiment file: `training.projection = { ball = 0.95 }`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Projection {
    /// Onto `{B : ||B||_inf <= radius}`, as in the paper: below 1 the cell is a contraction.
    Ball(f64),
    /// Every row of the stored matrix, which is `B` transposed, onto the l1 sphere of that radius: what the authors' code does, with 1.
    Sphere(f64),
}

/// The path of `B`, which is stored as `[input, output]`.
const MATRIX: &str = "cell.b.weight";

impl Projection {
    /// The one model that has such a matrix.
    pub const MODEL: &str = "deq-mlp";

    /// The same network with its matrix put back.
    pub fn apply(self, network: Network) -> Network {
        network.map(&mut PutBack { tracker: PathTracker::default(), projection: self })
    }

    /// Refuses radii that mean nothing.
    pub fn validate(self) -> Result<()> {
        let (Self::Ball(radius) | Self::Sphere(radius)) = self;
        positive("training.projection", radius)
    }

    fn of(self, stored: Tensor<2>) -> Tensor<2> {
        match self {
            Self::Ball(radius) => project_onto_linf_ball(stored.transpose(), radius).transpose(),
            Self::Sphere(radius) => project_rows_onto_l1_sphere(stored, radius),
        }
    }
}

struct PutBack {
    tracker: PathTracker,
    projection: Projection,
}

impl ModuleMapper for PutBack {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.tracker.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, container: &str) {
        self.tracker.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D != 2 || self.tracker.path() != MATRIX {
            return param;
        }
        let is_trained = param.val().is_require_grad();
        param.map(|value| {
            let [rows, columns] = [value.dims()[0], value.dims()[1]];
            let put_back = self.projection.of(value.inner().reshape([rows, columns])).reshape(value_shape::<D>([rows, columns]));
            put_back.autodiff().set_require_grad(is_trained)
        })
    }
}

/// A shape of two, where `D` is known to be 2 but the compiler cannot know.
fn value_shape<const D: usize>(shape: [usize; 2]) -> [usize; D] {
    std::array::from_fn(|axis| shape[axis])
}
