//! Projecting a network's matrix.
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;
use fedeq_equilibrium::contract::{project_onto_linf_ball, project_rows_onto_l1_sphere};
use fedeq_models::{Network, PathTracker};

use crate::projection::Projection;

impl Projection {
    /// The same network with its matrix put back; one without such a matrix stays as it is.
    pub fn apply(self, network: Network) -> Network {
        match network.recurrent_matrix() {
            Some(path) => network.map(&mut PutBack { tracker: PathTracker::default(), projection: self, path }),
            None => network,
        }
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
    path: &'static str,
}

impl ModuleMapper for PutBack {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.tracker.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, container: &str) {
        self.tracker.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if D != 2 || self.tracker.path() != self.path {
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
