//! Training steps, by the engine's own loop.
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{LocalProblem, Phase, Training, Trains, Weights};
use fedeq_cpu::NetworkProblem;
use fedeq_equilibrium::{WarmMemory, WarmStart};
use serde_json::{Value, json};

use crate::Result;
use crate::file;
use crate::job::Step;
use crate::samples::{phase_seed, problem};
use crate::setting::read_weights;

/// One pass over the data that trains all parameters.
pub(crate) fn everything(learning_rate: f64) -> Phase {
    Phase::new("body", Trains::Everything, 1, learning_rate)
}

impl Step {
    /// The gradient is read off a step of length 1.
    pub(crate) fn check(&self) -> Result<Value> {
        let (problem, weights) = self.problem(usize::MAX)?;
        let (first, _) = self.problem(self.training.batch_size.get())?;
        let mut moved = weights.clone();
        let loss = train(&first, &mut moved, 1.0)?;
        let gradient = moved.params.minus(&weights.params).norm();
        let epoch_loss = train(&problem, &mut weights.clone(), self.training.learning_rate)?;
        Ok(json!({ "loss": loss, "gradient_norm": gradient, "epoch_loss": epoch_loss }))
    }

    /// The first pass is not counted.
    pub(crate) fn time(&self) -> Result<Value> {
        let (problem, mut weights) = self.problem(usize::MAX)?;
        let batches = (problem.samples() / self.training.batch_size.get()) as f64;
        let mut milliseconds = Vec::new();
        for _ in 0..=self.repeats {
            let begun = Instant::now();
            train(&problem, &mut weights, self.training.learning_rate)?;
            milliseconds.push(1e3 * begun.elapsed().as_secs_f64() / batches);
        }
        Ok(json!({ "milliseconds": milliseconds[1..] }))
    }

    /// The first client with the first `most` samples of its first epoch.
    fn problem(&self, most: usize) -> Result<(NetworkProblem, Weights)> {
        let held = file::read(&self.folder, self.setting.kind)?;
        let dataset = Arc::new(held.dataset);
        let mut client = held.clients[0].clone();
        if most < client.train.len() {
            let shard = fedeq_data::shard::Shard::new(Arc::clone(&dataset), client.train.clone())?;
            let Training { batch_size, remainder, .. } = self.training;
            let mut batches = shard.batches(batch_size, remainder, phase_seed(0, "body").epoch(0));
            client.train = batches.next().map(|batch| batch.ids.into_iter().map(|id| id as u32).collect()).unwrap_or_default();
        }
        let network = self.setting.network()?;
        let weights = read_weights(&self.folder, &network)?;
        Ok((problem(&network, &dataset, &client, &self.training)?, weights))
    }
}

fn train(problem: &NetworkProblem, weights: &mut Weights, learning_rate: f64) -> Result<f64> {
    let mut memory = WarmMemory::new(WarmStart::Off);
    Ok(problem.train(weights, &mut memory, &everything(learning_rate), None, phase_seed(0, "body"))?.loss)
}
