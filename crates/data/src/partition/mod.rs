//! Who holds what: pure functions from labels and a seed to the samples of each client.
//!
//! A [`Partition`] is the rule, a [`Split`] says how a client's samples are divided into training, validation and test, and
//! [`Partition::assign`] turns both into a [`ClientSplits`]: for each client, indices into the [`Dataset`](crate::Dataset).
//!
//! Whatever the rule, no sample is given to two clients or to two parts of one client, and every sample is given to a client
//! (`natural` with fewer clients than owners gives out the samples of the chosen ones; `own` gives out nothing where no client is).
//!
//! Logarithms come from the crate `libm`: the C libraries of two machines may differ in the last digit, and so might who holds what.
//! (The gamma variates of `dirichlet` are another crate's and still come from there.)
//!
//! # Layout
//! `rule` is what a user writes; each rule lays a `plan` and the plan deals a pool of samples to the clients. The plan is laid
//! once and dealt twice, to the training and to the test samples, which is why a client is tested on the labels it trains on.
mod classes;
mod client_splits;
mod dirichlet;
mod hold_out;
mod iid;
mod label_slots;
mod label_table;
mod limit;
mod natural;
mod own;
mod plan;
mod pools;
mod quantity;
mod rule;
mod split;
mod tally;

pub use client_splits::{ClientIndices, ClientSplits};
pub use hold_out::HoldOut;
pub use limit::Limit;
pub use natural::Pick;
pub use rule::Partition;
pub use split::{DEFAULT_TEST, Split};
pub use tally::{ClientTally, Counts, PartitionSummary, Tally};
