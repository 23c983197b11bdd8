//! What clients are computed on: the CPU or a GPU, by name.
use std::fmt;
use std::str::FromStr;

use fedeq_core::{Error, Result};
use fedeq_data::named;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{EngineSettings, Experiment};

/// A device, as `engine.device` names it: `cpu`, `cuda` (the first GPU) or `cuda:1`.
///
/// ```
/// use fedeq_run::experiment::Device;
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
/// assert!("cuda,cpu".parse::<Device>().is_err());
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Device {
    /// The processor.
    Cpu,
    /// The NVIDIA GPU of this number, as the driver counts them.
    Cuda(usize),
}

impl FromStr for Device {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("cpu", _) => Ok(Self::Cpu),
            ("cuda", _) => Ok(Self::Cuda(0)),
            (_, Some(Ok(index))) => Ok(Self::Cuda(index)),
            _ if text.contains(',') => {
                let problem = format!("`engine.device` is `{text}`: a run is computed on one device");
                Err(Error::invalid(problem, "name one; several runs share a GPU with `fedeq sweep --jobs`"))
            }
            _ => Err(Error::invalid(
                format!("`engine.device` cannot be `{text}`"),
                "choose `cpu`, `cuda` or, of several GPUs, `cuda:1`",
            )),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(0) => formatter.write_str("cuda"),
            Self::Cuda(index) => write!(formatter, "cuda:{index}"),
        }
    }
}

named! {
    /// The precision of products on a GPU, as a setting: [`fedeq_cuda::Precision`] as people write it. The CPU always computes in 32 bits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
    pub enum Precision {
        /// 16-bit factors and 32-bit sums in convolutions and matrix products, 32 bits everywhere else.
        #[default]
        Mixed = "mixed",
        /// 32 bits everywhere.
        Exact = "exact",
    }
}

/// All of a device that changes results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind {
    /// Processors of one kind all give the same.
    Cpu,
    /// Cards with this precision.
    Cuda(Precision),
}

impl DeviceKind {
    /// The kind of a device of which people say what it is and, of a GPU, in brackets with which precision: `cuda (mixed)`, `NVIDIA H200 (exact)`, `8 x EPYC`.
    pub fn of_description(text: &str) -> Self {
        let precision = text.rsplit_once(" (").and_then(|(_, rest)| Precision::named(rest.strip_suffix(')')?));
        precision.map_or(Self::Cpu, Self::Cuda)
    }
}

impl fmt::Display for DeviceKind {
    /// `cpu`, `cuda (mixed)` or `cuda (exact)`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cpu => formatter.write_str("cpu"),
            Self::Cuda(precision) => write!(formatter, "cuda ({})", precision.name()),
        }
    }
}

impl From<Precision> for fedeq_cuda::Precision {
    fn from(precision: Precision) -> Self {
        match precision {
            Precision::Mixed => Self::Mixed,
            Precision::Exact => Self::Exact,
        }
    }
}

impl EngineSettings {
    /// The device it asks for.
    pub fn place(&self) -> Result<Device> {
        self.device.parse()
    }

    /// The precision of products on a GPU.
    pub fn precision(&self) -> Precision {
        self.precision.unwrap_or_default()
    }

    /// Asks for another device; what only a GPU understands is forgotten on the CPU.
    pub fn set_device(&mut self, device: Device) {
        self.device = device.to_string();
        if device == Device::Cpu {
            (self.precision, self.device_memory_mb) = (None, None);
        }
    }

    /// All of the device that changes results. Which of several cards it is makes no difference.
    pub fn kind(&self) -> DeviceKind {
        match self.device.split(':').next() {
            Some("cuda") => DeviceKind::Cuda(self.precision()),
            _ => DeviceKind::Cpu,
        }
    }

    /// Refuses what can be refused without looking at the machine.
    pub(crate) fn check_device(&self) -> Result<()> {
        match self.place()? {
            Device::Cuda(_) => Ok(()),
            Device::Cpu => self.check_cpu(),
        }
    }

    fn check_cpu(&self) -> Result<()> {
        let refuse =
            |setting: &str, hint: &str| Err(Error::invalid(format!("`{setting}` does not go with the device `cpu`"), hint));
        if self.precision == Some(Precision::Mixed) {
            return refuse("engine.precision = mixed", "leave it out (the CPU computes in 32 bits), or choose `--device cuda`");
        }
        if self.device_memory_mb.is_some() {
            return refuse(
                "engine.device_memory_mb",
                "leave it out, or choose `--device cuda`; `engine.client_memory_mb` is that of the CPU",
            );
        }
        Ok(())
    }
}

/// Between the devices of a run that was continued on another one.
const THEN: &str = ", then ";

