//! Between plain vectors, in which data and weights travel, and the tensors of a network.
use std::collections::BTreeMap;

use burn::tensor::{Device, Int, Tensor, TensorData};
use fedeq_data::shard::Inputs;
use fedeq_models::{Input, Network, Part, Statistics};

use crate::error::{Error, Result};
use crate::params::{Array, Params};

/// The inputs of a batch on a device.
pub(crate) fn input_of(inputs: &Inputs, device: &Device) -> Result<Input> {
    match inputs {
        Inputs::Dense { values, shape } => match *shape.as_slice() {
            [rows, width] => Ok(Input::Vector(floats(values, [rows, width], device))),
            [rows, height, width, channels] => Ok(Input::Image(floats(values, [rows, height, width, channels], device))),
            _ => Err(Error::invalid(format!("a batch has shape `{shape:?}`"), "use pictures, vectors or sequences of symbols")),
        },
        Inputs::Symbols { values, shape } => Ok(Input::Symbols(ints(values, [shape[0], shape[1]], device))),
    }
}

fn floats<const D: usize>(values: &[f32], shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

pub(crate) fn ints<const D: usize>(values: &[i32], shape: [usize; D], device: &Device) -> Tensor<D, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), shape), device)
}

/// All parameters of a network.
pub fn params_of(network: &Network) -> Params {
    from_host(network.values())
}

/// The personal parameters of a network, `w`.
pub fn head_of(network: &Network) -> Params {
    from_host(network.values_of(Part::Personal))
}

/// The statistics as named numbers.
pub fn named_statistics(statistics: &Statistics) -> Params {
    from_host(statistics.values())
}

/// The network with these parameters.
pub fn network_with(template: Network, params: &Params) -> Network {
    template.with_values(&to_host(params))
}

/// The statistics of a network of this architecture, with these numbers.
pub fn statistics_with(template: &Network, statistics: &Params) -> Statistics {
    template.fresh_statistics().with_values(&to_host(statistics))
}

fn from_host(values: BTreeMap<String, TensorData>) -> Params {
    let array = |data: TensorData| {
        let shape = data.shape().to_vec();
        Array::new(shape, data.try_into_vec::<f32>().expect("networks give 32-bit floats"))
    };
    values.into_iter().map(|(path, data)| (path, array(data))).collect()
}

fn to_host(params: &Params) -> BTreeMap<String, TensorData> {
    params.iter().map(|(path, array)| (path.to_owned(), TensorData::new(array.values.to_vec(), array.shape.clone()))).collect()
}
