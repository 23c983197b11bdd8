//! The engine that a run's device asks for.
use std::collections::BTreeMap;

use fedeq_core::{ClientByClient, Engine, Result, Workers};
use fedeq_cuda::{CudaEngine, CudaOptions, DeviceUsage};
use serde::{Deserialize, Serialize};

use crate::experiment::{Device, EngineSettings, Experiment, Prepared};

/// Where a run is computed.
pub(super) struct Place {
    workers: Workers,
    /// The bytes of a GPU's memory that it may use; what the engine takes by itself if left out.
    gpu_memory: Option<u64>,
    is_alone: bool,
}

/// What each of several runs side by side gets of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Share {
    jobs: usize,
    /// By the number of the GPU, in bytes.
    gpu_memory: BTreeMap<usize, u64>,
}

/// An engine for the CPU or for a GPU.
pub(super) enum RunEngine<'a> {
    Cpu(ClientByClient<'a>),
    Cuda(Box<CudaEngine>),
}

/// What a GPU held and did in a round and the evaluation after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes of its memory that the run holds.
    pub memory: u64,
    /// The most it has held so far.
    pub peak_memory: u64,
    /// The share of the time in which clients were at work on it, from 0 to 1.
    pub utilisation: f64,
}

impl DeviceUse {
    /// What was used in some seconds, and in later ones: of memory the most counts, and utilisations are weighed by their seconds.
    pub(super) fn joined(before: Option<Self>, spent: f64, later: Option<Self>, seconds: f64) -> Option<Self> {
        let (Some(before), Some(later)) = (before, later) else { return later.or(before) };
        let share = if spent + seconds > 0.0 { seconds / (spent + seconds) } else { 0.0 };
        Some(Self {
            memory: later.memory,
            peak_memory: before.peak_memory.max(later.peak_memory),
            utilisation: before.utilisation + share * (later.utilisation - before.utilisation),
        })
    }
}

impl From<DeviceUsage> for DeviceUse {
    fn from(usage: DeviceUsage) -> Self {
        Self { memory: usage.bytes, peak_memory: usage.peak, utilisation: usage.busy }
    }
}

/// The share of a GPU's free memory that several runs divide among them: what they need beside it, such as the driver's own, has room.
const DIVIDED: f64 = 0.8;

impl Share {
    /// Divides the cores, and the memory that is free on GPUs now, among so many runs at a time.
    pub fn of<'a>(jobs: usize, runs: impl Iterator<Item = &'a EngineSettings>) -> Result<Self> {
        let mut gpu_memory = BTreeMap::new();
        for engine in runs {
            if let Device::Cuda(index) = engine.place()?
                && !gpu_memory.contains_key(&index)
            {
                let free = engine.gpu()?.map_or(0, |gpu| gpu.free);
                gpu_memory.insert(index, (DIVIDED * free as f64) as u64 / jobs.max(1) as u64);
            }
        }
        Ok(Self { jobs: jobs.max(1), gpu_memory })
    }
}

impl Place {
    /// What an experiment asks for, all by itself.
    pub(super) fn of(experiment: &Experiment) -> Result<Self> {
        let engine = &experiment.engine;
        let gpu_memory = engine.device_memory_mb.map(|megabytes| (megabytes as u64).saturating_mul(1_000_000));
        Ok(Self { workers: Workers::new(engine.workers.map_or(0, |workers| workers.get()))?, gpu_memory, is_alone: true })
    }

    /// The same beside other runs. Whatever the experiment itself says stands.
    pub(super) fn shared(self, experiment: &Experiment, share: &Share) -> Result<Self> {
        let engine = &experiment.engine;
        let workers = match engine.workers {
            Some(_) => self.workers,
            None => Workers::new((self.workers.threads() / share.jobs).max(1))?,
        };
        let gpu_memory = match engine.place()? {
            Device::Cuda(index) => self.gpu_memory.or_else(|| share.gpu_memory.get(&index).copied()),
            Device::Cpu => None,
        };
        Ok(Self { workers, gpu_memory, is_alone: share.jobs < 2 })
    }