impl Experiment {
    /// Everything it is computed on, in order: `cpu`, `cuda (mixed)`, `cpu, then cuda (mixed)`.
    pub fn devices(&self) -> String {
        let now = self.engine.kind().to_string();
        self.engine.earlier_devices.iter().map(String::as_str).chain([now.as_str()]).collect::<Vec<_>>().join(THEN)
    }

    /// The experiment as it was when it was computed on all [these](Self::devices) so far, the last one being what `engine.device` names.
    pub(crate) fn computed_on(&self, devices: &str) -> Self {
        let mut experiment = self.clone();
        let mut earlier: Vec<String> = devices.split(THEN).map(str::to_owned).collect();
        let last = earlier.pop().unwrap_or_default();
        experiment.engine.earlier_devices = earlier;
        if experiment.engine.kind().to_string() != last {
            let (device, precision) = match DeviceKind::of_description(&last) {
                DeviceKind::Cuda(precision) => ("cuda", Some(precision)),
                DeviceKind::Cpu => (last.as_str(), None),
            };
            (experiment.engine.device, experiment.engine.precision) = (device.into(), precision);
        }
        experiment
    }

    /// Continues on another device than so far, which the experiment remembers: half a run on each is neither's.
    pub(crate) fn move_to(&mut self, device: Device, precision: Option<Precision>) {
        let before = self.engine.kind();
        self.engine.precision = precision;
        self.engine.set_device(device);
        if self.engine.kind() != before {
            self.engine.earlier_devices.push(before.to_string());
        }
    }

    /// Refuses a new run that says it had begun elsewhere.
    pub(crate) fn ensure_not_moved(&self) -> Result<()> {
        if self.engine.earlier_devices.is_empty() {
            return Ok(());
        }
        let problem = "`engine.earlier_devices` tells what a run was computed on before it was continued elsewhere";
        Err(Error::invalid(problem, "leave it out: this run has not begun yet"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(device: &str, precision: Option<Precision>) -> EngineSettings {
        EngineSettings { device: device.into(), precision, ..EngineSettings::default() }
    }

    #[test]
    fn a_device_has_one_of_three_forms() {
        let device = |text: &str| text.parse::<Device>().map_err(|error| error.to_string());
        assert_eq!(device("cpu"), Ok(Device::Cpu));
        assert_eq!(
            (device("cuda"), device("cuda:0"), device("cuda:12")),
            (Ok(Device::Cuda(0)), Ok(Device::Cuda(0)), Ok(Device::Cuda(12)))
        );
        assert!(device("cpu,cpu").is_err_and(|problem| problem.contains("one device")));
        for wrong in ["", "abacus", "cuda:", "cuda:x", "cuda:-1", "cuda1", "CPU", " cpu"] {
            assert_eq!(device(wrong), Err(format!("`engine.device` cannot be `{wrong}`")));
        }
    }

    #[test]
    fn what_only_a_gpu_understands_is_refused_on_the_cpu() {
        let problem = |engine: EngineSettings| engine.check_device().expect_err("refused").to_string();
        assert!(
            problem(on("cpu", Some(Precision::Mixed))).contains("`engine.precision = mixed` does not go with the device `cpu`")
        );
        assert!(problem(EngineSettings { device_memory_mb: Some(7), ..on("cpu", None) }).contains("`engine.device_memory_mb`"));
        assert!(on("cpu", Some(Precision::Exact)).check_device().is_ok(), "which is what it does");
        assert!(EngineSettings { device_memory_mb: Some(7), ..on("cuda", Some(Precision::Mixed)) }.check_device().is_ok());
    }

    #[test]
    fn a_run_that_moved_remembers_where_it_was() {
        let mut experiment = Experiment::read(None, &[]).expect("the usual one");
        let begun = experiment.clone();
        experiment.move_to(Device::Cuda(1), None);
        assert_eq!((experiment.devices().as_str(), experiment.engine.device.as_str()), ("cpu, then cuda (mixed)", "cuda:1"));
        experiment.move_to(Device::Cuda(0), None);
        assert_eq!(experiment.devices(), "cpu, then cuda (mixed)", "another card of the same kind is no move");
        assert_ne!(experiment.identity().expect("an identity"), begun.identity().expect("an identity"));
        let earlier = experiment.computed_on("cpu");
        assert_eq!(earlier.identity().expect("an identity"), begun.identity().expect("an identity"));
        experiment.move_to(Device::Cpu, None);
        assert_eq!(experiment.devices(), "cpu, then cuda (mixed), then cpu");
        let again = experiment.computed_on("cpu, then cuda (mixed)");
        assert_eq!((again.devices().as_str(), again.engine.device.as_str()), ("cpu, then cuda (mixed)", "cuda"));
        assert!(experiment.ensure_not_moved().is_err() && begun.ensure_not_moved().is_ok());
    }
}
