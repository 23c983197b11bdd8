//! Batches: every sample once, the right numbers, an order that depends on the seed alone.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_data::shard::{Batch, Inputs, Remainder, Shard, Targets};
use fedeq_data::{Dataset, Images, Labels, Samples, Scaling, Seed, Sequences, Vectors};
use proptest::prelude::*;

fn dataset(samples: Samples, labels: Labels) -> Arc<Dataset> {
    Arc::new(Dataset { name: "synthetic".into(), samples, labels, owners: None, test_start: None })
}

/// Sample `i` is the number `10 i` and of class `i`.
fn tens(samples: usize) -> Arc<Dataset> {
    let values: Vec<f32> = (0..samples).map(|sample| 10.0 * sample as f32).collect();
    let names = (0..samples).map(|class| class.to_string()).collect();
    let labels = Labels::Classes { names, values: (0..samples as u16).collect() };
    dataset(Samples::Vectors(Vectors { width: 1, values }), labels)
}

/// Every other sample of `2 * samples`.
fn every_other(samples: usize) -> Shard {
    Shard::new(tens(2 * samples), (0..samples as u32).map(|index| 2 * index).collect()).unwrap()
}

fn size(batch_size: usize) -> NonZeroUsize {
    NonZeroUsize::new(batch_size).unwrap()
}

fn ids(batches: impl Iterator<Item = Batch>) -> Vec<u64> {
    batches.flat_map(|batch| batch.ids).collect()
}

fn sorted(mut ids: Vec<u64>) -> Vec<u64> {
    ids.sort_unstable();
    ids
}

proptest! {
    #[test]
    fn an_epoch_that_keeps_the_remainder_shows_every_sample_once(samples in 0..60_usize, batch in 1..70_usize, seed: u64) {
        let shard = every_other(samples);
        let epoch = shard.batches(size(batch), Remainder::Keep, Seed::new(seed));
        prop_assert_eq!(epoch.len(), samples.div_ceil(batch));
        prop_assert_eq!(sorted(ids(epoch)), (0..samples as u64).map(|id| 2 * id).collect::<Vec<_>>());
    }

    #[test]
    fn an_epoch_that_drops_the_remainder_has_full_batches_of_different_samples(
        samples in 1..60_usize, batch in 1..70_usize, seed: u64
    ) {
        let shard = every_other(samples);
        let full = batch.min(samples);
        let batches: Vec<Batch> = shard.batches(size(batch), Remainder::Drop, Seed::new(seed)).collect();
        prop_assert_eq!(batches.len(), samples / full);
        prop_assert!(batches.iter().all(|batch| batch.len() == full));
        let mut shown = sorted(ids(batches.into_iter()));
        shown.dedup();
        prop_assert_eq!(shown.len(), samples / full * full);
    }

    #[test]
    fn batches_as_lists_of_indices_are_those_of_the_batches_themselves(samples in 0..60_usize, batch in 1..70_usize, seed: u64) {
        let shard = every_other(samples);
        for remainder in [Remainder::Drop, Remainder::Keep] {
            let epoch = || shard.batches(size(batch), remainder, Seed::new(seed));
            let read: Vec<Vec<u64>> = epoch().map(|batch| batch.ids).collect();
            let listed: Vec<Vec<u64>> = epoch().indices().map(|batch| batch.into_iter().map(u64::from).collect()).collect();
            prop_assert_eq!(read, listed);
        }
    }

    #[test]
    fn a_batch_in_the_memory_of_another_is_the_same(samples in 0..60_usize, batch in 1..70_usize, seed: u64) {
        let shard = every_other(samples);
        let epoch = || shard.batches(size(batch), Remainder::Keep, Seed::new(seed));
        // Whatever was in that memory.
        let old = Targets::Symbols { values: vec![7; 9], shape: vec![3, 3] };
        let inputs = Inputs::Symbols { values: vec![7; 9], shape: vec![3, 3] };
        let (mut batches, mut batch) = (epoch(), Batch { inputs, targets: old, ids: vec![1, 2] });
        for fresh in epoch() {
            prop_assert!(batches.read_next(&mut batch));
            prop_assert_eq!(&batch, &fresh);
        }
        prop_assert!(!batches.read_next(&mut batch));
    }

    #[test]
    fn evaluation_shows_every_sample_in_order(samples in 0..60_usize, batch in 1..70_usize) {
        let shard = every_other(samples);
        let batches: Vec<Batch> = shard.in_order(size(batch)).collect();
        prop_assert_eq!(batches.len(), samples.div_ceil(batch));
        prop_assert!(batches.iter().rev().skip(1).all(|full| full.len() == batch));
        prop_assert_eq!(ids(batches.into_iter()), (0..samples as u64).map(|id| 2 * id).collect::<Vec<_>>());
    }

    #[test]
    fn ids_inputs_and_targets_belong_together(samples in 1..60_usize, batch in 1..70_usize, seed: u64) {
        let shard = every_other(samples);
        for batch in shard.batches(size(batch), Remainder::Keep, Seed::new(seed)) {
            let expected: Vec<f32> = batch.ids.iter().map(|&id| 10.0 * id as f32).collect();
            prop_assert_eq!(batch.inputs, Inputs::Dense { values: expected.clone(), shape: vec![expected.len(), 1] });
            prop_assert_eq!(batch.targets, Targets::Classes(batch.ids.iter().map(|&id| id as i32).collect()));
        }
    }
}

