//! Who holds how much of what, for tables and drawings.
use serde::{Deserialize, Serialize};

use super::client_splits::ClientIndices;
use crate::{Dataset, Labels, Spread};

/// Samples per client and class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// The class names; empty where samples do not have one class each.
    pub classes: Vec<String>,
    /// One entry a client, in the order given.
    pub clients: Vec<ClientTally>,
}

/// What one client holds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientTally {
    /// The client's name.
    pub name: String,
    /// Training samples.
    pub train: Counts,
    /// Validation samples.
    pub validation: Counts,
    /// Test samples.
    pub test: Counts,
}

/// How many samples, and how many of each class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// All of them.
    pub samples: usize,
    /// One count a class, in the order of [`Tally::classes`]; empty where samples do not have one class each.
    pub by_class: Vec<usize>,
}

/// A tally in a few numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PartitionSummary {
    /// Training samples a client.
    pub train_samples: Spread,
    /// Validation samples a client.
    pub validation_samples: Spread,
    /// Test samples a client.
    pub test_samples: Spread,
    /// Different labels among a client's training samples, where samples have one class each.
    pub distinct_labels: Option<Spread>,
}

impl Tally {
    /// Counts what each of `clients` holds of `dataset`.
    pub fn of(dataset: &Dataset, clients: &[ClientIndices]) -> Self {
        let classes = match &dataset.labels {
            Labels::Classes { names, .. } => names.clone(),
            Labels::NextSymbols(_) => Vec::new(),
        };
        let count = |indices: &[u32]| Counts::of(indices, dataset.classes().unwrap_or_default(), classes.len());
        let tally = |client: &ClientIndices| ClientTally {
            name: client.name.clone(),
            train: count(&client.train),
            validation: count(&client.validation),
            test: count(&client.test),
        };
        let clients = clients.iter().map(tally).collect();
        Self { classes, clients }
    }

    /// The spread of everything counted over the clients; `None` where there are no clients.
    pub fn summary(&self) -> Option<PartitionSummary> {
        let over = |number: fn(&ClientTally) -> usize| Spread::of(self.clients.iter().map(number));
        let distinct_labels = over(|client| client.train.distinct()).filter(|_| !self.classes.is_empty());
        Some(PartitionSummary {
            train_samples: over(|client| client.train.samples)?,
            validation_samples: over(|client| client.validation.samples)?,
            test_samples: over(|client| client.test.samples)?,
            distinct_labels,
        })
    }
}

impl ClientTally {
    /// Whether its samples were there to be counted: every client has some to train on.
    pub fn is_known(&self) -> bool {
        self.train.samples > 0
    }
}

impl Counts {
    fn of(indices: &[u32], labels: &[u16], classes: usize) -> Self {
        let mut by_class = vec![0; classes];
        if classes > 0 {
            indices.iter().for_each(|&sample| by_class[usize::from(labels[sample as usize])] += 1);
        }
        Self { samples: indices.len(), by_class }
    }

    /// How many classes occur.
    pub fn distinct(&self) -> usize {
        self.by_class.iter().filter(|&&count| count > 0).count()
    }
}
