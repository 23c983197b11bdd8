//! How long a batch takes.
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{ClientState, Error, LocalProblem, Phase, Portion, Result, Trains};
use fedeq_cpu::NetworkProblem;
use fedeq_data::Seed;
use fedeq_data::shard::Shard;

use crate::experiment::Prepared;

/// How long pieces of work take on one thread, in seconds; nothing for those that were not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Pace {
    everything: Option<f64>,
    shared: Option<f64>,
    personal: Option<f64>,
    sample: Option<f64>,
    /// The most memory that one of these batches takes, in bytes; nothing where memory is not counted.
    pub(super) bytes: Option<u64>,
}

/// As many samples as are evaluated to see how long one takes.
const EVALUATED: usize = 20;

/// How often a piece of work is done to see how long it takes.
const TIMES: usize = 5;

/// Once this many seconds are spent on it, it is not done again.
const LONG: f64 = 0.1;

/// Samples whose times tell that of a batch which would take long.
const FEW: [usize; 2] = [1, 3];

impl Pace {
    /// Seconds of a batch.
    pub(super) fn batch(mut self, trains: Trains) -> f64 {
        self.batch_mut(trains).unwrap_or_default()
    }

    /// Seconds of evaluating a sample.
    pub(super) fn sample(&self) -> f64 {
        self.sample.unwrap_or_default()
    }

    fn batch_mut(&mut self, trains: Trains) -> &mut Option<f64> {
        match trains {
            Trains::Everything => &mut self.everything,
            Trains::Shared => &mut self.shared,
            Trains::Personal => &mut self.personal,
        }
    }
}

/// The thread that is measured on: it keeps the memory of one network for the next.
#[derive(Debug, Default)]
pub(super) struct Stopwatch {
    thread: Option<rayon::ThreadPool>,
}

impl Stopwatch {
    /// Measures what is not known yet: batches that are trained in these ways, and evaluating a sample.
    pub(super) fn complete(&mut self, pace: &mut Pace, prepared: &Prepared, trained: &[Trains]) -> Result<()> {
        let mut known = *pace;
        let is_known = |trains: &Trains| known.batch_mut(*trains).is_some();
        if pace.sample.is_some() && trained.iter().all(is_known) {
            return Ok(());
        }
        let mut state = prepared.fresh_state(0);
        self.thread()?.install(|| {
            for trains in trained {
                if pace.batch_mut(*trains).is_none() {
                    let [seconds, bytes] = batch(prepared, &mut state, *trains)?;
                    *pace.batch_mut(*trains) = Some(seconds);
                    pace.bytes = pace.bytes.max((bytes > 0.0).then_some(bytes as u64));
                }
            }
            pace.sample = Some(pace.sample.map_or_else(|| sample_seconds(prepared, &state), Ok)?);
            Ok(())
        })
    }

    fn thread(&mut self) -> Result<&rayon::ThreadPool> {
        let refused = |error| Error::invalid(format!("no thread to measure on: {error}"), "end other programs");
        let thread = match self.thread.take() {
            Some(thread) => thread,
            None => rayon::ThreadPoolBuilder::new().num_threads(1).build().map_err(refused)?,
        };
        Ok(self.thread.insert(thread))
    }
}

/// The seconds and the bytes of a batch.
fn batch(prepared: &Prepared, state: &mut ClientState, trains: Trains) -> Result<[f64; 2]> {
    // A small step: the numbers do not matter, and must not diverge.
    let phase = Phase::new("measure", trains, 1, 1e-6);
    let ClientState { own, memory, .. } = state;
    let train = |problem: &NetworkProblem| {
        // Again from a cold start: solves that began where the same samples ended a moment ago would take a step or two.
        let mut cold = memory.clone();
        let stats = problem.train(own, &mut cold, &phase, None, phase.seed(Seed::new(0)))?;
        Ok(stats.memory.solve.max(stats.memory.backward).max(stats.memory.update))
    };
    of_samples(prepared, batch_size(prepared), train)
}

fn sample_seconds(prepared: &Prepared, state: &ClientState) -> Result<f64> {
    let [seconds, _] = of_samples(prepared, EVALUATED, |problem| problem.score(&state.own, Portion::Train, None).map(|_| 0))?;
    Ok(seconds / EVALUATED as f64)
}

/// The seconds and the bytes of some work on so many samples, which says how many bytes it took. Where that is long, it is taken from the lines through those of a few.
fn of_samples(prepared: &Prepared, count: usize, mut work: impl FnMut(&NetworkProblem) -> Result<u64>) -> Result<[f64; 2]> {
    let mut of = |count: usize| {
        let shard = |indices: Vec<u32>| Shard::new(Arc::clone(&prepared.dataset), indices);
        let problem = prepared.problem_with([shard(prepared.some_samples(count))?, shard(Vec::new())?, shard(Vec::new())?])?;
        shortest(|| work(&problem))
    };
    let [one, some] = FEW;
    if count <= some {
        return of(count);
    }
    let first = of(one)?;
    if first[0] * (count as f64) < LONG {
        return of(count);
    }
    let more = of(some)?;
    let along = |at: usize| first[at] + (more[at] - first[at]).max(0.0) / (some - one) as f64 * (count - one) as f64;
    Ok([along(0), along(1)])
}

/// Samples of a batch: no more than a client has.
pub(super) fn batch_size(prepared: &Prepared) -> usize {
    let [samples, ..] = prepared.samples_of(0);
    prepared.experiment.training.batch_size.get().min(samples.max(1))
}

/// The shortest of at least two times, and the most bytes: the first one also pays for memory that is asked for, and others for what else the machine does.
fn shortest(mut work: impl FnMut() -> Result<u64>) -> Result<[f64; 2]> {
    let (mut shortest, mut most, begun) = (f64::INFINITY, 0, Instant::now());
    for time in 1..=TIMES {
        let start = Instant::now();
        most = work()?.max(most);
        shortest = shortest.min(start.elapsed().as_secs_f64());
        if time > 1 && begun.elapsed().as_secs_f64() > LONG {
            break;
        }
    }
    Ok([shortest, most as f64])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Experiment;

    #[test]
    fn only_what_is_asked_for_and_not_known_is_measured() {
        let prepared = Experiment::read(None, &[]).and_then(|experiment| experiment.prepare()).expect("an experiment");
        let (mut stopwatch, mut pace) = (Stopwatch::default(), Pace::default());
        stopwatch.complete(&mut pace, &prepared, &[Trains::Personal]).expect("measured");
        let before = pace;
        assert!(pace.personal > Some(0.0) && pace.sample > Some(0.0) && (pace.everything, pace.shared) == (None, None));
        stopwatch.complete(&mut pace, &prepared, &[Trains::Personal, Trains::Shared]).expect("measured");
        assert!((pace.personal, pace.sample) == (before.personal, before.sample) && pace.shared > Some(0.0));
    }

    #[test]
    fn what_takes_long_is_told_from_a_few_samples() {
        let prepared = Experiment::read(None, &[]).and_then(|experiment| experiment.prepare()).expect("an experiment");
        let mut counts = Vec::new();
        let found = of_samples(&prepared, 200, |problem| {
            counts.push(problem.samples());
            std::thread::sleep(std::time::Duration::from_millis(5 + 10 * problem.samples() as u64));
            Ok(100 + 10 * problem.samples() as u64)
        });
        assert!(counts.iter().all(|count| FEW.contains(count)), "{counts:?}");
        let [seconds, bytes] = found.expect("measured");
        assert!(seconds > 0.0 && bytes == 100.0 + 10.0 * 200.0, "{seconds} s, {bytes} bytes");
    }
}
