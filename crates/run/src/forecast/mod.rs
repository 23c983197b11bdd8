//! What an experiment will take, before it is begun: seconds from what was measured, bytes on disk from the states that it keeps (`run::Disk`).
//!
//! On the CPU the time of a run is nearly all in batches: how many there are of which kind is counted from what the method wants its clients to do, and how long one takes
//! is measured once for every network, kind of data and size of batch, on one thread. On a GPU a batch of one client says little of a whole cohort's: there
//! multiply-adds are counted, and how many of them a device does in a second is known from rounds that were carried out, here or elsewhere ([`Rates`]). Where the data is not available,
//! samples of the same shape stand in.
//!
//! # Layout
//! - this file: from experiments to forecasts; `outlook`: memory and bytes on the network as well
//! - `effort`: what work there is; `pace`: how long a piece of it takes on the CPU
//! - `work`: how much is computed; `rates`: how fast devices compute
mod effort;
mod outlook;
mod pace;
mod rates;
mod work;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use fedeq_core::{ClientTask, Plan, Result, Trains};
use fedeq_data::Dataset;
use fedeq_data::source::Source;

use crate::experiment::{Device, DeviceKind, Experiment, Precision, Prepared};
use crate::present::require_present;
use crate::run::{Disk, RunFolder, Silent, launch};
use effort::Effort;
pub use outlook::{Outlook, RoundBytes};
use pace::{Pace, Stopwatch};
pub use rates::{MeasuredBy, Rate, Rates};
use rates::{device_name, gpu_name, is_gpu};
use work::Work;

/// Forecasts experiments; what they have in common is loaded and measured once.
#[derive(Default)]
pub struct Forecaster {
    data: Vec<(DataKey, Data)>,
    paces: BTreeMap<String, Pace>,
    stopwatch: Stopwatch,
    /// What was recorded here.
    recorded: Rates,
    /// What comes with the program.
    committed: Rates,
}

/// What an experiment will take, roughly.
#[derive(Clone, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of training and evaluation.
    pub seconds: f64,
    /// How these are known.
    pub basis: Basis,
    /// Bytes of its run folder.
    pub disk: Disk,
    /// Whether its data is not available, so that others of the same shape stood in.
    pub is_stand_in: bool,
}

/// How it is known what an experiment takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Basis {
    /// This machine has run it with another seed.
    OtherSeeds,
    /// One batch was measured on this CPU.
    Batch,
    /// A device was so fast before.
    Rate {
        /// Which device.
        device: String,
        /// What it was measured by.
        by: MeasuredBy,
        /// Whether with this network on this data.
        is_own_network: bool,
    },
}

impl Basis {
    /// The device whose rate it is.
    pub fn device(&self) -> Option<&str> {
        match self {
            Self::Rate { device, .. } => Some(device),
            Self::OtherSeeds | Self::Batch => None,
        }
    }

    /// Whether it gives the least time that is possible: kernels were measured, and no rounds.
    pub fn is_least(&self) -> bool {
        matches!(self, Self::Rate { by: MeasuredBy::Kernels, .. })
    }
}

impl fmt::Display for Basis {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherSeeds => formatter.write_str("other seeds"),
            Self::Batch => formatter.write_str("a batch"),
            Self::Rate { device, by, is_own_network } => {
                let by = if *by == MeasuredBy::Rounds { "rounds" } else { "kernels" };
                write!(formatter, "{by}{} on {device}", if *is_own_network { "" } else { " of other networks" })
            }
        }
    }
}

/// The source, its folder and how often each sample is there.
type DataKey = (Source, PathBuf, Option<usize>);

#[derive(Clone)]
struct Data {
    dataset: Arc<Dataset>,
    is_stand_in: bool,
}

impl Forecaster {
    /// One that knows the rates that come with the program, and others that were recorded.
    pub fn new(recorded: Rates) -> Result<Self> {
        Ok(Self { recorded, committed: Rates::committed()?, ..Self::default() })
    }

