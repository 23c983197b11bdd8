//! `fedeq data get`.
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_data::fetch::{Offer, Patience, from_path, from_publisher, offer};
use fedeq_data::source::Source;

use super::progress::observer;
use super::set::{DataFolder, known, unknown};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::tell;

/// Fetches a data set into the data folder.
///
/// Downloads are checked by SHA-256, resumed if they were cut, and not repeated if everything is there.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq data get cifar10
  fedeq data get cifar10 --from ~/Downloads/cifar-10-binary.tar.gz
  fedeq data get femnist --from leaf/data/femnist/data/all_data")]
pub(in crate::cli) struct DataGetCommand {
    /// A name from `fedeq data list`
    #[arg(add = crate::cli::completions::offers())]
    name: String,
    /// An archive or an unpacked folder on this machine, instead of a download
    #[arg(long, value_name = "PATH")]
    from: Option<PathBuf>,
    #[command(flatten)]
    folder: DataFolder,
}

pub(super) fn run(arguments: &DataGetCommand) -> Outcome<()> {
    let (name, data) = (&arguments.name, &arguments.folder.path());
    let source = known(name).ok_or_else(|| unknown(name))?;
    let offer = offer_for(&source)?;
    let mut observer = observer();
    match &arguments.from {
        Some(from) => from_path(&offer, from, data, observer.as_mut())?,
        None => from_publisher(&offer, data, &Patience::default(), observer.as_mut())?,
    }
    let option = if data == Path::new("data") { String::new() } else { format!(" --data {}", data.display()) };
    tell(&format!("`{name}` is ready in `{}`; look at it with `fedeq data inspect {name}{option}`", data.display()));
    Ok(())
}

fn offer_for(source: &Source) -> Outcome<Offer> {
    let name = source.name();
    let needs_files = !source.entry().places.is_empty();
    offer::offer(name).ok_or_else(|| match needs_files {
        true => Failure::request(
            format!("`{name}` is your own data, there is nothing to fetch"),
            "give its path: `fedeq data inspect PATH`",
        ),
        false => Failure::request(
            format!("`{name}` is built in, there is nothing to fetch"),
            format!("look at it with `fedeq data inspect {name}`"),
        ),
    })
}
