//! `fedeq data inspect`.
mod report;
mod selection;

use clap::Args;

use super::set::Set;
use super::sheet;
use crate::cli::failure::Outcome;
use crate::cli::output::{PictureArguments, print, print_json, save};
use report::Report;
pub(super) use selection::Selection;

/// Counts what a data set holds, and draws what it looks like.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq data inspect
  fedeq data inspect cifar10 --out cifar10.png
  fedeq data inspect femnist --client f0424_27 --out writer.png
  fedeq data inspect my/pictures --json")]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    set: Set,
    /// Only what this client holds, where the data set names its clients
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// A contact sheet: some pictures of each class, or some clients' text
    #[command(flatten)]
    picture: PictureArguments,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let dataset = arguments.set.load()?;
    let selection = Selection::of(&dataset, arguments.client.as_deref())?;
    let report = Report::of(&dataset, &selection);
    if let Some(path) = arguments.picture.path(arguments.set.name(), "sheet", arguments.json)
        && (arguments.picture.is_asked_for() || sheet::has_looks(&dataset))
    {
        save(&sheet::draw(&dataset, &selection, arguments.set.name())?, &path)?;
    }
    if arguments.json { print_json(&report) } else { print(&report.text()) }
}
