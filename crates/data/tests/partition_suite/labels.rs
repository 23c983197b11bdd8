//! Partitions by label: the FedRep rule and its strict sibling.
use std::collections::BTreeSet;

use fedeq_data::partition::{Partition, Split, Tally};
use fedeq_data::{Dataset, Seed};
use proptest::prelude::*;

use crate::support::{assign, balanced, distinct, histogram, labelled};

/// What the FedRep rule yields: classes, shards a client, shards a class, training and test images a shard; 100 clients.
const FEDREP: [(usize, usize, usize, usize, usize); 4] =
    [(10, 2, 20, 250, 50), (10, 5, 50, 100, 20), (100, 5, 5, 100, 20), (100, 20, 20, 25, 5)];

fn cifar(classes: usize) -> Dataset {
    balanced(classes, 50_000 / classes, 10_000 / classes)
}

#[test]
fn label_shards_have_the_sizes_of_the_fedrep_table() {
    for (classes, shards, per_class, train, test) in FEDREP {
        let dataset = cifar(classes);
        let federation = assign(&Partition::LabelShards { clients: 100, shards }, &dataset, 3);
        let mut dealt = vec![0; classes];
        for client in &federation.clients {
            assert_eq!((client.train.len(), client.test.len()), (500, 100));
            let (trained, tested) = (histogram(&dataset, &client.train, classes), histogram(&dataset, &client.test, classes));
            for class in 0..classes {
                assert_eq!((trained[class] % train, tested[class] % test), (0, 0), "whole shards only");
                assert_eq!(trained[class] / train, tested[class] / test, "one label table for training and test");
                dealt[class] += trained[class] / train;
            }
        }
        assert!(dealt.iter().all(|&dealt| dealt == per_class));
    }
}

#[test]
fn a_shard_is_a_run_of_its_class_in_the_data_sets_order() {
    // Classes take turns: shard number s of a class is its samples 4 s to 4 s + 3, two apart in the data set.
    let dataset = balanced(2, 12, 6);
    for client in assign(&Partition::LabelShards { clients: 6, shards: 1 }, &dataset, 5).clients {
        assert_eq!(client.train.len(), 4);
        assert!(client.train.windows(2).all(|pair| pair[1] == pair[0] + 2), "{:?}", client.train);
        assert_eq!(client.train[0] / 2 % 4, 0, "{:?}", client.train);
    }
}

#[test]
fn samples_left_over_go_one_each_to_the_first_shards() {
    let dataset = labelled(1, vec![0; 11], Some(11));
    let split = Split { validation: 0.0, test: Some(0.0) };
    let federation = Partition::LabelShards { clients: 3, shards: 1 }.assign(&dataset, &split, Seed::new(0)).unwrap();
    let hands: BTreeSet<Vec<u32>> = federation.clients.into_iter().map(|client| client.train).collect();
    assert_eq!(hands, BTreeSet::from([vec![0, 1, 2, 9], vec![3, 4, 5, 10], vec![6, 7, 8]]));
}

#[test]
fn where_slots_do_not_come_out_even_the_largest_classes_are_cut_once_more() {
    let sizes = [20, 60, 40];
    let values = sizes.iter().enumerate().flat_map(|(class, &size)| vec![class as u16; size]).collect();
    let dataset = labelled(3, values, Some(120));
    for seed in 0..20 {
        let federation = assign(&Partition::DistinctLabels { clients: 4, labels: 2 }, &dataset, seed);
        let holders =
            |class| federation.clients.iter().filter(|client| distinct(&dataset, &client.train).contains(&class)).count();
        assert_eq!([0, 1, 2].map(holders), [2, 3, 3]);
    }
}

#[test]
fn fedrep_clients_with_five_shards_of_ten_classes_hold_four_labels_and_a_bit() {
    let dataset = cifar(10);
    let means = (0..20).map(|seed| {
        let federation = assign(&Partition::LabelShards { clients: 100, shards: 5 }, &dataset, seed);
        Tally::of(&dataset, &federation.clients).summary().unwrap().distinct_labels.unwrap().mean
    });
    // Ten classes of 50 slots each: a given class is missing from a row with probability C(450, 5) / C(500, 5).
    let missing: f64 = (0..5).map(|slot| f64::from(450 - slot) / f64::from(500 - slot)).product();
    let expected = 10.0 * (1.0 - missing);
    let mean = means.sum::<f64>() / 20.0;
    assert!((expected - 4.1).abs() < 0.05);
    assert!((mean - expected).abs() < 0.06, "{mean} is far from {expected}");
}

#[test]
fn with_as_many_distinct_labels_as_classes_every_client_holds_all() {
    let dataset = balanced(7, 30, 15);
    let federation = assign(&Partition::DistinctLabels { clients: 15, labels: 7 }, &dataset, 0);
    assert!(federation.clients.iter().all(|client| distinct(&dataset, &client.train).len() == 7));
}

#[test]
fn distinct_labels_pair_classes_freely() {
    let dataset = balanced(4, 100, 0);
    let federation = assign(&Partition::DistinctLabels { clients: 100, labels: 2 }, &dataset, 1);
    let pairs: BTreeSet<_> = federation.clients.iter().map(|client| distinct(&dataset, &client.train)).collect();
    assert_eq!(pairs.len(), 6, "all pairs of four classes occur");
}

proptest! {
    #[test]
    fn distinct_labels_are_exactly_as_many_as_asked_for_and_classes_are_owned_evenly(
        classes in 1..12_usize, labels in 1..12_usize, clients in 1..40_usize, seed in any::<u64>()
    ) {
        prop_assume!(labels <= classes && clients * labels >= classes);
        let dataset = balanced(classes, 40, 40);
        let federation = assign(&Partition::DistinctLabels { clients, labels }, &dataset, seed);
        let mut owners = vec![0; classes];
        for client in &federation.clients {
            let held = distinct(&dataset, &client.train);
            prop_assert_eq!(held.len(), labels);
            prop_assert_eq!(&held, &distinct(&dataset, &client.test));
            held.iter().for_each(|&class| owners[usize::from(class)] += 1);
        }
        let least = clients * labels / classes;
        prop_assert!(owners.iter().all(|&owners| owners == least || owners == least + 1), "{owners:?}");
    }

    #[test]
    fn label_shards_test_a_client_on_the_labels_it_trains_on_and_on_no_more_than_asked_for(
        classes in 1..12_usize, shards in 1..12_usize, clients in 1..40_usize, seed in any::<u64>()
    ) {
        prop_assume!(shards <= classes && clients * shards >= classes);
        let dataset = balanced(classes, 480, 480);
        for client in assign(&Partition::LabelShards { clients, shards }, &dataset, seed).clients {
            let held = distinct(&dataset, &client.train);
            prop_assert!(held.len() <= shards);
            prop_assert_eq!(held, distinct(&dataset, &client.test));
        }
    }
}
