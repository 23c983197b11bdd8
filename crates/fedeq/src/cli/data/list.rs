//! `fedeq data list`.
use std::path::Path;

use clap::Args;
use fedeq_data::fetch::Offer;
use fedeq_data::fetch::offer::{find, offer};
use fedeq_data::source::Source;
use serde::Serialize;

use super::set::DataFolder;
use crate::cli::failure::Outcome;
use crate::cli::output::{print, print_json};
use crate::cli::table::facts;
use fedeq_run::number::bytes;

/// Lists the data sets, and which of them are in the data folder.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq data list
  fedeq data list --data /mnt/data --json")]
pub(in crate::cli) struct DataListCommand {
    #[command(flatten)]
    folder: DataFolder,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// One data set, as told to people and programs.
#[derive(Serialize)]
struct ListedSet {
    name: &'static str,
    about: &'static str,
    /// Built in, brought by the person, or found here.
    available: bool,
    place: String,
    /// Where in the data folder it is looked for; the empty path is the folder itself.
    looked_for_in: &'static [&'static str],
    files: &'static str,
    download_bytes: Option<u64>,
    unpacked_bytes: Option<u64>,
    licence: &'static str,
    citation: &'static str,
}

pub(super) fn run(arguments: &DataListCommand) -> Outcome<()> {
    let entries: Vec<ListedSet> = Source::all().iter().map(|source| ListedSet::of(source, &arguments.folder.path())).collect();
    if arguments.json {
        return print_json(&entries);
    }
    let blocks: Vec<String> = entries.iter().map(ListedSet::text).collect();
    print(&blocks.join("\n"))
}

impl ListedSet {
    fn of(source: &Source, data: &Path) -> Self {
        let entry = source.entry();
        let [download_bytes, unpacked_bytes] = match offer(entry.name) {
            Some(Offer::Archive(archive)) => [Some(archive.fingerprint.bytes), Some(archive.unpacked_bytes())],
            Some(Offer::Recipe(recipe)) => [recipe.download_bytes(); 2],
            None => [None; 2],
        };
        let (available, place) = place(source, data);
        Self {
            name: entry.name,
            about: entry.about,
            available,
            place,
            looked_for_in: entry.places,
            files: entry.layout,
            download_bytes,
            unpacked_bytes,
            licence: entry.licence,
            citation: entry.citation,
        }
    }

    fn text(&self) -> String {
        let mut lines = vec![("where", self.place.clone())];
        if let (Some(download), Some(unpacked)) = (self.download_bytes, self.unpacked_bytes) {
            lines.push(("size", format!("{} to download, {} on disk", bytes(download), bytes(unpacked))));
        }
        lines.push(("files", self.files.into()));
        lines.push(("licence", self.licence.into()));
        lines.push(("cite", self.citation.into()));
        format!("{}: {}\n{}", self.name, self.about, facts(&lines))
    }
}

/// Whether the set can be used as it is, and where it is or how to get it.
fn place(source: &Source, data: &Path) -> (bool, String) {
    let entry = source.entry();
    if entry.places.is_empty() {
        return (true, "built in".into());
    }
    match (offer(entry.name), find(source, data)) {
        (None, _) => (false, "your own: give its path as NAME".into()),
        (Some(_), Some(folder)) => (true, format!("found in `{}`", folder.display())),
        (Some(_), None) => (false, format!("not in `{}`: `fedeq data get {}`", data.display(), entry.name)),
    }
}
