//! `fedeq data inspect`.
mod report;
mod selection;

use clap::Args;
use fedeq_data::Dataset;

use super::set::Set;
use super::sheet;
use crate::cli::failure::Outcome;
use crate::cli::output::{PictureArgs, print, print_json, save};
use report::InspectReport;
pub(super) use selection::Selection;

/// Counts what a data set holds, and draws what it looks like.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq data inspect
  fedeq data inspect cifar10 --out cifar10.png
  fedeq data inspect femnist --client f0424_27 --out writer.png
  fedeq data inspect digits --sample 7 --out seven.png      this one picture, as it is stored
  fedeq data inspect my/pictures --json
  fedeq data inspect patients.csv --set data.source.label=outcome --set data.source.client=ward")]
pub(in crate::cli) struct DataInspectCommand {
    #[command(flatten)]
    set: Set,
    /// Only what this client holds, where the data set names its clients
    #[arg(long, value_name = "NAME")]
    client: Option<String>,
    /// Only this sample, counted from 0; the picture is the sample itself
    #[arg(long, value_name = "NUMBER", conflicts_with = "client")]
    sample: Option<usize>,
    /// A contact sheet: some pictures of each class, or some clients' text
    #[command(flatten)]
    picture: PictureArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(arguments: &DataInspectCommand) -> Outcome<()> {
    let dataset = arguments.set.load()?;
    let selection = arguments.selection(&dataset)?;
    let report = InspectReport::of(&dataset, &selection);
    if let Some(path) = arguments.picture.path(arguments.set.name(), &arguments.kind(), arguments.json)
        && (arguments.picture.is_asked_for() || sheet::is_drawable(&dataset))
    {
        let name = arguments.set.name();
        let picture = if arguments.sample.is_some() {
            sheet::alone(&dataset, &selection, name)
        } else {
            sheet::draw(&dataset, &selection, name)
        };
        save(picture?, &path)?;
    }
    if arguments.json { print_json(&report) } else { print(&report.text()) }
}

impl DataInspectCommand {
    fn selection(&self, dataset: &Dataset) -> Outcome<Selection> {
        match self.sample {
            Some(sample) => Selection::one(dataset, sample),
            None => Selection::of(dataset, self.client.as_deref()),
        }
    }

    /// What a picture shows, for its file's name.
    fn kind(&self) -> String {
        self.sample.map_or_else(|| "sheet".into(), |sample| format!("sample-{sample}"))
    }
}
