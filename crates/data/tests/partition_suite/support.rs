//! Data sets made of nothing but labels.
use std::collections::BTreeSet;

use fedeq_data::partition::{ClientIndices, ClientSplits, Partition, Split};
use fedeq_data::{Dataset, Labels, Owners, Samples, Seed, Vectors};

/// A data set whose samples are their own numbers.
pub(crate) fn labelled(classes: usize, values: Vec<u16>, test_start: Option<usize>) -> Dataset {
    let names = (0..classes).map(|class| format!("class {class}")).collect();
    Dataset {
        name: "synthetic".into(),
        samples: Samples::Vectors(Vectors { width: 1, values: (0..values.len()).map(|sample| sample as f32).collect() }),
        labels: Labels::Classes { names, values },
        owners: None,
        test_start,
    }
}

/// Equally many samples of each class, classes taking turns, with a publisher's test set.
pub(crate) fn balanced(classes: usize, train_each: usize, test_each: usize) -> Dataset {
    let train = classes * train_each;
    let values = (0..train + classes * test_each).map(|sample| (sample % classes) as u16).collect();
    labelled(classes, values, Some(train))
}

/// As [`balanced`], without a test set of the publisher's.
pub(crate) fn undivided(classes: usize, each: usize) -> Dataset {
    Dataset { test_start: None, ..balanced(classes, each, 0) }
}

/// Owner number `i` has `sizes[i]` samples.
pub(crate) fn owned(sizes: &[usize]) -> Dataset {
    let of: Vec<u32> = sizes.iter().enumerate().flat_map(|(owner, &size)| vec![owner as u32; size]).collect();
    let names = (0..sizes.len()).map(|owner| format!("owner {owner}")).collect();
    let values = (0..of.len()).map(|sample| (sample % 3) as u16).collect();
    Dataset { owners: Some(Owners { names, of }), ..labelled(3, values, None) }
}

pub(crate) fn assign(partition: &Partition, dataset: &Dataset, seed: u64) -> ClientSplits {
    partition.assign(dataset, &Split::default(), Seed::new(seed)).expect("a request that can be met")
}

/// The problem and the remedy of a request that cannot be met.
pub(crate) fn refusal(partition: &Partition, dataset: &Dataset, split: &Split) -> (String, String) {
    let error = partition.assign(dataset, split, Seed::new(0)).expect_err("a request that cannot be met");
    assert!(matches!(error, fedeq_data::Error::Unmeetable { .. }), "{error:?}");
    (error.to_string(), error.hint())
}

/// Everything one client holds.
pub(crate) fn all_of(client: &ClientIndices) -> impl Iterator<Item = u32> {
    client.train.iter().chain(&client.validation).chain(&client.test).copied()
}

/// The different labels of some samples.
pub(crate) fn distinct(dataset: &Dataset, samples: &[u32]) -> BTreeSet<u16> {
    let classes = dataset.classes().expect("classes");
    samples.iter().map(|&sample| classes[sample as usize]).collect()
}

/// How many of some samples have each label.
pub(crate) fn histogram(dataset: &Dataset, samples: &[u32], classes: usize) -> Vec<usize> {
    let labels = dataset.classes().expect("classes");
    let mut counts = vec![0; classes];
    samples.iter().for_each(|&sample| counts[usize::from(labels[sample as usize])] += 1);
    counts
}
