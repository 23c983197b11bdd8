//! Clients as the source names them.
use fedeq_data::Dataset;
use fedeq_data::partition::{ClientSplits, Partition, Pick};

use crate::support::{all_of, assign, owned};

const SIZES: [usize; 6] = [10, 3, 8, 20, 1, 9];

fn names(federation: &ClientSplits) -> Vec<&str> {
    federation.clients.iter().map(|client| client.name.as_str()).collect()
}

#[test]
fn a_client_holds_all_that_its_owner_produced_and_nothing_else() {
    let federation = assign(&Partition::Natural { clients: None, pick: Pick::First, minimum: 1 }, &owned(&SIZES), 0);
    let mut next = 0;
    for (client, size) in federation.clients.iter().zip(SIZES) {
        let mut samples: Vec<u32> = all_of(client).collect();
        samples.sort_unstable();
        assert_eq!(samples, (next..next + size as u32).collect::<Vec<_>>());
        next += size as u32;
    }
}

#[test]
fn owners_below_the_minimum_are_passed_over() {
    let federation = assign(&Partition::Natural { clients: Some(3), pick: Pick::First, minimum: 8 }, &owned(&SIZES), 0);
    assert_eq!(names(&federation), ["owner 0", "owner 2", "owner 3"]);
}

#[test]
fn the_minimum_counts_training_samples_only() {
    let dataset = Dataset { test_start: Some(44), ..owned(&SIZES) };
    let federation = assign(&Partition::Natural { clients: None, pick: Pick::First, minimum: 3 }, &dataset, 0);
    assert_eq!(names(&federation), ["owner 0", "owner 1", "owner 2", "owner 3"], "owner 5 has 2 samples before the test set");
}

#[test]
fn a_random_pick_varies_with_the_seed_and_stays_in_the_sources_order() {
    let dataset = owned(&[5; 40]);
    let pick = |seed| assign(&Partition::Natural { clients: Some(10), pick: Pick::Random, minimum: 1 }, &dataset, seed);
    let order = |federation: &ClientSplits| -> Vec<u32> { federation.clients.iter().map(|client| client.train[0] / 5).collect() };
    assert_ne!(pick(1), pick(2));
    assert_eq!(order(&pick(1)).len(), 10);
    assert!(order(&pick(1)).is_sorted());
}
