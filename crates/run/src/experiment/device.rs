//! Devices by name.
use burn::tensor::Device;
use fedeq_core::{Error, Result};

/// The names that were compiled in.
const NAMES: &[&str] = &[
    "cpu",
    #[cfg(feature = "cuda")]
    "cuda",
    #[cfg(feature = "cuda")]
    "cuda:N",
    #[cfg(feature = "wgpu")]
    "wgpu",
];

/// The devices of these names, separated by commas, ready for training; there is at least one.
pub(super) fn named(names: &str) -> Result<Vec<Device>> {
    let names: Vec<&str> = names.split(',').map(str::trim).collect();
    let is_repeated = |(at, name): (usize, &&str)| names[..at].contains(name);
    if let Some(name) = names.iter().enumerate().find(|place| is_repeated(*place)).map(|(_, name)| name) {
        return Err(Error::invalid(format!("`engine.device` names `{name}` twice"), "name every device once"));
    }
    names.into_iter().map(|name| Ok(one(name)?.autodiff())).collect()
}

fn one(name: &str) -> Result<Device> {
    match name.split_once(':') {
        None if name == "cpu" => Ok(Device::flex()),
        #[cfg(feature = "cuda")]
        None if name == "cuda" => Ok(Device::cuda(0)),
        #[cfg(feature = "cuda")]
        Some(("cuda", index)) => index.parse::<usize>().map(Device::cuda).map_err(|_| unknown(name)),
        #[cfg(feature = "wgpu")]
        None if name == "wgpu" => Ok(Device::wgpu(burn::tensor::DeviceKind::DefaultDevice)),
        _ => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> Error {
    let problem = format!("`engine.device` cannot be `{name}`: this program was built for {}", NAMES.join(", "));
    Error::invalid(problem, "choose one of these, or build it with `--features cuda` or `--features wgpu`")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_device_is_named_once() {
        assert_eq!(named("cpu").expect("always there").len(), 1);
        let problem = |names: &str| named(names).expect_err("refused").to_string();
        assert_eq!(problem("cpu, cpu"), "`engine.device` names `cpu` twice");
        assert!(problem("cpu,abacus").starts_with("`engine.device` cannot be `abacus`"));
        assert!(problem("").starts_with("`engine.device` cannot be ``"));
    }
}
