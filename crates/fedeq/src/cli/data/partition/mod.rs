//! `fedeq data partition`.
mod picture;
mod report;
mod rule;

use clap::Args;
use fedeq_data::partition::{HoldOut, Split};
use fedeq_data::{Seed, source::DatasetSummary};

use super::set::Set;
use crate::cli::failure::Outcome;
use crate::cli::output::{PictureArgs, print, print_json, save};
use report::PartitionReport;
use rule::RuleArgs;

/// Divides a data set among clients, and draws who holds which labels.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq data partition --clients 20 --labels 2 --out digits.png
  fedeq data partition cifar10 --rule label-shards --clients 100 --labels 5
  fedeq data partition cifar100 --rule dirichlet --alpha 0.3 --clients 50 --unseen 0.1
  fedeq data partition femnist --rule natural --clients 200 --json")]
pub(in crate::cli) struct DataPartitionCommand {
    #[command(flatten)]
    set: Set,
    #[command(flatten)]
    rule: RuleArgs,
    /// The seed of the partition: the same seed gives the same clients
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Keep this fraction of the clients out of training, as unseen clients
    #[arg(long, value_name = "F", default_value_t = 0.0, allow_negative_numbers = true)]
    unseen: f64,
    /// A heat map of clients and labels; for data without classes, how much each client holds
    #[command(flatten)]
    picture: PictureArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &DataPartitionCommand) -> Outcome<()> {
    let dataset = arguments.set.load()?;
    let partition = arguments.rule.partition(DatasetSummary::of(&dataset).clients.is_some())?;
    let seed = Seed::new(arguments.seed);
    let federation = partition.assign(&dataset, &Split::default(), seed)?;
    let federation = federation.hold_out(HoldOut::Fraction(arguments.unseen), seed)?;
    let report = PartitionReport::of(&dataset, partition, arguments.seed, &federation);
    if let Some(path) = arguments.picture.path(arguments.set.name(), "partition", arguments.json) {
        save(picture::draw(&report, arguments.set.name())?, &path)?;
    }
    if arguments.json { print_json(&report) } else { print(&report.text()) }
}
