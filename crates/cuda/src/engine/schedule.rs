//! Which samples each client has in which step: tables that live on the device, so that every step is the same launches.
use std::num::NonZeroUsize;
use std::ops::Range;

use fedeq_core::{PhaseSeed, Training};
use fedeq_data::shard::Shard;

/// The batches of a cohort, step by step. A client that has no batch left sits the rest out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Schedule {
    lanes: usize,
    /// Samples of a client in a batch, at most.
    most: usize,
    steps: usize,
    /// `[steps][lanes]`
    counts: Vec<i32>,
    /// `[steps][lanes][most]`, as indices into the data set.
    samples: Vec<i32>,
    /// Of every lane, its batches by epoch.
    batches: Vec<Vec<usize>>,
    /// The number of the first epoch here.
    first_epoch: u64,
}

/// Whose batches they are, and what they are shuffled by.
#[derive(Clone, Debug)]
pub(crate) struct Trainee<'a> {
    pub(crate) shard: &'a Shard,
    /// Which of its samples the phase trains on, by their places.
    pub(crate) samples: Range<usize>,
    /// The only batch of each epoch, if not all are wanted.
    pub(crate) batch: Option<u64>,
    pub(crate) seed: PhaseSeed,
}

impl Schedule {
    /// The batches of some epochs of a training phase: those that every client would have on its own.
    pub(crate) fn of_epochs(lanes: &[Trainee<'_>], training: &Training, epochs: Range<usize>, most: usize) -> Self {
        let epoch = |trainee: &Trainee<'_>, epoch: usize| {
            let seed = trainee.seed.epoch(epoch as u64);
            trainee
                .shard
                .batches_of(trainee.samples.clone(), training.batch_size, training.remainder, seed)
                .only(trainee.batch)
                .indices()
                .collect::<Vec<_>>()
        };
        let lane = |trainee: &Trainee<'_>| epochs.clone().map(|number| epoch(trainee, number)).collect();
        Self { first_epoch: epochs.start as u64, ..Self::new(lanes.iter().map(lane).collect(), most) }
    }

    /// All samples of every client once, in order.
    pub(crate) fn in_order(lanes: &[&Shard], most: NonZeroUsize) -> Self {
        Self::new(lanes.iter().map(|shard| vec![shard.in_order(most).indices().collect()]).collect(), most.get())
    }

    /// Of every lane, of every epoch, its batches.
    fn new(lanes: Vec<Vec<Vec<Vec<u32>>>>, most: usize) -> Self {
        let batches: Vec<Vec<usize>> = lanes.iter().map(|epochs| epochs.iter().map(Vec::len).collect()).collect();
        let steps = batches.iter().map(|epochs| epochs.iter().sum()).max().unwrap_or(0);
        let mut counts = vec![0; steps * lanes.len()];
        let mut samples = vec![0; steps * lanes.len() * most];
        for (lane, epochs) in lanes.iter().enumerate() {
            for (step, batch) in epochs.iter().flatten().enumerate() {
                let at = step * lanes.len() + lane;
                counts[at] = batch.len() as i32;
                samples[at * most..][..batch.len()].iter_mut().zip(batch).for_each(|(to, &index)| *to = index as i32);
            }
        }
        Self { lanes: lanes.len(), most, steps, counts, samples, batches, first_epoch: 0 }
    }

    pub(crate) fn lanes(&self) -> usize {
        self.lanes
    }

    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// Steps until the last client is done.
    pub(crate) fn steps(&self) -> usize {
        self.steps
    }

    pub(crate) fn counts(&self) -> &[i32] {
        &self.counts
    }

    pub(crate) fn samples(&self) -> &[i32] {
        &self.samples
    }

    /// Steps that a lane takes.
    pub(crate) fn steps_of(&self, lane: usize) -> usize {
        self.batches[lane].iter().sum()
    }

    /// Steps of a lane's last epoch.
    pub(crate) fn last_epoch(&self, lane: usize) -> Range<usize> {
        let end = self.steps_of(lane);
        end - self.batches[lane].last().copied().unwrap_or(0)..end
    }

