//! Requests that cannot be met, and what is said about them.
use fedeq_data::partition::{Partition, Pick, Split};
use fedeq_data::{Dataset, Labels};

use crate::support::{balanced, labelled, owned, refusal, undivided};

fn refused(partition: Partition, dataset: &Dataset) -> (String, String) {
    refusal(&partition, dataset, &Split::default())
}

#[test]
fn no_clients_at_all() {
    for partition in [
        Partition::Iid { clients: 0 },
        Partition::LabelShards { clients: 0, shards: 2 },
        Partition::DistinctLabels { clients: 0, labels: 2 },
        Partition::Dirichlet { clients: 0, alpha: 1.0, minimum: 1 },
    ] {
        let (problem, remedy) = refused(partition, &balanced(10, 10, 10));
        assert_eq!(problem, "a federation of `0` clients holds nothing");
        assert_eq!(remedy, "ask for at least one client");
    }
}

#[test]
fn more_clients_than_training_samples() {
    for partition in [
        Partition::Iid { clients: 101 },
        Partition::LabelShards { clients: 101, shards: 2 },
        Partition::DistinctLabels { clients: 101, labels: 2 },
        Partition::Dirichlet { clients: 101, alpha: 1.0, minimum: 1 },
    ] {
        let (problem, remedy) = refused(partition, &balanced(10, 10, 10));
        assert_eq!(problem, "`101` clients cannot share `100` training samples: some would have none");
        assert_eq!(remedy, "ask for at most 100 clients, or use a larger data set");
    }
}

#[test]
fn more_labels_than_classes_or_none() {
    for labels in [0, 11] {
        let (problem, remedy) = refused(Partition::DistinctLabels { clients: 5, labels }, &balanced(10, 10, 10));
        assert_eq!(problem, format!("a client cannot hold `{labels}` labels of a data set with `10` classes"));
        assert_eq!(remedy, "ask for 1 to 10 labels a client");
        refused(Partition::LabelShards { clients: 5, shards: labels }, &balanced(10, 10, 10));
    }
}

#[test]
fn classes_without_an_owner() {
    let (problem, remedy) = refused(Partition::LabelShards { clients: 3, shards: 3 }, &balanced(10, 10, 10));
    assert_eq!(problem, "`3` clients with `3` labels each leave some of the `10` classes without an owner");
    assert_eq!(remedy, "ask for 4 clients or 4 labels a client");
}

#[test]
fn classes_too_small_for_their_shards() {
    let mut values = vec![0; 100];
    values.extend([1; 3]);
    let (problem, remedy) = refused(Partition::LabelShards { clients: 10, shards: 1 }, &labelled(2, values, None));
    assert_eq!(problem, "class `class 1` has `3` training samples, too few for `5` shards");
    assert_eq!(remedy, "ask for fewer clients or fewer labels a client");
}

#[test]
fn classes_that_are_tested_but_not_trained() {
    let mut values = vec![0; 20];
    values.extend([1; 5]);
    let (problem, remedy) = refused(Partition::LabelShards { clients: 2, shards: 1 }, &labelled(2, values, Some(20)));
    assert_eq!(problem, "class `class 1` has test samples but none to train on, so no client holds it");
    assert_eq!(remedy, "set a test fraction, so that training and test samples are divided again");
}

#[test]
fn a_concentration_that_is_none() {
    for alpha in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let (problem, _) = refused(Partition::Dirichlet { clients: 2, alpha, minimum: 1 }, &balanced(2, 10, 0));
        assert_eq!(problem, format!("`{alpha}` is no concentration of a Dirichlet distribution"));
    }
}

#[test]
fn a_minimum_that_the_samples_do_not_cover() {
    let (problem, remedy) = refused(Partition::Dirichlet { clients: 3, alpha: 1.0, minimum: 7 }, &balanced(2, 10, 0));
    assert_eq!(problem, "`3` clients with at least `7` samples each need more than the `20` there are");
    assert_eq!(remedy, "set `minimum` to at most 6, or ask for fewer clients");
    refused(Partition::Dirichlet { clients: 3, alpha: 1.0, minimum: usize::MAX }, &balanced(2, 10, 0));
}

#[test]
fn a_minimum_that_chance_does_not_grant() {
    let (problem, remedy) = refused(Partition::Dirichlet { clients: 50, alpha: 0.001, minimum: 1 }, &balanced(2, 100, 0));
    assert!(
        problem.starts_with("`100` draws with alpha `0.001` did not give each of `50` clients `1` training samples"),
        "{problem}"
    );
    assert_eq!(remedy, "raise `alpha`, lower `minimum`, or ask for fewer clients");
}

#[test]
fn a_minimum_of_nothing() {
    for partition in [
        Partition::Dirichlet { clients: 2, alpha: 1.0, minimum: 0 },
        Partition::Natural { clients: None, pick: Pick::First, minimum: 0 },
    ] {
        let (problem, _) = refused(partition, &owned(&[5, 5]));
        assert_eq!(problem, "a minimum of `0` samples would allow clients without data");
    }
}

#[test]
fn natural_clients_of_data_without_owners() {
    let (problem, remedy) = refused(Partition::Natural { clients: None, pick: Pick::First, minimum: 1 }, &balanced(2, 10, 0));
    assert_eq!(problem, "the rule `natural` needs to know whose each sample is, and `synthetic` does not say");
    assert_eq!(remedy, "use `label-shards`, `distinct-labels`, `dirichlet` or `iid`");
}

#[test]
fn more_natural_clients_than_there_are() {
    let natural = |clients, minimum| Partition::Natural { clients, pick: Pick::Random, minimum };
    let dataset = owned(&[5, 9, 7]);
    let (problem, remedy) = refused(natural(Some(3), 6), &dataset);
    assert_eq!(problem, "`3` clients were asked for, and `2` owners have at least `6` training samples");
    assert_eq!(remedy, "ask for 1 to 2 clients, or lower `minimum`");
    refused(natural(Some(0), 1), &dataset);
    assert_eq!(refused(natural(None, 10), &dataset).0, "no owner has at least `10` training samples");
}

#[test]
fn rules_by_label_on_data_without_classes() {
    let symbols = Dataset { labels: Labels::NextSymbols(vec![0; 20]), ..undivided(2, 10) };
    for (dataset, kind) in [(&symbols, "sequences of symbols")] {
        for partition in [
            Partition::LabelShards { clients: 2, shards: 1 },
            Partition::DistinctLabels { clients: 2, labels: 1 },
            Partition::Dirichlet { clients: 2, alpha: 1.0, minimum: 1 },
        ] {
            let rule = partition.rule();
            let (problem, _) = refused(partition, dataset);
            assert_eq!(problem, format!("the rule `{rule}` needs one class a sample, but `synthetic` is labelled with {kind}"));
        }
    }
}

#[test]
fn fractions_that_are_none_or_leave_nothing_to_train_on() {
    let refused = |validation, test| refusal(&Partition::Iid { clients: 1 }, &undivided(2, 10), &Split { validation, test }).0;
    assert_eq!(refused(0.6, Some(0.5)), "validation `0.6` and test `0.5` leave nothing to train on");
    assert_eq!(refused(1.0, Some(0.0)), "validation `1` and test `0` leave nothing to train on");
    assert_eq!(refused(-0.1, None), "the validation part `-0.1` is not a fraction");
    assert_eq!(refused(0.1, Some(f64::NAN)), "the test part `NaN` is not a fraction");
    assert_eq!(refused(0.9, None), "validation `0.9` and test `0.2` leave nothing to train on");
}