    /// The same in a process that does other things too, so that its memory is not the run's.
    pub(super) fn not_alone(self) -> Self {
        Self { is_alone: false, ..self }
    }

    /// The engine for a prepared experiment.
    pub(super) fn engine<'a>(&self, prepared: &'a Prepared) -> Result<RunEngine<'a>> {
        let Experiment { engine, training, .. } = &prepared.experiment;
        match engine.place()? {
            Device::Cpu => Ok(RunEngine::Cpu(ClientByClient::new(prepared, self.workers.clone()))),
            Device::Cuda(device) => {
                let options = CudaOptions { device, precision: engine.precision().into(), memory_budget: self.gpu_memory };
                let engine = CudaEngine::new(prepared.network.graph(), prepared.client_data(), training, &options)?;
                Ok(RunEngine::Cuda(Box::new(engine)))
            }
        }
    }

    /// The threads of the CPU.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Whether the process does nothing else beside this run.
    pub(super) fn is_alone(&self) -> bool {
        self.is_alone
    }
}

impl RunEngine<'_> {
    /// What carries out local work.
    pub(super) fn engine(&self) -> &dyn Engine {
        match self {
            Self::Cpu(engine) => engine,
            Self::Cuda(engine) => engine.as_ref(),
        }
    }

    /// What its GPU holds, and what it did since this was last asked; nothing on the CPU.
    pub(super) fn device_use(&self) -> Option<DeviceUse> {
        match self {
            Self::Cpu(_) => None,
            Self::Cuda(engine) => Some(engine.usage().into()),
        }
    }

    /// The bytes of clients' states for which there is room beside the memory of the machine.
    pub(super) fn state_memory(&self) -> u64 {
        match self {
            Self::Cpu(_) => 0,
            Self::Cuda(engine) => engine.state_budget(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(settings: &[&str]) -> Experiment {
        let settings: Vec<_> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        Experiment::read(None, &settings).expect("an experiment")
    }

    fn threads(settings: &[&str], jobs: usize) -> usize {
        let experiment = experiment(settings);
        let share = Share::of(jobs, std::iter::once(&experiment.engine)).expect("no GPU is asked for");
        Place::of(&experiment).and_then(|place| place.shared(&experiment, &share)).expect("threads").workers().threads()
    }

    #[test]
    fn runs_side_by_side_share_the_cores_unless_each_says_what_it_wants() {
        let cores = rayon::current_num_threads();
        assert_eq!((threads(&[], 1), threads(&[], cores), threads(&[], 100 * cores)), (cores, 1, 1));
        assert_eq!(threads(&["engine.workers=3"], 100), 3);
    }

    #[test]
    fn runs_side_by_side_share_a_card_unless_each_says_what_it_wants() {
        let share = Share { jobs: 4, gpu_memory: BTreeMap::from([(0, 7)]) };
        let memory = |settings: &[&str]| {
            let experiment = experiment(settings);
            Place::of(&experiment).and_then(|place| place.shared(&experiment, &share)).expect("a place").gpu_memory
        };
        assert_eq!(memory(&["engine.device=cuda"]), Some(7));
        assert_eq!(memory(&["engine.device=cuda", "engine.device_memory_mb=3"]), Some(3_000_000));
        assert_eq!((memory(&[]), memory(&["engine.device=cuda:1"])), (None, None));
    }

    #[test]
    fn utilisations_are_weighed_by_their_seconds() {
        let used = |memory, peak_memory, utilisation| Some(DeviceUse { memory, peak_memory, utilisation });
        assert_eq!(DeviceUse::joined(used(5, 9, 1.0), 3.0, used(6, 6, 0.2), 1.0), used(6, 9, 0.8));
        assert_eq!(DeviceUse::joined(None, 0.0, used(6, 6, 0.2), 1.0), used(6, 6, 0.2));
        assert_eq!(DeviceUse::joined(used(5, 9, 1.0), 3.0, None, 1.0), used(5, 9, 1.0));
    }
}
