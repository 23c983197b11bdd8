//! All that an experiment will take: time, memory, disk and bytes on the network.
use fedeq_core::{Codec, KnownModel, Result, Traffic, Weights, encode_model, encoded_len, shared_part};
use fedeq_data::{Dataset, Labels, Samples, Seed};
use serde::Serialize;

use super::{Data, Efforts, Forecast, Forecaster, workers};
use crate::experiment::{Device, Experiment, Prepared};

/// What an experiment will take, roughly, and what it is about.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlook {
    /// Its time and its disk.
    pub forecast: Forecast,
    /// Parameters that are shared, and that stay with their clients.
    pub parameters: [usize; 2],
    /// Clients that train, and how many of them take part in a round.
    pub clients: usize,
    /// How many of them take part in a round; where that varies, about so many.
    pub cohort: usize,
    /// Bytes that a round of training sends; later rounds may differ by a few.
    pub round: RoundBytes,
    /// Bytes of the machine's memory, at most about so many; nothing where memory is not counted, and on a GPU.
    pub memory: Option<u64>,
    /// Bytes of a GPU's memory, at least about so many as long as all fits; nothing on the CPU.
    pub device_memory: Option<u64>,
}

/// Bytes of one round's messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct RoundBytes {
    /// From clients to the server.
    pub up: u64,
    /// From the server to clients.
    pub down: u64,
}

/// A header of a message, about.
const HEADER: usize = 60;
/// The same of an update, which tells how training went.
const UPDATE_HEADER: usize = 560;
/// The program itself, with its threads.
const PROGRAM: u64 = 25_000_000;

impl Forecaster {
    /// What an experiment will take in every respect.
    pub fn outlook(&mut self, experiment: &Experiment) -> Result<Outlook> {
        let forecast = self.forecast(experiment)?;
        let Data { dataset, .. } = self.data(experiment)?;
        let prepared = experiment.prepare_from(|| Ok(dataset))?;
        let (memory, device_memory) = match experiment.engine.place()? {
            Device::Cpu => {
                let batch = self.pace(&prepared, &Efforts::of(&prepared))?.bytes;
                (batch.map(|batch| memory(&prepared, batch)).transpose()?, None)
            }
            Device::Cuda(_) => (None, Some(device_memory(&prepared)?)),
        };
        Ok(Outlook {
            parameters: prepared.parameters(),
            clients: prepared.splits.clients.len(),
            cohort: prepared.cohort()?,
            round: round(&prepared)?,
            memory,
            device_memory,
            forecast,
        })
    }
}

/// The messages of a round of training.
fn round(prepared: &Prepared) -> Result<RoundBytes> {
    let Experiment { method, plan, .. } = &prepared.experiment;
    let cohort = prepared.cohort()?;
    let shared = shared_part(method.algorithm(), &prepared.initial());
    let compression = plan.compression.unwrap_or_default();
    let down = cohort as u64 * message(&shared, compression.down, HEADER)?;
    if let Some(secure) = plan.secure_rounds(method.algorithm(), prepared.splits.clients.len())? {
        let clients: Vec<usize> = (0..cohort).collect();
        let Traffic { up, down: keys } = secure.traffic(&clients, shared.params.count(), shared.statistics.count())?;
        return Ok(RoundBytes { up, down: down + keys });
    }
    Ok(RoundBytes { up: cohort as u64 * message(&shared, compression.up, UPDATE_HEADER)?, down })
}

/// The bytes of weights in a message.
fn message(weights: &Weights, codec: Option<Codec>, header: usize) -> Result<u64> {
    let Some(codec) = codec else { return Ok(encoded_len(" ".repeat(header), weights)) };
    // How many bytes a codec makes hardly depends on the numbers.
    let nothing = Weights { params: weights.params.zeros_like(), statistics: weights.statistics.clone() };
    Ok((header + encode_model(weights, codec, &KnownModel::First(nothing), Seed::new(0))?.len()) as u64)
}

/// Memory for the data, for clients at work side by side, and for the states of the others.
fn memory(prepared: &Prepared, batch: u64) -> Result<u64> {
    let at_work = workers(prepared).min(prepared.cohort()?) as u64;
    let weights = prepared.initial();
    let model = 4 * (weights.params.count() + weights.statistics.count()) as u64;
    // A client at work has its model, what it received, what it sends, and what training takes.
    let client = batch + 3 * model + prepared.warm_bytes().unwrap_or(0);
    let kept = super::Disk::of(prepared).checkpoint.min(1_000_000 * prepared.experiment.engine.client_memory_mb as u64);
    Ok(PROGRAM + size_of(&prepared.dataset) + at_work * client + kept)
}

/// A GPU's memory for what a run keeps there: the samples, a model for every client of a round, and the clients' states. What a batch takes beside that is
/// planned with the card's driver when a run begins.
fn device_memory(prepared: &Prepared) -> Result<u64> {
    let weights = prepared.initial();
    let model = 4 * (weights.params.count() + weights.statistics.count()) as u64;
    Ok(size_of(&prepared.dataset) + prepared.cohort()? as u64 * model + super::Disk::of(prepared).checkpoint)
}

fn size_of(dataset: &Dataset) -> u64 {
    let samples = match &dataset.samples {
        Samples::Images(images) => images.pixels.len(),
        Samples::Vectors(vectors) => 4 * vectors.values.len(),
        Samples::Sequences(sequences) => sequences.symbols.len(),
    };
    let labels = match &dataset.labels {
        Labels::Classes { values, .. } => 2 * values.len(),
        _ => samples,
    };
    (samples + labels) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_gpu_samples_models_and_states_are_counted_and_no_machine_memory_is_claimed() {
        let settings = ["method=fedeq", "model=deq-mlp", "plan.rounds=2", "data.partition.clients=6"];
        let settings: Vec<crate::experiment::Override> = settings.iter().map(|text| text.parse().expect("a setting")).collect();
        let experiment = Experiment::read(None, &settings).expect("sound");
        let prepared = experiment.prepare().expect("the digits are here");
        let told = device_memory(&prepared).expect("a number");
        let [shared, personal] = prepared.parameters();
        // 1,797 pictures of 8 by 8 pixels with labels of two bytes, and a model of 4 bytes a number for each client of a round.
        let least = 1_797 * (64 + 2) + prepared.cohort().expect("some") as u64 * 4 * (shared + personal) as u64;
        assert!(told >= least, "{told} is less than {least}");
        // Every client has at most its model, a dual, and what it received beside.
        let states = 6 * 4 * 4 * (shared + personal) as u64;
        assert!(told <= least + states + 1_000_000, "{told} is more than {least} and {states}");
    }
}
