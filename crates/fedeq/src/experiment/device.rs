//! Devices by name.
use burn::tensor::Device;
use fedeq_core::{Error, Result};

/// The names that were compiled in.
const NAMES: &[&str] = &[
    "cpu",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "wgpu")]
    "wgpu",
];

/// The device of that name, ready for training.
pub(super) fn named(name: &str) -> Result<Device> {
    let device = match name {
        "cpu" => Device::flex(),
        #[cfg(feature = "cuda")]
        "cuda" => Device::cuda(0),
        #[cfg(feature = "wgpu")]
        "wgpu" => Device::wgpu(burn::tensor::DeviceKind::DefaultDevice),
        _ => return Err(unknown(name)),
    };
    Ok(device.autodiff())
}

fn unknown(name: &str) -> Error {
    let problem = format!("`engine.device` cannot be `{name}`: this program was built for {}", NAMES.join(", "));
    Error::invalid(problem, "choose one of these, or build it with `--features cuda` or `--features wgpu`")
}