    /// Samples of a lane in a step.
    pub(crate) fn count(&self, step: usize, lane: usize) -> usize {
        self.counts[step * self.lanes + lane] as usize
    }

    /// The samples of a lane in a step.
    pub(crate) fn batch(&self, step: usize, lane: usize) -> &[i32] {
        &self.samples[(step * self.lanes + lane) * self.most..][..self.count(step, lane)]
    }

    /// For every step and lane, what `of` makes of the lane, the epoch and the number of the batch in it; as it was filled where there is no batch. Of every lane it is asked in the order of
    /// its steps.
    pub(crate) fn by_batch<T: Copy, const N: usize>(&self, fill: T, mut of: impl FnMut(usize, u64, u64) -> [T; N]) -> Vec<T> {
        let mut table = vec![fill; self.steps * self.lanes * N];
        for (lane, epochs) in self.batches.iter().enumerate() {
            let all = epochs.iter().enumerate().flat_map(|(epoch, &count)| (0..count).map(move |batch| (epoch, batch)));
            for (step, (epoch, batch)) in all.enumerate() {
                table[(step * self.lanes + lane) * N..][..N].copy_from_slice(&of(
                    lane,
                    self.first_epoch + epoch as u64,
                    batch as u64,
                ));
            }
        }
        table
    }

