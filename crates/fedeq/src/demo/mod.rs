//! The demonstration: four methods on the built-in digits, side by side, over several seeds.
//!
//! Thirty clients hold at most three different digits each, and about nine samples to learn from. Each trains alone (Local), all train one network (FedAvg), all train one body and each
//! keeps a head (FedRep), and FeDEQ does so with a network less than half as large, an equilibrium, agreed on by consensus.
//!
//! # Layout
//! - `contest`: the experiments and the folders they go to
//! - `method_result`: what came out of one method
//! - `verdict`: what the results show, in words
//! - `report`: the same as a page to keep
mod contest;
mod method_result;
mod report;
mod verdict;

pub use contest::{METHODS, SEEDS, experiment, free_folder, run_folder};
pub use method_result::{COLUMNS, LEGEND, MethodResult};
pub use report::write_report;
pub use verdict::verdict;
