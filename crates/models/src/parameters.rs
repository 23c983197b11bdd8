//! The parameters of a network by name, and to whom they belong.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorData};
use serde::{Deserialize, Serialize};

use crate::network::Network;
use crate::statistics::{Moments, Statistics};

/// To whom a parameter belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Part {
    /// The representation `theta`, on which all clients agree.
    Shared,
    /// The head `w`, which never leaves its client.
    Personal,
}

/// The first name in the path of every personal parameter.
pub(crate) const PERSONAL: &str = "player";

impl Part {
    /// Everything under `player` is personal, the rest is shared.
    ///
    /// ```
    /// use fedeq_models::Part;
    /// assert_eq!(Part::of("cell.conv_a.weight"), Part::Shared);
    /// assert_eq!(Part::of("player.weight"), Part::Personal);
    /// ```
    pub fn of(path: &str) -> Self {
        if path.split('.').next() == Some(PERSONAL) { Self::Personal } else { Self::Shared }
    }
}

/// One parameter of a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterInfo {
    /// Its path, such as `stem.conv.weight`.
    pub path: String,
    /// Its shape.
    pub shape: Vec<usize>,
    /// To whom it belongs.
    pub part: Part,
}

impl ParameterInfo {
    /// How many numbers it holds.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }
}

/// Keeps track of the path during a [visit](ModuleVisitor) or [map](ModuleMapper) of a network.
///
/// Call [`enter`](Self::enter) and [`exit`](Self::exit) from `enter_module` and `exit_module`. The names of enum variants and of
/// the network's own field are left out: `stem.norm.scale` and not `model.DeqResNet.stem.norm.Batch.scale`.
#[derive(Clone, Debug, Default)]
pub struct PathTracker {
    names: Vec<String>,
}

impl PathTracker {
    /// Enters a part of a module.
    pub fn enter(&mut self, name: &str, container: &str) {
        if Self::is_named(container) {
            self.names.push(name.to_owned());
        }
    }

    /// Leaves it again.
    pub fn exit(&mut self, container: &str) {
        if Self::is_named(container) {
            self.names.pop();
        }
    }

    /// The path of what is being visited.
    pub fn path(&self) -> String {
        self.names.join(".")
    }

    fn is_named(container: &str) -> bool {
        !container.starts_with("Enum:") && container != "Struct:Network"
    }
}

impl Network {
    /// Every parameter, in a fixed order.
    pub fn parameters(&self) -> Vec<ParameterInfo> {
        #[derive(Default)]
        struct List(PathTracker, Vec<ParameterInfo>);
        impl ModuleVisitor for List {
            fn enter_module(&mut self, name: &str, container: &str) {
                self.0.enter(name, container);
            }
            fn exit_module(&mut self, _: &str, container: &str) {
                self.0.exit(container);
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let path = self.0.path();
                let part = Part::of(&path);
                self.1.push(ParameterInfo { path, shape: param.lazy_shape().to_vec(), part });
            }
        }
        let mut list = List::default();
        self.visit(&mut list);
        list.1
    }

    /// How many numbers the parameters of one part hold.
    pub fn count(&self, part: Part) -> usize {
        self.parameters().iter().filter(|parameter| parameter.part == part).map(ParameterInfo::count).sum()
    }

    /// The values of all parameters by path, as 32-bit floats on the host.
    pub fn values(&self) -> BTreeMap<String, TensorData> {
        self.values_where(|_| true)
    }

    /// The values of one part's parameters by path. In a fresh network the others are not even drawn.
    pub fn values_of(&self, part: Part) -> BTreeMap<String, TensorData> {
        self.values_where(|path| Part::of(path) == part)
    }

    fn values_where(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeMap<String, TensorData> {
        struct Read<F>(PathTracker, BTreeMap<String, TensorData>, F);
        impl<F: Fn(&str) -> bool> ModuleVisitor for Read<F> {
            fn enter_module(&mut self, name: &str, container: &str) {
                self.0.enter(name, container);
            }
            fn exit_module(&mut self, _: &str, container: &str) {
                self.0.exit(container);
            }
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                let path = self.0.path();
                if (self.2)(&path) {
                    self.1.insert(path, param.val().into_data().convert::<f32>());
                }
            }
        }
        let mut read = Read(PathTracker::default(), BTreeMap::new(), is_wanted);
        self.visit(&mut read);
        read.1
    }

    /// The same network with new values for the parameters named; the others keep theirs.
    ///
    /// # Panics
    /// If a value has another shape than its parameter: compare with [`parameters`](Self::parameters) first.
    pub fn with_values(self, values: &BTreeMap<String, TensorData>) -> Self {
        struct Write<'a>(PathTracker, &'a BTreeMap<String, TensorData>);
        impl ModuleMapper for Write<'_> {
            fn enter_module(&mut self, name: &str, container: &str) {
                self.0.enter(name, container);
            }
            fn exit_module(&mut self, _: &str, container: &str) {
                self.0.exit(container);
            }
            fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
                let Some(value) = self.1.get(&self.0.path()) else { return param };
                let tensor = Tensor::from_data(value.clone(), &param.lazy_device());
                assert_eq!(tensor.shape(), param.lazy_shape(), "the shape of `{}`", self.0.path());
                let id = param.id;
                param.transform_for_load(tensor, id)
            }
        }
        self.map(&mut Write(PathTracker::default(), values))
    }

    /// Statistics of every batch normalisation layer, before the first batch.
    pub fn fresh_statistics(&self) -> Statistics {
        #[derive(Default)]
        struct Find {
            tracker: PathTracker,
            layer: Option<String>,
            found: Statistics,
        }
        impl ModuleVisitor for Find {
            fn enter_module(&mut self, name: &str, container: &str) {
                if container == "Struct:BatchNorm" && name == "scale" {
                    self.layer = Some(self.tracker.path());
                }
                self.tracker.enter(name, container);
            }
            fn exit_module(&mut self, _: &str, container: &str) {
                self.tracker.exit(container);
            }
            fn visit_float<const D: usize>(&mut self, scale: &Param<Tensor<D>>) {
                if let Some(layer) = self.layer.take() {
                    let moments = Moments::fresh(scale.lazy_shape().num_elements(), &scale.lazy_device());
                    self.found.insert(layer, moments);
                }
            }
        }
        let mut find = Find::default();
        self.visit(&mut find);
        find.found
    }
}
