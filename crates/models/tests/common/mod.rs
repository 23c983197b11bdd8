//! Numbers that depend on nothing but a name, the same as in `golden/generate.py`.
#![allow(dead_code)] // Every test file uses some of it.
use std::collections::BTreeMap;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use fedeq_models::{Input, InputShape, ModelConfig, Moments, Network, Statistics, Task};

/// Numbers in [0, 1) with 24 bits: splitmix64 started at the FNV-1a hash of the name.
pub(crate) fn uniform(name: &str, count: usize) -> Vec<f64> {
    let hash = |state: u64, byte: u8| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let seed = name.bytes().fold(0xcbf2_9ce4_8422_2325, hash);
    (1..=count as u64).map(|index| split_mix(seed.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))).collect()
}

fn split_mix(x: u64) -> f64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((x ^ (x >> 31)) >> 40) as f64 / f64::from(1 << 24)
}

/// Numbers in `[-amplitude, amplitude)` around `centre`.
fn around(centre: f64, name: &str, count: usize, amplitude: f64) -> Vec<f32> {
    uniform(name, count).into_iter().map(|u| (centre + f64::from(((2.0 * u - 1.0) * amplitude) as f32)) as f32).collect()
}

/// The network with every parameter replaced by numbers that depend on its path; `gain` scales the weights.
pub(crate) fn filled(network: Network, gain: f64) -> Network {
    let mut values = BTreeMap::new();
    for parameter in network.parameters() {
        let (path, shape, count) = (&parameter.path, &parameter.shape, parameter.count());
        let numbers = match path.rsplit('.').next() {
            Some("scale") => around(1.0, path, count, 0.2),
            Some("offset" | "bias") => around(0.0, path, count, 0.2),
            _ => around(0.0, path, count, gain / (fan_in(shape) as f64).sqrt()),
        };
        values.insert(path.clone(), TensorData::new(numbers, shape.clone()));
    }
    network.with_values(&values)
}

fn fan_in(shape: &[usize]) -> usize {
    match shape {
        [_, inputs, height, width] => inputs * height * width,
        [inputs, ..] => *inputs,
        [] => 1,
    }
}

/// Running statistics after three steps, with values that depend on their path.
pub(crate) fn filled_statistics(network: &Network) -> Statistics {
    let mut statistics = Statistics::default();
    for (path, fresh) in network.fresh_statistics().iter() {
        let channels = fresh.mean.dims()[0];
        let tensor = |centre, name, amplitude| {
            let values = around(centre, &format!("{path}.{name}"), channels, amplitude);
            Tensor::from_data(TensorData::new(values, [channels]), &fresh.mean.device())
        };
        let moments = Moments { mean: tensor(0.0, "mean", 0.2), variance: tensor(1.0, "variance", 0.5), steps: 3.0 };
        statistics.insert(path, moments);
    }
    statistics
}

/// Three samples of a task; of sequences, the second ends in padding and the third is nothing else.
pub(crate) fn batch(task: &Task, device: &Device) -> Input {
    let numbers = |count| uniform("input", count).into_iter().map(|u| u as f32).collect::<Vec<f32>>();
    match task.input {
        InputShape::Image { height, width, channels } => {
            let data = TensorData::new(numbers(3 * height * width * channels), [3, height, width, channels]);
            Input::Image(Tensor::from_data(data, device))
        }
        InputShape::Vector { width } => Input::Vector(Tensor::from_data(TensorData::new(numbers(3 * width), [3, width]), device)),
        InputShape::Symbols { length, vocabulary } => {
            let symbol = |u: f64| 1 + (u * (vocabulary - 1) as f64) as i64;
            let mut ids: Vec<i64> = uniform("input", 3 * length).into_iter().map(symbol).collect();
            ids[2 * length - 2..].fill(0);
            Input::Symbols(Tensor::<2, Int>::from_data(TensorData::new(ids, [3, length]), device))
        }
    }
}

/// A network by name with its default options.
pub(crate) fn build(name: &str, task: &Task, device: &Device, seed: u64) -> Network {
    name.parse::<ModelConfig>().expect("a known name").build(task, device, seed).expect("a fitting task")
}

/// The entries of a tensor on the host.
pub(crate) fn host<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    tensor.to_data().iter::<f64>().collect()
}

/// A small task that suits each kind of network.
pub(crate) fn task_for(name: &str) -> Task {
    match name {
        "linear" | "mlp" | "deq-mlp" => Task::vector(6, 3),
        name if name.contains("transformer") => Task::next_symbol(5, 9),
        _ => Task::image(8, 8, 1, 10),
    }
}

/// The network in double precision.
pub(crate) fn doubled(network: Network) -> Network {
    struct Double;
    impl ModuleMapper for Double {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let grad = param.is_require_grad();
            param.map(|tensor| tensor.cast(DType::F64).detach().set_require_grad(grad))
        }
    }
    network.map(&mut Double)
}

/// The statistics in double precision.
pub(crate) fn doubled_statistics(statistics: &Statistics) -> Statistics {
    let mut doubled = Statistics::default();
    for (path, Moments { mean, variance, steps }) in statistics.iter() {
        let [mean, variance] = [mean, variance].map(|tensor| tensor.clone().cast(DType::F64));
        doubled.insert(path, Moments { mean, variance, steps: *steps });
    }
    doubled
}

/// The input in double precision.
pub(crate) fn doubled_input(input: Input) -> Input {
    match input {
        Input::Image(x) => Input::Image(x.cast(DType::F64)),
        Input::Vector(x) => Input::Vector(x.cast(DType::F64)),
        Input::Symbols(x) => Input::Symbols(x),
    }
}
