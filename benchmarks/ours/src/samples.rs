//! Samples made up or taken from writers, and the order of their batches.
use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use fedeq_core::{LocalProblem, PhaseSeed, Training, client_seed};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::shard::Shard;
use fedeq_data::source::femnist::Writers;
use fedeq_data::{Dataset, Labels, Samples, Seed, Sequences};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::InputShape;
use serde_json::{Value, json};

use crate::Result;
use crate::file::{self, Held, Orders, classes, client, images};
use crate::job::Prepare;
use crate::setting::{Kind, weights_of, write_weights};
use crate::step::everything;

/// The randomness of clients; [`InProcess`](fedeq_core::InProcess) derives each client's from it.
pub(crate) fn root() -> Seed {
    Seed::new(1)
}

/// What a client's phase in the first round gets from the engine.
pub(crate) fn phase_seed(client: usize, phase: &str) -> PhaseSeed {
    PhaseSeed::new(client_seed(root(), client).derive("round", [0]), phase)
}

impl Prepare {
    /// Writes samples, orders and weights. The weights come from an epoch of training: fresh ones may give a loss that says little,
    /// such as that of logits which are all zero.
    pub(crate) fn run(&self) -> Result<Value> {
        let held = match &self.femnist {
            Some(path) => written(path, self.clients, self.samples)?,
            None => made_up(self.setting.kind, self.clients, self.samples),
        };
        let dataset = Arc::new(held.dataset.clone());
        let network = self.setting.network()?;
        let orders = self.orders(&held, &dataset)?;
        file::write(&self.folder, &held, &orders)?;
        let mut weights = weights_of(&network);
        let problem = problem(&network, &dataset, &held.clients[0], &self.training)?;
        let phase = everything(self.training.learning_rate);
        problem.train(&mut weights, &mut WarmMemory::new(WarmStart::Off), &phase, None, phase.seed(Seed::new(5)))?;
        write_weights(&self.folder, &weights)?;
        Ok(json!({ "samples": dataset.len() }))
    }

    fn orders(&self, held: &Held, dataset: &Arc<Dataset>) -> Result<Orders> {
        let mut orders = Orders::new();
        for (number, client) in held.clients.iter().enumerate() {
            let shard = Shard::new(Arc::clone(dataset), client.train.clone())?;
            for (phase, epochs) in [("head", self.training.personal_epochs), ("body", self.training.epochs)] {
                for epoch in 0..epochs as u64 {
                    let seed = phase_seed(number, phase).epoch(epoch);
                    let batches = shard.batches(self.training.batch_size, self.training.remainder, seed);
                    let order = batches.flat_map(|batch| batch.ids.into_iter().map(|id| id as u32)).collect();
                    orders.insert(format!("order/{number}/{phase}/{epoch}"), order);
                }
            }
        }
        let ends = held.clients.iter().map(|client| client.train.last().map_or(0, |last| last + 1)).collect();
        orders.insert("order/ends".into(), ends);
        Ok(orders)
    }
}

/// A client's data and a network to train on it.
pub(crate) fn problem(
    network: &Arc<Network>,
    dataset: &Arc<Dataset>,
    client: &fedeq_data::partition::ClientIndices,
    training: &Training,
) -> Result<NetworkProblem> {
    let shard = |indices: &Vec<u32>| Shard::new(Arc::clone(dataset), indices.clone());
    let shards = [shard(&client.train)?, shard(&client.validation)?, shard(&client.test)?];
    Ok(NetworkProblem::new(Arc::clone(network), shards, training))
}

/// Random numbers that need no more than be the same everywhere (splitmix64).
struct Noise(u64);

impl Noise {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (((z ^ (z >> 31)) as u128 * bound as u128) >> 64) as usize
    }
}

/// Clients with `samples` samples each: for pictures, a pattern a class under noise.
fn made_up(kind: Kind, clients: usize, samples: usize) -> Held {
    let mut noise = Noise(11);
    let count = clients * samples;
    let (samples_of, labels) = match kind.task().input {
        InputShape::Image { height, width, channels } => {
            let labels: Vec<u32> = (0..count).map(|_| noise.below(kind.task().classes) as u32).collect();
            let mut pixels = Vec::with_capacity(count * height * width * channels);
            for &label in &labels {
                let mut pattern = Noise(label.into());
                pixels.extend((0..height * width * channels).map(|_| (pattern.below(128) + noise.below(128)) as u8));
            }
            (Samples::Images(images([height, width, channels], pixels)), classes(kind, labels))
        }
        InputShape::Symbols { length, vocabulary } => {
            let mut draw = || (0..count * length).map(|_| 1 + noise.below(vocabulary - 1) as u8).collect();
            (Samples::Sequences(Sequences { length, vocabulary, symbols: draw() }), Labels::NextSymbols(draw()))
        }
        InputShape::Vector { .. } => unreachable!("no kind has vectors"),
    };
    let dataset = Dataset { name: "benchmark".into(), samples: samples_of, labels, owners: None, test_start: None };
    let clients = (0..clients).map(|number| client((number * samples) as u32, ((number + 1) * samples) as u32)).collect();
    Held { dataset, clients }
}

/// The first writers of a LEAF file, each with at most `most` samples.
fn written(path: &Path, clients: usize, most: usize) -> Result<Held> {
    let all = Writers::default().read(BufReader::new(File::open(path)?), path)?.into_dataset()?;
    let (Samples::Images(all_images), Some(owners), Some(all_classes)) = (&all.samples, &all.owners, all.classes()) else {
        return Err("FEMNIST has pictures, classes and writers".into());
    };
    let size: usize = all_images.shape.iter().product();
    let (mut pixels, mut labels, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for writer in 0..clients as u32 {
        let start = labels.len() as u32;
        for at in (0..all.len()).filter(|&at| owners.of[at] == writer).take(most) {
            pixels.extend_from_slice(&all_images.pixels[at * size..(at + 1) * size]);
            labels.push(all_classes[at].into());
        }
        held.push(client(start, labels.len() as u32));
    }
    let samples = Samples::Images(images(all_images.shape, pixels));
    let labels = classes(Kind::Femnist, labels);
    let dataset = Dataset { name: "benchmark".into(), samples, labels, owners: None, test_start: None };
    Ok(Held { dataset, clients: held })
}
