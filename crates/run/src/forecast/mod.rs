//! What an experiment will take, before it is begun: seconds from a batch that is measured, bytes on disk from the states that it keeps (`run::Disk`).
//!
//! The time of a run is nearly all in batches: how many there are of which kind is counted from what the method wants its clients to do, and how long one takes
//! is measured once for every network, kind of data and size of batch, on one thread. Where the data is not available, samples of the same shape stand in.
//!
//! # Layout
//! - this file: from experiments to forecasts
//! - `effort`: what work there is; `pace`: how long a piece of it takes
mod effort;
mod pace;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use fedeq_core::{ClientTask, Result};
use fedeq_data::Dataset;
use fedeq_data::source::Source;

use crate::experiment::{Device, Experiment, Prepared};
use crate::present::require_present;
use crate::run::Disk;
use effort::Effort;
use pace::Pace;

/// Forecasts experiments; what they have in common is loaded and measured once.
#[derive(Default)]
pub struct Forecaster {
    data: Vec<(DataKey, Data)>,
    paces: BTreeMap<String, Pace>,
}

/// What an experiment will take, roughly.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Forecast {
    /// Seconds of training and evaluation; nothing on a GPU, where a batch of one client says little of a whole cohort's.
    pub seconds: Option<f64>,
    /// Bytes of its run folder, once it is finished.
    pub disk: u64,
    /// Whether its data is not available, so that others of the same shape stood in.
    pub is_stand_in: bool,
}

/// The source, its folder and how often each sample is there.
type DataKey = (Source, PathBuf, Option<usize>);

#[derive(Clone)]
struct Data {
    dataset: Arc<Dataset>,
    is_stand_in: bool,
}

impl Forecaster {
    /// What an experiment will take on this machine.
    pub fn forecast(&mut self, experiment: &Experiment) -> Result<Forecast> {
        let Data { dataset, is_stand_in } = self.data(experiment)?;
        let prepared = experiment.prepare_from(|| Ok(dataset))?;
        let seconds = match experiment.engine.place()? {
            Device::Cpu => Some(seconds(&prepared, &self.pace(&prepared)?)?),
            Device::Cuda(_) => None,
        };
        Ok(Forecast { seconds, disk: Disk::of(&prepared).finished, is_stand_in })
    }

    fn pace(&mut self, prepared: &Prepared) -> Result<Pace> {
        let key = pace_key(prepared);
        let pace = match self.paces.get(&key) {
            Some(known) => *known,
            None => Pace::measure(prepared)?,
        };
        self.paces.insert(key, pace);
        Ok(pace)
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

fn seconds(prepared: &Prepared, pace: &Pace) -> Result<f64> {
    let plan = &prepared.experiment.plan;
    let clients = prepared.splits.clients.len();
    let cohort = prepared.cohort()?;
    let batches: usize = (0..clients).map(|client| prepared.batches(client)).sum();
    let mean_batches = batches as f64 / clients.max(1) as f64;
    let train = Effort::of(prepared, ClientTask::Train).seconds(pace, mean_batches, [0.0; 3]);
    let judge = if plan.measure_theory { ClientTask::Measure } else { ClientTask::Evaluate };
    let judged = judge_all(prepared, judge, pace);
    let finish = Effort::of(prepared, ClientTask::Finish).seconds(pace, mean_batches, [0.0; 3]) * clients as f64;
    let every = plan.evaluate_every.max(1).min(plan.rounds);
    let evaluations = if plan.evaluate_every == 0 { 1 } else { plan.rounds.div_ceil(every) };
    let (few, all) = (workers(prepared).min(cohort) as f64, workers(prepared).min(clients) as f64);
    Ok(plan.rounds as f64 * cohort as f64 * train / few + (evaluations as f64 * judged + finish) / all)
}

/// Seconds of one evaluation of all clients, one after the other.
fn judge_all(prepared: &Prepared, task: ClientTask, pace: &Pace) -> f64 {
    let effort = Effort::of(prepared, task);
    let one = |client: usize| {
        effort.seconds(pace, prepared.batches(client) as f64, prepared.samples_of(client).map(|count| count as f64))
    };
    (0..prepared.splits.clients.len()).map(one).sum()
}

fn workers(prepared: &Prepared) -> usize {
    let cores = || std::thread::available_parallelism().map_or(1, |cores| cores.get());
    prepared.experiment.engine.workers.map_or_else(cores, |workers| workers.get())
}
