//! Disjoint, covering, reproducible: for every rule, every split and any labels.
use fedeq_data::partition::{Partition, Pick, Split};
use fedeq_data::{Dataset, Owners, Seed};
use proptest::prelude::*;

use crate::support::{all_of, balanced, labelled};

/// Any labels, with every class present in the training part so that any rule by labels applies.
fn datasets() -> impl Strategy<Value = Dataset> {
    (2..7_usize, 60..200_usize, any::<bool>()).prop_flat_map(|(classes, samples, divided)| {
        prop::collection::vec(0..classes as u16, samples).prop_map(move |mut values| {
            values.splice(0..0, (0..30 * classes).map(|sample| (sample % classes) as u16));
            let of = (0..values.len()).map(|sample| sample as u32 % 5).collect();
            let names = (0..5).map(|owner| format!("owner {owner}")).collect();
            let test_start = divided.then_some(values.len() * 3 / 4);
            Dataset { owners: Some(Owners { names, of }), ..labelled(classes, values, test_start) }
        })
    })
}

fn partitions() -> impl Strategy<Value = Partition> {
    prop_oneof![
        Just(Partition::Natural { clients: None, pick: Pick::First, minimum: 1 }),
        (4..9_usize, 1..3_usize).prop_map(|(clients, shards)| Partition::LabelShards { clients, shards }),
        (4..9_usize, 1..3_usize).prop_map(|(clients, labels)| Partition::DistinctLabels { clients, labels }),
        (1..9_usize, 0.3..10.0).prop_map(|(clients, alpha)| Partition::Dirichlet { clients, alpha, minimum: 1 }),
        (1..9_usize, 0.3..10.0).prop_map(|(clients, alpha)| Partition::QuantitySkew { clients, alpha, minimum: 1 }),
        (1..30_usize).prop_map(|clients| Partition::Temporal { clients }),
        (1..30_usize).prop_map(|clients| Partition::Iid { clients }),
    ]
}

fn splits() -> impl Strategy<Value = Split> {
    (0.0..0.45, prop::option::of(0.0..0.45)).prop_map(|(validation, test)| Split { validation, test })
}

/// Fewer slots than classes is a request that rightly fails.
fn can_be_met(partition: &Partition, dataset: &Dataset) -> bool {
    let classes = dataset.classes().into_iter().flatten().max().map_or(0, |&largest| usize::from(largest) + 1);
    match *partition {
        Partition::LabelShards { clients, shards: labels } | Partition::DistinctLabels { clients, labels } => {
            clients * labels >= classes
        }
        _ => true,
    }
}

proptest! {
    #[test]
    fn every_sample_is_given_exactly_once(
        dataset in datasets(), partition in partitions(), split in splits(), seed in any::<u64>()
    ) {
        prop_assume!(can_be_met(&partition, &dataset));
        let federation = partition.assign(&dataset, &split, Seed::new(seed)).unwrap();
        let mut given: Vec<u32> = federation.clients.iter().flat_map(all_of).collect();
        given.sort_unstable();
        prop_assert_eq!(given, (0..dataset.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn every_client_has_a_name_of_its_own_and_something_to_train_on(
        dataset in datasets(), partition in partitions(), split in splits(), seed in any::<u64>()
    ) {
        prop_assume!(can_be_met(&partition, &dataset));
        let clients = partition.assign(&dataset, &split, Seed::new(seed)).unwrap().clients;
        prop_assert!(clients.iter().all(|client| !client.train.is_empty()));
        prop_assert!(clients.is_sorted_by(|a, b| a.name < b.name));
    }

    #[test]
    fn equal_seeds_give_equal_federations(
        dataset in datasets(), partition in partitions(), split in splits(), seed in any::<u64>()
    ) {
        prop_assume!(can_be_met(&partition, &dataset));
        let assign = || partition.assign(&dataset, &split, Seed::new(seed)).unwrap();
        prop_assert_eq!(assign(), assign());
    }

    #[test]
    fn the_publishers_division_is_kept_unless_a_test_fraction_is_asked_for(
        dataset in datasets(), partition in partitions(), validation in 0.0..0.9, seed in any::<u64>()
    ) {
        prop_assume!(can_be_met(&partition, &dataset) && dataset.test_start.is_some());
        let start = dataset.test_start.unwrap() as u32;
        let split = Split { validation, test: None };
        for client in partition.assign(&dataset, &split, Seed::new(seed)).unwrap().clients {
            prop_assert!(client.train.iter().chain(&client.validation).all(|&sample| sample < start));
            prop_assert!(client.test.iter().all(|&sample| sample >= start));
        }
    }
}

#[test]
fn different_seeds_give_different_federations() {
    let dataset = balanced(10, 50, 10);
    for partition in [
        Partition::LabelShards { clients: 20, shards: 2 },
        Partition::DistinctLabels { clients: 20, labels: 2 },
        Partition::Dirichlet { clients: 5, alpha: 1.0, minimum: 1 },
        Partition::Iid { clients: 20 },
    ] {
        let assign = |seed| partition.assign(&dataset, &Split::default(), Seed::new(seed)).unwrap();
        assert_ne!(assign(1), assign(2), "{partition:?}");
    }
}

#[test]
fn iid_clients_are_of_one_size_to_within_one_sample() {
    let dataset = balanced(3, 35, 7);
    let clients = Partition::Iid { clients: 8 }.assign(&dataset, &Split::default(), Seed::new(0)).unwrap().clients;
    assert!(clients.iter().all(|client| [13, 14].contains(&client.train.len())));
    assert!(clients.iter().all(|client| [2, 3].contains(&client.test.len())));
}
