//! The engine that a run's device asks for.
use fedeq_core::{ClientByClient, Engine, Error, Result, Workers};
use serde::{Deserialize, Serialize};

use crate::experiment::{Device, Experiment, Prepared};

/// Where a run is computed, as far as it is not the experiment that says so.
#[derive(Clone)]
pub(super) struct Place {
    workers: Workers,
    /// Runs that share the machine and its GPU, this one included.
    jobs: usize,
}

/// An engine for the CPU or for a GPU.
pub(super) enum RunEngine<'a> {
    Cpu(ClientByClient<'a>),
}

/// What a GPU held and did in a round and the evaluation after it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Bytes of its memory that the run holds.
    pub memory: u64,
    /// The most it has held so far.
    pub peak_memory: u64,
    /// The share of the time in which it was at work, from 0 to 1.
    pub utilisation: f64,
}

impl DeviceUse {
    /// Both together, where both are: of memory the most counts, and of the utilisation what a run of so many seconds adds to one of others.
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

impl Place {
    /// What an experiment asks for, with so many runs side by side.
    pub(super) fn of(experiment: &Experiment, jobs: usize) -> Result<Self> {
        let wanted = experiment.engine.workers.map_or(0, |workers| workers.get());
        let all = Workers::new(wanted)?;
        // Runs side by side share the cores, unless somebody says how many each gets.
        let workers = if wanted > 0 || jobs < 2 { all } else { Workers::new((all.threads() / jobs).max(1))? };
        Ok(Self { workers, jobs: jobs.max(1) })
    }

    /// The engine for a prepared experiment.
    pub(super) fn engine<'a>(&self, prepared: &'a Prepared) -> Result<RunEngine<'a>> {
        match prepared.experiment.engine.place()? {
            Device::Cpu => Ok(RunEngine::Cpu(ClientByClient::new(prepared, self.workers.clone()))),
            Device::Cuda(_) => Err(Error::invalid("this version cannot train on a GPU yet", "choose `--device cpu`")),
        }
    }

    /// The threads that clients are worked on by, where it is the CPU.
    pub(super) fn workers(&self) -> &Workers {
        &self.workers
    }

    /// Whether the process does nothing else beside this run.
    pub(super) fn is_alone(&self) -> bool {
        self.jobs < 2
    }
}

impl RunEngine<'_> {
    /// What carries out local work.
    pub(super) fn engine(&self) -> &dyn Engine {
        match self {
            Self::Cpu(engine) => engine,
        }
    }

    /// What its GPU holds, and what it did since this was last asked; nothing on the CPU.
    pub(super) fn device_use(&self) -> Option<DeviceUse> {
        match self {
            Self::Cpu(_) => None,
        }
    }
}