    /// What an experiment will take on its device. A GPU that was not measured, or that is not there, is taken for one that was.
    pub fn forecast(&mut self, experiment: &Experiment) -> Result<Forecast> {
        let Data { dataset, is_stand_in } = self.data(experiment)?;
        let prepared = experiment.prepare_from(|| Ok(dataset))?;
        let (seconds, basis) = match experiment.engine.place()? {
            Device::Cpu => self.on_cpu(&prepared)?,
            Device::Cuda(_) => self.on_gpu(&prepared, gpu_name(&experiment.engine))?,
        };
        Ok(Forecast { seconds, basis, disk: Disk::of(&prepared), is_stand_in })
    }

    /// Refuses an experiment that cannot be carried out on its device, before anything is measured.
    pub fn check(&mut self, experiment: &Experiment) -> Result<()> {
        let Data { dataset, .. } = self.data(experiment)?;
        experiment.prepare_from(|| Ok(dataset)).map(drop)
    }

    fn on_cpu(&mut self, prepared: &Prepared) -> Result<(f64, Basis)> {
        let device = device_name(&prepared.experiment.engine);
        let recorded = self.recorded.only(|name| name == device);
        if let Some(fitting) = recorded.fitting(Some(&device), prepared).filter(|fitting| fitting.is_own_network) {
            let basis = Basis::Rate { device, by: fitting.rate.by, is_own_network: true };
            return Ok((fitting.rate.seconds(&Work::of(prepared)?), basis));
        }
        let efforts = Efforts::of(prepared);
        let pace = self.pace(prepared, &efforts)?;
        Ok((efforts.seconds(prepared, &pace)?, Basis::Batch))
    }

    fn on_gpu(&mut self, prepared: &Prepared, device: Option<String>) -> Result<(f64, Basis)> {
        let known = self.recorded.only(is_gpu).before(&self.committed.only(is_gpu));
        let kind = prepared.experiment.engine.kind();
        // Of another card at least the precision is the same, where one is known.
        let alike =
            known.only(|name| device.as_deref().map_or_else(|| DeviceKind::of_description(name) == kind, |own| name == own));
        let known = if alike.is_empty() { known } else { alike };
        let fitting = known.fitting(device.as_deref(), prepared);
        let fitting =
            fitting.ok_or_else(|| fedeq_core::Error::invalid("no GPU was ever measured", "measure one with `--measure`"))?;
        let basis =
            Basis::Rate { device: fitting.rate.device.clone(), by: fitting.rate.by, is_own_network: fitting.is_own_network };
        Ok((fitting.rate.seconds(&Work::of(prepared)?), basis))
    }

    /// The GPUs that rates are known of.
    pub fn gpus(&self) -> Vec<String> {
        let mut names: Vec<String> = self.recorded.gpus().into_iter().chain(self.committed.gpus()).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        names
    }

    /// What the same experiment would take on one of [these](Self::gpus); nothing if it cannot be computed there.
    pub fn seconds_on(&mut self, experiment: &Experiment, gpu: &str) -> Option<(f64, MeasuredBy)> {
        let mut moved = experiment.clone();
        moved.engine.set_device(Device::Cuda(0));
        let is_exact = DeviceKind::of_description(gpu) == DeviceKind::Cuda(Precision::Exact);
        moved.engine.precision = is_exact.then_some(Precision::Exact);
        let Data { dataset, .. } = self.data(&moved).ok()?;
        let prepared = moved.prepare_from(|| Ok(dataset)).ok()?;
        self.on_gpu(&prepared, Some(gpu.to_owned())).ok().map(|(seconds, basis)| {
            let by = if basis.is_least() { MeasuredBy::Kernels } else { MeasuredBy::Rounds };
            (seconds, by)
        })
    }

    /// Carries out two rounds of an experiment in a folder that does not exist yet, and records how fast that was. Its data must be available.
    pub fn measure(&mut self, experiment: &Experiment, folder: &Path, stops: &(dyn Fn() -> bool + Sync)) -> Result<()> {
        let mut short = experiment.clone();
        (short.plan.rounds, short.plan.evaluate_every) = (2, 2);
        let prepared = short.prepare()?;
        launch(&short, folder, &mut Silent, stops)?;
        let timings = RunFolder::open(folder)?.timings()?;
        self.recorded.note(&prepared, &timings, 1)
    }

