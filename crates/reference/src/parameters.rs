//! The parameters of a network as tensors.
use burn::module::{Module, Param, ParamId};
use burn::tensor::{DType, Device, Tensor, TensorData};
use fedeq_models::Graph;
use fedeq_models::graph::{Affine, ParameterId};

use crate::Values;

/// All parameters of a network, flat, in its order. A module, so that an equilibrium sees which gradients are wanted.
#[derive(Module, Debug)]
pub(crate) struct Parameters {
    flat: Vec<Param<Tensor<1>>>,
    #[module(skip)]
    shapes: Vec<Vec<usize>>,
}

impl Parameters {
    /// On a device with autodiff, all of them want a gradient.
    pub(crate) fn new(graph: &Graph, values: &Values, device: &Device, dtype: DType) -> Self {
        let flat = graph.parameters.iter().enumerate().map(|(index, parameter)| {
            let numbers = values.get(&parameter.path).unwrap_or_else(|| panic!("no value for `{}`", parameter.path));
            assert_eq!(numbers.len(), parameter.count(), "the numbers of `{}`", parameter.path);
            let tensor = Tensor::from_data(TensorData::new(numbers.clone(), [numbers.len()]), (device, dtype));
            Param::initialized(ParamId::from(index as u64), tensor.set_require_grad(device.is_autodiff()))
        });
        Self { flat: flat.collect(), shapes: graph.parameters.iter().map(|parameter| parameter.shape.clone()).collect() }
    }

    pub(crate) fn get<const D: usize>(&self, ParameterId(index): ParameterId) -> Tensor<D> {
        let shape: [usize; D] =
            self.shapes[index].as_slice().try_into().expect("a sound network has parameters of the right rank");
        self.flat[index].val().reshape(shape)
    }

    /// Scale and offset.
    pub(crate) fn affine(&self, affine: &Affine) -> [Tensor<1>; 2] {
        [self.get(affine.scale), self.get(affine.offset)]
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = Tensor<1>> {
        self.flat.iter().map(Param::val)
    }
}
