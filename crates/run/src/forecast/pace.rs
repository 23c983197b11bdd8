//! How long a batch takes.
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{Error, LocalProblem, Phase, Portion, Result, Slot, Trains};
use fedeq_data::Seed;
use fedeq_data::shard::Shard;

use crate::experiment::Prepared;

/// How long pieces of work take on one thread, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    everything: f64,
    shared: f64,
    personal: f64,
    /// Judging a sample.
    pub(super) sample: f64,
}

/// As many samples as are judged to see how long one takes.
const JUDGED: usize = 20;

/// How often a piece of work is done to see how long it takes.
const TIMES: usize = 5;

/// Once this many seconds are spent on it, it is not done again.
const LONG: f64 = 0.3;

impl Pace {
    /// Seconds of a batch.
    pub(super) fn batch(&self, trains: Trains) -> f64 {
        match trains {
            Trains::Everything => self.everything,
            Trains::Shared => self.shared,
            Trains::Personal => self.personal,
        }
    }

    /// Trains on one batch in every way, and judges a few samples.
    pub(super) fn measure(prepared: &Prepared) -> Result<Self> {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
        let refused = |error| Error::invalid(format!("no thread to measure on: {error}"), "end other programs");
        pool.map_err(refused)?.install(|| Self::measured(prepared))
    }

    fn measured(prepared: &Prepared) -> Result<Self> {
        let size = batch_size(prepared);
        let some = |count: usize| prepared.some_samples(count);
        let batch = Shard::new(Arc::clone(&prepared.dataset), some(size))?;
        let (few, none) =
            (Shard::new(Arc::clone(&prepared.dataset), some(JUDGED))?, Shard::new(Arc::clone(&prepared.dataset), Vec::new())?);
        let problem = prepared.problem_with([batch, none, few]);
        let mut state = prepared.fresh_state(0);
        let mut train = |trains: Trains| {
            // A small step: the numbers do not matter, and must not diverge.
            let phase = Phase { name: "measure", slot: Slot::Own, trains, epochs: 1, learning_rate: 1e-6, proximal: None };
            timed(|| problem.train(&mut state.own, &mut state.memory, &phase, None, phase.seed(Seed::new(0))).map(|_| ()))
        };
        let (everything, shared, personal) = (train(Trains::Everything)?, train(Trains::Shared)?, train(Trains::Personal)?);
        let own = state.own;
        let judged = timed(|| problem.score(&own, Portion::Test, None).map(|_| ()))?;
        Ok(Self { everything, shared, personal, sample: judged / JUDGED as f64 })
    }
}

/// Samples of a batch: no more than a client has.
pub(super) fn batch_size(prepared: &Prepared) -> usize {
    let [samples, ..] = prepared.samples_of(0);
    prepared.experiment.training.batch_size.get().min(samples.max(1))
}

/// The shortest of a few times: the first one also pays for memory that is asked for, and others for what else the machine does.
fn timed(mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let (mut shortest, begun) = (f64::INFINITY, Instant::now());
    for _ in 0..TIMES {
        let start = Instant::now();
        work()?;
        shortest = shortest.min(start.elapsed().as_secs_f64());
        if begun.elapsed().as_secs_f64() > LONG {
            break;
        }
    }
    Ok(shortest)
}
