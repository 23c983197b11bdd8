//! The Dirichlet rule: concentration, minimum, and training and test alike.
use fedeq_data::Seed;
use fedeq_data::partition::{Partition, Split, Tally};
use proptest::prelude::*;

use crate::support::{assign, balanced, histogram, labelled};

const CLASSES: usize = 10;

/// The mean over clients of the largest class's part of its samples: 0.1 where classes are mixed evenly, 1 where each has one.
fn concentration(alpha: f64) -> f64 {
    let dataset = balanced(CLASSES, 500, 0);
    let federation = assign(&Partition::Dirichlet { clients: 10, alpha, minimum: 1 }, &dataset, 11);
    let largest = federation.clients.iter().map(|client| {
        let counts = histogram(&dataset, &client.train, CLASSES);
        *counts.iter().max().unwrap() as f64 / counts.iter().sum::<usize>() as f64
    });
    largest.sum::<f64>() / 10.0
}

#[test]
fn a_large_alpha_mixes_evenly_and_a_small_one_concentrates() {
    let [even, usual, narrow] = [1e6, 0.5, 0.08].map(concentration);
    assert!(even < 0.11, "{even}");
    assert!((0.2..0.6).contains(&usual), "{usual}");
    assert!(narrow > 0.6, "{narrow}");
}

#[test]
fn a_large_alpha_gives_every_client_the_same_number_of_samples() {
    let dataset = balanced(CLASSES, 500, 100);
    let federation = assign(&Partition::Dirichlet { clients: 10, alpha: 1e8, minimum: 1 }, &dataset, 0);
    let summary = Tally::of(&dataset, &federation.clients).summary().unwrap();
    assert!(summary.train_samples.deviation < 5.0, "{summary:?}");
}

#[test]
fn shares_vary_as_a_dirichlet_distribution_does() {
    // A share of Dirichlet(alpha, ..., alpha) over n clients has variance (n - 1) / (n^2 (n alpha + 1)).
    let (clients, alpha, each) = (4, 0.7, 2000);
    let dataset = balanced(CLASSES, each, 0);
    let shares: Vec<f64> = (0..60)
        .flat_map(|seed| assign(&Partition::Dirichlet { clients, alpha, minimum: 1 }, &dataset, seed).clients)
        .flat_map(|client| {
            let held: Vec<u32> = client.train.iter().chain(&client.test).copied().collect();
            histogram(&dataset, &held, CLASSES)
        })
        .map(|count| count as f64 / each as f64)
        .collect();
    let mean = 1.0 / clients as f64;
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / shares.len() as f64;
    let n = clients as f64;
    let expected = (n - 1.0) / (n * n * (n * alpha + 1.0));
    assert!((variance / expected - 1.0).abs() < 0.1, "{variance} is far from {expected}");
}

#[test]
fn training_and_test_follow_the_same_shares() {
    let dataset = balanced(CLASSES, 1000, 1000);
    for client in assign(&Partition::Dirichlet { clients: 20, alpha: 0.3, minimum: 1 }, &dataset, 4).clients {
        assert_eq!(histogram(&dataset, &client.train, CLASSES), histogram(&dataset, &client.test, CLASSES));
    }
}

#[test]
fn a_tiny_alpha_is_drawn_without_losing_samples() {
    let dataset = balanced(CLASSES, 20, 0);
    let federation = assign(&Partition::Dirichlet { clients: 2, alpha: 1e-6, minimum: 1 }, &dataset, 0);
    let samples: usize = federation.clients.iter().map(|client| client.train.len() + client.test.len()).sum();
    assert_eq!(samples, 200);
}

proptest! {
    #[test]
    fn every_client_has_the_minimum_or_the_request_is_refused(
        clients in 1..20_usize, alpha in 0.05..5.0, minimum in 1..40_usize, seed in any::<u64>()
    ) {
        let dataset = balanced(5, 100, 5);
        let partition = Partition::Dirichlet { clients, alpha, minimum };
        if let Ok(federation) = partition.assign(&dataset, &Default::default(), fedeq_data::Seed::new(seed)) {
            prop_assert!(federation.clients.iter().all(|client| client.train.len() >= minimum));
        }
    }
}

#[test]
fn quantities_differ_by_alpha_and_kinds_do_not() {
    let dataset = labelled(4, (0..4000).map(|at| at % 4).collect(), None);
    let sizes = |alpha: f64| {
        let partition = Partition::QuantitySkew { clients: 10, alpha, minimum: 5 };
        let clients = partition.assign(&dataset, &Split::default(), Seed::new(3)).unwrap().clients;
        let mut sizes: Vec<usize> = clients.iter().map(|client| client.train.len()).collect();
        sizes.sort_unstable();
        // Whoever has much has about as much of every class.
        let largest = clients.iter().max_by_key(|client| client.train.len()).unwrap();
        let of_class = |class: u16| largest.train.iter().filter(|&&at| dataset.classes().unwrap()[at as usize] == class).count();
        assert!((0..4).all(|class| (0.15..0.35).contains(&(of_class(class) as f64 / largest.train.len() as f64))));
        sizes
    };
    let (skewed, even) = (sizes(0.5), sizes(1e6));
    assert!(skewed[9] > 5 * skewed[0] && skewed[0] >= 4, "{skewed:?}");
    assert!(even[9] - even[0] < 20, "{even:?}");
}

#[test]
fn time_goes_from_client_to_client() {
    let dataset = labelled(4, (0..100).map(|at| at % 4).collect(), None);
    let clients = Partition::Temporal { clients: 7 }.assign(&dataset, &Split::default(), Seed::new(3)).unwrap().clients;
    let spans: Vec<(u32, u32)> = clients
        .iter()
        .map(|client| {
            let all = || client.train.iter().chain(&client.validation).chain(&client.test).copied();
            (all().min().unwrap(), all().max().unwrap())
        })
        .collect();
    assert!(spans.windows(2).all(|pair| pair[0].1 < pair[1].0), "{spans:?}");
}
