//! What this machine can compute on: its processor and its GPUs.
use std::fs;

use fedeq_core::{Error, Result};
use fedeq_cpu::InstructionSet;
use fedeq_cuda::DeviceInfo;
use serde::{Deserialize, Serialize};

use crate::experiment::{Device, EngineSettings};

/// All that this machine can compute on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MachineInfo {
    /// The processor.
    pub cpu: Cpu,
    /// The GPUs, in the order of their numbers.
    pub gpus: Vec<Gpu>,
    /// Why there is no GPU, and what to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_gpu: Option<Missing>,
}

/// A processor.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cpu {
    /// What it is called, where the system tells.
    pub name: Option<String>,
    /// The cores that the program may use, where the system tells.
    pub cores: Option<usize>,
    /// The vector instructions that are used.
    pub instructions: &'static str,
    /// The machine's memory in bytes, where the system tells.
    pub memory: Option<u64>,
    /// The part of it that is available.
    pub free: Option<u64>,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gpu {
    /// What `engine.device` calls it.
    pub device: String,
    /// What it is called.
    pub name: String,
    /// Its memory in bytes.
    pub memory: u64,
    /// The part of it that is not in use at present.
    pub free: u64,
    /// Its compute capability, such as `9.0`.
    pub capability: String,
    /// The newest CUDA version that its driver knows, such as `12.4`.
    pub driver: String,
}

/// Why there is no GPU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// What is missing.
    pub problem: String,
    /// What to do about it.
    pub hint: String,
}

impl MachineInfo {
    /// This one.
    pub fn here() -> Self {
        let (gpus, no_gpu) = match gpus() {
            Ok(gpus) => (gpus.into_iter().map(Gpu::from).collect(), None),
            Err(error) => (Vec::new(), Some(Missing { problem: error.to_string(), hint: error.hint() })),
        };
        Self { cpu: Cpu::here(), gpus, no_gpu }
    }
}

impl Cpu {
    fn here() -> Self {
        Self {
            name: processor(),
            cores: cores(),
            instructions: InstructionSet::best().name(),
            memory: memory("MemTotal:"),
            free: memory("MemAvailable:"),
        }
    }
}

/// The processor's name, as Linux tells it.
pub(crate) fn processor() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    line.split_once(':').map(|(_, name)| name.trim().to_owned())
}

/// The cores that the program may use.
pub(crate) fn cores() -> Option<usize> {
    std::thread::available_parallelism().ok().map(|cores| cores.get())
}

/// The machine's memory in bytes, where the system tells.
pub fn total_memory() -> Option<u64> {
    memory("MemTotal:")
}

/// A line of Linux's account of its memory, in bytes.
fn memory(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| 1024 * kibibytes)
}

/// The GPUs of this machine, at least one; an error says why there is none.
fn gpus() -> Result<Vec<DeviceInfo>> {
    let found = fedeq_cuda::devices()?;
    if found.is_empty() {
        return Err(Error::invalid("the NVIDIA driver finds no GPU", "look at `nvidia-smi`"));
    }
    Ok(found)
}

impl From<DeviceInfo> for Gpu {
    fn from(info: DeviceInfo) -> Self {
        let DeviceInfo { index, name, memory, free, capability, driver } = info;
        let version = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        let device = format!("cuda:{index}");
        Self { device, name, memory, free, capability: version(capability), driver: version(driver) }
    }
}

impl EngineSettings {
    /// The GPU that is asked for; nothing where it is the CPU. One that is not there is refused.
    pub fn gpu(&self) -> Result<Option<Gpu>> {
        match self.place()? {
            Device::Cpu => Ok(None),
            Device::Cuda(index) => {
                let known = gpus().map_err(|error| unavailable(&self.device, &error))?;
                let gpu = pick(known, index)?;
                gpu.ensure_usable().map_err(|error| unavailable(&self.device, &error))?;
                Ok(Some(gpu.into()))
            }
        }
    }
}

fn unavailable(device: &str, error: &Error) -> Error {
    Error::invalid(format!("`{device}` cannot be used: {error}"), format!("{}; `--device cpu` needs none", error.hint()))
}

fn pick(mut known: Vec<DeviceInfo>, index: usize) -> Result<DeviceInfo> {
    if index < known.len() {
        return Ok(known.swap_remove(index));
    }
    let names: Vec<String> = known.iter().map(|gpu| format!("`cuda:{}` ({})", gpu.index, gpu.name)).collect();
    Err(Error::invalid(format!("there is no GPU `cuda:{index}`"), format!("choose {}", names.join(" or "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(index: usize) -> DeviceInfo {
        DeviceInfo { index, name: format!("Card {index}"), memory: 8, free: 4, capability: (9, 0), driver: (12, 4) }
    }

    #[test]
    fn a_card_that_is_not_there_is_refused_with_the_names_of_those_that_are() {
        let two = || vec![gpu(0), gpu(1)];
        assert_eq!(pick(two(), 1).expect("the second").name, "Card 1");
        let error = pick(two(), 7).expect_err("there are two");
        assert_eq!(error.to_string(), "there is no GPU `cuda:7`");
        assert_eq!(error.hint(), "choose `cuda:0` (Card 0) or `cuda:1` (Card 1)");
    }

    #[test]
    fn a_card_that_is_too_old_is_refused() {
        let old = DeviceInfo { capability: (7, 5), ..gpu(0) };
        assert_eq!(old.ensure_usable().expect_err("too old").to_string(), "`Card 0` has compute capability 7.5");
        assert!(gpu(0).ensure_usable().is_ok());
    }

    #[test]
    fn a_machine_says_what_it_has_or_what_is_missing() {
        let MachineInfo { cpu, gpus, no_gpu } = MachineInfo::here();
        assert!(cpu.cores.is_none_or(|cores| cores > 0) && !cpu.instructions.is_empty());
        assert_eq!(gpus.is_empty(), no_gpu.is_some());
        assert!(no_gpu.is_none_or(|missing| !missing.problem.is_empty() && !missing.hint.is_empty()));
    }

    #[test]
    fn the_cpu_asks_for_no_gpu() {
        assert_eq!(EngineSettings::default().gpu().expect("nothing is missing"), None);
    }
}
