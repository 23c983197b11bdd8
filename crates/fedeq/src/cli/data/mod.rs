//! `fedeq data ...`: find, fetch, look at, and divide.
mod get;
mod inspect;
mod list;
mod partition;
mod progress;
mod set;
mod sheet;

use clap::Subcommand;

use super::failure::Outcome;

/// Shown below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  fedeq data list
  fedeq data get cifar10
  fedeq data inspect cifar10 --out cifar10.png
  fedeq data partition cifar10 --clients 100 --labels 2 --out clients.png";

/// What can be done with data.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum Command {
    /// List the data sets, and which of them are in the data folder.
    List(list::DataListCommand),
    /// Fetch a data set from its publisher, or bring a copy you already have.
    Get(get::DataGetCommand),
    /// Count what a data set holds, and draw what it looks like.
    Inspect(inspect::DataInspectCommand),
    /// Divide a data set among clients, and draw who holds which labels.
    Partition(partition::DataPartitionCommand),
}

pub(super) fn run(command: &Command) -> Outcome<()> {
    match command {
        Command::List(arguments) => list::run(arguments),
        Command::Get(arguments) => get::run(arguments),
        Command::Inspect(arguments) => inspect::run(arguments),
        Command::Partition(arguments) => partition::run(arguments),
    }
}
