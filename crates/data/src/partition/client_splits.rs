//! The outcome of a partition.
use serde::{Deserialize, Serialize};

/// Who holds which samples: the clients that take part, and the unseen ones, which are kept out of training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientSplits {
    /// Who takes part in training.
    pub clients: Vec<ClientIndices>,
    /// Who does not: empty until [`ClientSplits::hold_out`] moves clients here.
    pub unseen: Vec<ClientIndices>,
}

/// One client's samples, as ascending indices into the data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientIndices {
    /// The owner's name where the data came with owners, else a number such as `client-07`.
    pub name: String,
    /// What it learns from; never empty, unless its samples are elsewhere.
    pub train: Vec<u32>,
    /// What it may tune on.
    pub validation: Vec<u32>,
    /// What it is evaluated by.
    pub test: Vec<u32>,
}
