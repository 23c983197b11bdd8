//! Training, validation and test of one client.
use fedeq_data::partition::{DEFAULT_TEST, Partition, Split};
use fedeq_data::{Dataset, Labels, Seed};
use proptest::prelude::*;

use crate::support::{all_of, balanced, histogram, undivided};

const ALL: Partition = Partition::Iid { clients: 1 };

proptest! {
    #[test]
    fn parts_have_the_sizes_asked_for_and_each_class_gives_its_due(
        classes in 1..9_usize, each in 1..30_usize, validation in 0.0..0.49_f64, test in 0.0..0.49_f64, seed in any::<u64>()
    ) {
        let dataset = undivided(classes, each);
        let samples = (classes * each) as f64;
        prop_assume!((samples * validation).round() + (samples * test).round() < samples);
        let split = Split { validation, test: Some(test) };
        let client = ALL.assign(&dataset, &split, Seed::new(seed)).unwrap().clients.remove(0);
        prop_assert_eq!(client.test.len(), (samples * test).round() as usize);
        prop_assert_eq!(client.validation.len(), (samples * validation).round() as usize);
        let due = client.test.len() as f64 / classes as f64;
        for count in histogram(&dataset, &client.test, classes) {
            prop_assert!((count as f64 - due).abs() < 1.0 + 1e-9, "{} of a class, due {}", count, due);
        }
    }

    #[test]
    fn the_last_sample_is_never_set_aside(samples in 1..6_usize, validation in 0.0..0.5, test in 0.0..0.499) {
        let split = Split { validation, test: Some(test) };
        let client = ALL.assign(&undivided(1, samples), &split, Seed::new(0)).unwrap().clients.remove(0);
        prop_assert!(!client.train.is_empty());
        prop_assert_eq!(all_of(&client).count(), samples);
    }
}

#[test]
fn without_a_publishers_test_set_the_default_fraction_is_set_aside() {
    let client = ALL.assign(&undivided(5, 20), &Split::default(), Seed::new(0)).unwrap().clients.remove(0);
    assert_eq!(client.test.len() as f64, 100.0 * DEFAULT_TEST);
    assert!(client.validation.is_empty());
}

#[test]
fn validation_is_cut_from_the_training_set_where_the_publisher_keeps_a_test_set() {
    let split = Split { validation: 0.1, test: None };
    let client = ALL.assign(&balanced(5, 20, 6), &split, Seed::new(0)).unwrap().clients.remove(0);
    assert_eq!((client.train.len(), client.validation.len(), client.test.len()), (90, 10, 30));
}

#[test]
fn a_test_fraction_asked_for_divides_the_publishers_sets_anew() {
    let split = Split { validation: 0.0, test: Some(0.5) };
    let client = ALL.assign(&balanced(5, 20, 6), &split, Seed::new(0)).unwrap().clients.remove(0);
    assert_eq!((client.train.len(), client.test.len()), (65, 65));
    assert!(client.train.iter().any(|&sample| sample >= 100));
}

#[test]
fn labels_that_are_no_classes_are_split_as_well() {
    let dataset = Dataset { labels: Labels::NextSymbols(vec![1; 100]), ..undivided(5, 20) };
    let split = Split { validation: 0.1, test: Some(0.2) };
    let client = ALL.assign(&dataset, &split, Seed::new(0)).unwrap().clients.remove(0);
    assert_eq!((client.train.len(), client.validation.len(), client.test.len()), (70, 10, 20));
}
