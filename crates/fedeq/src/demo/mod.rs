//! The demonstration: four methods on the built-in digits, side by side.
//!
//! Thirty clients hold at most three different digits each, and about nine samples to learn from. Everybody trains alone (Local), all train one network (FedAvg), all train one body and each
//! keeps a head (FedRep), and FeDEQ does so with a network less than half as large, an equilibrium, agreed on by consensus.
//!
//! # Layout
//! - `contest`: the four experiments and the folder they go to
//! - `entry`: what came out of one of them
//! - `verdict`: what the results show, in words
//! - `report`: the same as a page to keep
mod contest;
mod entry;
mod report;
mod verdict;

pub use contest::{METHODS, experiment, free_folder};
pub use entry::{COLUMNS, Entry};
pub use report::write_report;
pub use verdict::verdict;