    /// For every sample of every step, in the order of the samples, what `of` makes of it and of what `seed` gives for its lane and epoch; as it was filled where there is none.
    pub(crate) fn by_sample<S, T: Copy>(&self, fill: T, seed: impl Fn(usize, u64) -> S, of: impl Fn(&S, u64) -> T) -> Vec<T> {
        let mut table = vec![fill; self.samples.len()];
        for (lane, epochs) in self.batches.iter().enumerate() {
            let mut step = 0;
            for (epoch, &count) in (self.first_epoch..).zip(epochs) {
                let seed = seed(lane, epoch);
                for step in step..step + count {
                    let places = &mut table[(step * self.lanes + lane) * self.most..];
                    places.iter_mut().zip(self.batch(step, lane)).for_each(|(place, &sample)| *place = of(&seed, sample as u64));
                }
                step += count;
            }
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use fedeq_core::{Drift, RoundContext, Trains};
    use fedeq_data::shard::Remainder;
    use fedeq_data::{Dataset, Labels, Samples, Seed, Vectors};

    use super::*;

    fn shards(sizes: &[usize]) -> Vec<Shard> {
        let all: usize = sizes.iter().sum();
        let dataset = Arc::new(Dataset {
            name: "numbers".into(),
            samples: Samples::Vectors(Vectors { width: 1, values: (0..all).map(|value| value as f32).collect() }),
            labels: Labels::Classes { names: vec!["a".into()], values: vec![0; all] },
            owners: None,
            test_start: None,
        });
        let mut end = 0;
        let mut shard = |size: &usize| {
            end += size;
            Shard::new(Arc::clone(&dataset), ((end - size) as u32..end as u32).collect()).expect("samples of the data set")
        };
        sizes.iter().map(&mut shard).collect()
    }

    #[test]
    fn every_client_gets_the_batches_it_would_have_on_its_own() {
        let shards = shards(&[25, 3, 0, 40, 10]);
        for remainder in [Remainder::Drop, Remainder::Keep] {
            let training = Training { remainder, epochs: 3, ..Training::default() };
            let round = RoundContext { round: 0, rounds: 1, rho: None, training: &training };
            let phase = round.body(Trains::Everything);
            let seed = |lane: usize| phase.seed(Seed::new(lane as u64));
            let lanes: Vec<Trainee<'_>> = shards
                .iter()
                .enumerate()
                .map(|(lane, shard)| Trainee { shard, samples: phase.samples(shard.len()), batch: None, seed: seed(lane) })
                .collect();
            let schedule = Schedule::of_epochs(&lanes, &training, 0..3, 12);
            assert_eq!(schedule.steps(), 12, "the longest client has four batches in each of three epochs");
            for (lane, shard) in shards.iter().enumerate() {
                let mut expected = Vec::new();
                let mut last = 0;
                for epoch in 0..3 {
                    let before = expected.len();
                    let batches = shard.batches(training.batch_size, remainder, seed(lane).epoch(epoch));
                    expected.extend(batches.map(|batch| batch.ids.into_iter().map(|id| id as i32).collect::<Vec<_>>()));
                    last = expected.len() - before;
                }
                assert_eq!(schedule.steps_of(lane), expected.len());
                assert_eq!(schedule.last_epoch(lane).len(), last);
                for step in 0..schedule.steps() {
                    assert_eq!(schedule.batch(step, lane), expected.get(step).map_or(&[][..], Vec::as_slice));
                }
            }
            let numbers = schedule.by_batch(-1, |lane, epoch, batch| [lane as i64 * 100 + epoch as i64 * 10 + batch as i64]);
            let samples = schedule.by_sample(
                -1,
                |lane, epoch| [lane as i64, epoch as i64],
                |of, sample| of[0] * 10_000 + of[1] * 1_000 + sample as i64,
            );
            for (step, lane) in (0..schedule.steps()).flat_map(|step| (0..5).map(move |lane| (step, lane))) {
                let (epoch, count) = (step / (schedule.steps_of(lane) / 3).max(1), schedule.count(step, lane));
                let places = &samples[(step * 5 + lane) * 12..][..12];
                let expected =
                    schedule.batch(step, lane).iter().map(|&id| (lane * 10_000 + epoch * 1_000) as i64 + i64::from(id));
                assert!(expected.eq(places[..count].iter().copied()) && places[count..].iter().all(|&place| place == -1));
            }
            let later = Schedule::of_epochs(&lanes, &training, 2..3, 12);
            assert_eq!((0..5).map(|lane| later.batch(0, lane)).collect::<Vec<_>>(), {
                let first = |lane: usize| schedule.last_epoch(lane).start;
                (0..5)
                    .map(|lane| if later.steps_of(lane) > 0 { schedule.batch(first(lane), lane) } else { &[] })
                    .collect::<Vec<_>>()
            });
            let per_epoch = schedule.steps_of(0) / 3;
            assert_eq!(numbers[(per_epoch + 1) * 5], 11, "the second batch of the second epoch");
            assert_eq!(numbers[2], -1, "a client without samples has no batch");
        }
    }

    #[test]
    fn with_drift_every_client_gets_the_batches_of_one_that_has_the_window_alone() {
        let shards = shards(&[25, 3, 0, 40]);
        let training = Training { remainder: Remainder::Keep, drift: Some(Drift { window: 0.3 }), ..Training::default() };
        for round in 0..4 {
            let context = RoundContext { round, rounds: 4, rho: None, training: &training };
            let phase = context.body(Trains::Everything);
            let seed = phase.seed(Seed::new(round));
            let part = |shard: &Shard| {
                let indices = shard.indices()[phase.samples(shard.len())].to_vec();
                Shard::new(Arc::clone(shard.dataset()), indices).expect("samples of the data set")
            };
            let alone: Vec<Shard> = shards.iter().map(part).collect();
            let of = |shards: &[Shard], window: &dyn Fn(usize) -> Range<usize>| {
                let trainee = |shard: &Shard| (shard.clone(), window(shard.len()));
                let held: Vec<_> = shards.iter().map(trainee).collect();
                let lanes: Vec<_> =
                    held.iter().map(|(shard, samples)| Trainee { shard, samples: samples.clone(), batch: None, seed }).collect();
                Schedule::of_epochs(&lanes, &training, 0..2, 12)
            };
            assert_eq!(of(&shards, &|all| phase.samples(all)), of(&alone, &|all| 0..all));
        }
    }

    #[test]
    fn an_evaluation_sees_every_sample_once_and_in_order() {
        let shards = shards(&[7, 0, 12]);
        let schedule = Schedule::in_order(&shards.iter().collect::<Vec<_>>(), NonZeroUsize::new(5).expect("not 0"));
        assert_eq!((schedule.steps(), schedule.most()), (3, 5));
        for (lane, shard) in shards.iter().enumerate() {
            let seen: Vec<u32> = (0..3).flat_map(|step| schedule.batch(step, lane).to_vec()).map(|index| index as u32).collect();
            assert_eq!(seen, shard.indices());
        }
    }
}
