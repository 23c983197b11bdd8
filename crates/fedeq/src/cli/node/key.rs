//! `fedeq node key`.
use std::path::PathBuf;

use clap::Args;
use fedeq_flower::store::NodeStore;

use super::refused;
use crate::cli::failure::Outcome;
use crate::cli::output::print;

#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq node key --state node-7 > node-7.pub
  flwr supernode register node-7.pub")]
pub(super) struct Arguments {
    /// The folder of the node; it is created, with a new key, if it does not exist
    #[arg(long, value_name = "DIR")]
    state: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let key = NodeStore::key_in(&arguments.state).map_err(refused)?;
    print(&(key.public_line() + "\n"))
}