#[test]
fn the_order_depends_on_the_seed_alone() {
    let shard = every_other(50);
    let epoch = |batch, seed| ids(shard.batches(size(batch), Remainder::Keep, Seed::new(seed)));
    assert_eq!(epoch(8, 1), epoch(8, 1));
    assert_eq!(epoch(8, 1), epoch(20, 1), "whatever the batch size");
    assert_ne!(epoch(8, 1), epoch(8, 2));
    assert_ne!(epoch(8, 1), sorted(epoch(8, 1)));
}

#[test]
fn pictures_are_scaled_channel_by_channel() {
    let scaling = Scaling { mean: vec![0.5, 0.0], deviation: vec![0.5, 2.0] };
    let images = Images { shape: [1, 2, 2], pixels: vec![0, 0, 0, 0, 16, 8, 4, 16], white: 16, scaling };
    let labels = Labels::Classes { names: vec!["zero".into(), "one".into()], values: vec![0, 1] };
    let shard = Shard::new(dataset(Samples::Images(images), labels), vec![1]).unwrap();
    let batch = shard.in_order(size(4)).next().unwrap();
    assert_eq!(batch.inputs, Inputs::Dense { values: vec![1.0, 0.25, -0.5, 0.5], shape: vec![1, 1, 2, 2] });
    assert_eq!(batch.targets, Targets::Classes(vec![1]));
}

#[test]
fn symbols_keep_their_rows() {
    let sequences = Sequences { length: 3, vocabulary: 10, symbols: vec![1, 2, 3, 4, 5, 6] };
    let labels = Labels::NextSymbols(vec![2, 3, 4, 5, 6, 0]);
    let shard = Shard::new(dataset(Samples::Sequences(sequences), labels), vec![1, 0]).unwrap();
    let batch = shard.in_order(size(2)).next().unwrap();
    assert_eq!(batch.inputs, Inputs::Symbols { values: vec![4, 5, 6, 1, 2, 3], shape: vec![2, 3] });
    assert_eq!(batch.targets, Targets::Symbols { values: vec![5, 6, 0, 2, 3, 4], shape: vec![2, 3] });
}

#[test]
fn a_sample_that_the_data_set_does_not_have_is_refused() {
    let error = Shard::new(tens(4), vec![0, 4]).unwrap_err();
    assert_eq!(error.to_string(), "sample `4` is not below the `4` samples of `synthetic`");
}