    /// All that was recorded here.
    pub fn recorded(&self) -> &Rates {
        &self.recorded
    }

    /// How long the pieces of this work take; only those that were not asked for yet are measured.
    fn pace(&mut self, prepared: &Prepared, efforts: &Efforts) -> Result<Pace> {
        let pace = self.paces.entry(pace_key(prepared)).or_default();
        self.stopwatch.complete(pace, prepared, &efforts.trained())?;
        Ok(*pace)
    }

    fn data(&mut self, experiment: &Experiment) -> Result<Data> {
        let config = &experiment.data;
        let key = (config.source.clone(), config.folder.clone(), config.copies.map(|copies| copies.get()));
        if let Some((_, data)) = self.data.iter().find(|(known, _)| *known == key) {
            return Ok(data.clone());
        }
        let data = match require_present(&config.source, &config.folder) {
            Ok(()) => Data { dataset: Arc::new(experiment.load()?), is_stand_in: false },
            Err(missing) => {
                let dataset = config.source.stand_in().ok_or(missing)?;
                Data { dataset: Arc::new(dataset), is_stand_in: true }
            }
        };
        self.data.push((key, data.clone()));
        Ok(data)
    }
}

/// All that a batch's time depends on.
fn pace_key(prepared: &Prepared) -> String {
    let Experiment { data, model, training, .. } = &prepared.experiment;
    let (size, start, projection) = (pace::batch_size(prepared), training.warm_start, training.projection);
    format!("{:?} {model:?} {size} {start:?} {projection:?}", data.source)
}

/// What a client does in a round, when it is evaluated, and at the end.
struct Efforts {
    train: Effort,
    evaluate: Effort,
    finish: Effort,
}

impl Efforts {
    fn of(prepared: &Prepared) -> Self {
        let evaluate = if prepared.experiment.plan.measure_theory { ClientTask::Measure } else { ClientTask::Evaluate };
        let [train, evaluate, finish] = [ClientTask::Train, evaluate, ClientTask::Finish].map(|task| Effort::of(prepared, task));
        Self { train, evaluate, finish }
    }

    /// All that is trained in one of them.
    fn trained(&self) -> Vec<Trains> {
        [&self.train, &self.evaluate, &self.finish]
            .into_iter()
            .flat_map(|effort| &effort.trained)
            .map(|(trains, _)| *trains)
            .collect()
    }

    fn seconds(&self, prepared: &Prepared, pace: &Pace) -> Result<f64> {
        let plan = &prepared.experiment.plan;
        let clients = prepared.splits.clients.len();
        let cohort = prepared.cohort()?;
        let batches: usize = (0..clients).map(|client| prepared.batches(client)).sum();
        let mean_batches = batches as f64 / clients.max(1) as f64;
        let train = self.train.seconds(pace, mean_batches, [0.0; 3]);
        let evaluated = evaluate_all(prepared, &self.evaluate, pace);
        let finish = self.finish.seconds(pace, mean_batches, [0.0; 3]) * clients as f64;
        let (few, all) = (workers(prepared).min(cohort) as f64, workers(prepared).min(clients) as f64);
        Ok(plan.rounds as f64 * cohort as f64 * train / few + (evaluations(plan) * evaluated + finish) / all)
    }
}

/// How often all clients are evaluated.
fn evaluations(plan: &Plan) -> f64 {
    let every = plan.evaluate_every.max(1).min(plan.rounds.max(1));
    if plan.evaluate_every == 0 { 1.0 } else { plan.rounds.div_ceil(every) as f64 }
}

/// Seconds of one evaluation of all clients, one after the other.
fn evaluate_all(prepared: &Prepared, effort: &Effort, pace: &Pace) -> f64 {
    let one = |client: usize| {
        effort.seconds(pace, prepared.batches(client) as f64, prepared.samples_of(client).map(|count| count as f64))
    };
    (0..prepared.splits.clients.len()).map(one).sum()
}

fn workers(prepared: &Prepared) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    prepared.experiment.engine.workers.map_or_else(cores, |workers| workers.get())
}
