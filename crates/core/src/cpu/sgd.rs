//! Plain gradient steps on some of a network's parameters, with a force beside the loss.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use fedeq_kernels::tensor::{Pull, descend};
use fedeq_models::{Network, Part, PathTracker};

use crate::params::{Array, Params};
use crate::projection::Projection;
use crate::work::{Phase, ProximalGradient, Trains};

/// The same network with gradients wanted only for what is trained.
pub(crate) fn train_only(network: Network, trains: Trains) -> Network {
    struct Choose(PathTracker, Trains);
    impl ModuleMapper for Choose {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let wanted = self.1.includes(Part::of(&self.0.path()));
            param.set_require_grad(wanted)
        }
    }
    network.map(&mut Choose(PathTracker::default(), trains))
}

/// A step size and a proximal term, ready on the device.
pub(crate) struct Step {
    learning_rate: f64,
    /// By path.
    pulls: BTreeMap<String, Pull>,
    /// Whether pulls are divided by the number of predictions in a batch.
    pull_per_prediction: bool,
    projection: Option<Projection>,
}

impl Step {
    pub(crate) fn new(
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        projection: Option<Projection>,
        device: &Device,
    ) -> Self {
        let device = device.clone().without_autodiff();
        let flat = |array: &Array| Tensor::from_data(TensorData::new(array.values.to_vec(), [array.values.len()]), &device);
        let pulls = proximal.into_iter().flat_map(|proximal| {
            let on = |(path, array): (&str, &Array)| (path.to_owned(), Pull { strength: proximal.strength, offset: flat(array) });
            proximal.offset.iter().map(on)
        });
        Self {
            learning_rate: phase.learning_rate,
            pulls: pulls.collect(),
            pull_per_prediction: proximal.is_some_and(|proximal| proximal.per_prediction),
            projection,
        }
    }

    /// `p <- p - rate (gradient + strength p + offset)` for everything that is trained, then the projection if there is one. The gradient
    /// is that of a mean over so many predictions.
    pub(crate) fn apply(&self, network: Network, gradients: Gradients, trains: Trains, predictions: usize) -> Network {
        let share = if self.pull_per_prediction { predictions.max(1) as f64 } else { 1.0 };
        let moved = network.map(&mut Descend { tracker: PathTracker::default(), step: self, gradients, trains, share });
        match self.projection {
            Some(projection) if trains.includes(Part::Shared) => projection.apply(moved),
            _ => moved,
        }
    }

    /// `share` divides the pull.
    fn moved<const D: usize>(&self, value: Tensor<D>, gradient: Option<Tensor<D>>, path: &str, share: f64) -> Tensor<D> {
        let gradient = gradient.unwrap_or_else(|| value.zeros_like());
        match self.pulls.get(path) {
            // rate (gradient + pull / share) = (rate / share) (share gradient + pull)
            Some(pull) if share != 1.0 => descend(value, gradient.mul_scalar(share), Some(pull), self.learning_rate / share),
            pull => descend(value, gradient, pull, self.learning_rate),
        }
    }
}

struct Descend<'a> {
    tracker: PathTracker,
    step: &'a Step,
    gradients: Gradients,
    trains: Trains,
    share: f64,
}

impl ModuleMapper for Descend<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.tracker.enter(name, container);
    }

    fn exit_module(&mut self, _: &str, container: &str) {
        self.tracker.exit(container);
    }

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let path = self.tracker.path();
        if !self.trains.includes(Part::of(&path)) {
            return param;
        }
        let gradient = param.val().grad_remove(&mut self.gradients);
        param.map(|value| self.step.moved(value.inner(), gradient, &path, self.share).autodiff().require_grad())
    }
}

/// The gradient of a loss with respect to all parameters of a network, on the host.
pub(crate) fn gradient_of(network: &Network, loss: Tensor<1>) -> Params {
    struct Read(PathTracker, Gradients, Vec<(String, Array)>);
    impl ModuleVisitor for Read {
        fn enter_module(&mut self, name: &str, container: &str) {
            self.0.enter(name, container);
        }
        fn exit_module(&mut self, _: &str, container: &str) {
            self.0.exit(container);
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            let value = param.val();
            let gradient = value.grad(&self.1).unwrap_or_else(|| value.inner().zeros_like());
            let shape = gradient.dims().to_vec();
            let values = gradient.try_into_vec_as::<f32>().expect("a float tensor");
            self.2.push((self.0.path(), Array::new(shape, values)));
        }
    }
    let mut read = Read(PathTracker::default(), loss.backward(), Vec::new());
    network.visit(&mut read);
    read.2.into_iter().collect()
}
