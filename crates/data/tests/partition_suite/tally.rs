//! Counting who holds what.
use fedeq_data::Spread;
use fedeq_data::partition::{ClientIndices, Partition, Tally};
use fedeq_data::{Dataset, Labels, Samples, Sequences};

use crate::support::{assign, balanced, labelled};

fn client(name: &str, train: &[u32], test: &[u32]) -> ClientIndices {
    ClientIndices { name: name.into(), train: train.to_vec(), validation: vec![], test: test.to_vec() }
}

#[test]
fn every_sample_is_counted_under_its_client_and_class() {
    let dataset = labelled(3, vec![0, 1, 1, 2, 0, 1], None);
    let tally = Tally::of(&dataset, &[client("a", &[0, 1, 2], &[5]), client("b", &[3], &[4])]);
    assert_eq!(tally.classes, ["class 0", "class 1", "class 2"]);
    assert_eq!(tally.clients[0].train.by_class, [1, 2, 0]);
    assert_eq!(tally.clients[0].test.by_class, [0, 1, 0]);
    assert_eq!((tally.clients[1].name.as_str(), tally.clients[1].train.samples), ("b", 1));
}

#[test]
fn the_summary_spreads_over_clients() {
    let dataset = labelled(3, vec![0, 1, 1, 2, 0, 1], None);
    let summary = Tally::of(&dataset, &[client("a", &[0, 1, 2], &[5]), client("b", &[3], &[4])]).summary().unwrap();
    assert_eq!(summary.train_samples, Spread { minimum: 1.0, mean: 2.0, maximum: 3.0, deviation: 1.0 });
    assert_eq!(summary.test_samples, Spread { minimum: 1.0, mean: 1.0, maximum: 1.0, deviation: 0.0 });
    assert_eq!(summary.distinct_labels, Some(Spread { minimum: 1.0, mean: 1.5, maximum: 2.0, deviation: 0.5 }));
}

#[test]
fn sequences_are_tallied_by_samples_only() {
    let dataset = Dataset {
        samples: Samples::Sequences(Sequences { length: 2, vocabulary: 5, symbols: vec![1; 40] }),
        labels: Labels::NextSymbols(vec![2; 40]),
        ..labelled(1, vec![], None)
    };
    let federation = assign(&Partition::Iid { clients: 2 }, &dataset, 0);
    let tally = Tally::of(&dataset, &federation.clients);
    assert!(tally.classes.is_empty());
    assert!(tally.clients.iter().all(|client| client.train.samples == 8 && client.train.by_class.is_empty()));
    assert_eq!(tally.summary().unwrap().distinct_labels, None);
}

#[test]
fn without_clients_there_is_no_summary() {
    assert_eq!(Tally::of(&balanced(2, 2, 0), &[]).summary(), None);
}
