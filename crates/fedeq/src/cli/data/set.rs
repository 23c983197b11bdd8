//! Which data set a person means, and where it is.
use std::fs;
use std::path::{Path, PathBuf};

use clap::Args;
use fedeq_data::Dataset;
use fedeq_data::fetch::offer;
use fedeq_data::source::image_folder::ImageFolder;
use fedeq_data::source::table::Table;
use fedeq_data::source::text::Text;
use fedeq_data::source::{Source, catalog};

use crate::cli::failure::{Failure, Outcome};
use crate::closest::closest;
use crate::present::require_present;

/// Where data sets are looked for.
#[derive(Args, Clone, Debug)]
pub(super) struct DataFolder {
    /// The folder that data sets are kept in
    #[arg(long = "data", value_name = "DIR", env = "FEDEQ_DATA", default_value = "data")]
    pub(super) path: PathBuf,
}

/// A data set by name or by path.
#[derive(Args, Clone, Debug)]
pub(super) struct Set {
    /// A name from `fedeq data list`, or the path of your own data: a CSV file, a JSON-lines file, or a folder of pictures by
    /// client and class
    #[arg(value_name = "NAME", default_value = "digits")]
    name: String,
    #[command(flatten)]
    folder: DataFolder,
}

impl Set {
    /// Reads it.
    pub(super) fn load(&self) -> Outcome<Dataset> {
        let path = Path::new(&self.name);
        if let Some(source) = known(&self.name) {
            require_present(&source, &self.folder.path)?;
            return Ok(source.load(&self.folder.path)?);
        }
        if path.exists() {
            return Ok(at(path)?.load(path)?);
        }
        Err(unknown(&self.name))
    }

    /// The name as it was typed.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

/// The source of that name.
pub(super) fn known(name: &str) -> Option<Source> {
    Source::all().into_iter().find(|source| source.name() == name)
}

/// There is no such name; perhaps it was mistyped.
pub(super) fn unknown(name: &str) -> Failure {
    let names: Vec<&str> = catalog().map(|entry| entry.name).collect();
    let hint = match closest(name, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`? `fedeq data list` shows all names"),
        None => format!("choose one of {}, or give the path of your own data", names.join(", ")),
    };
    Failure::request(format!("there is no data set or path `{name}`"), hint)
}

/// What lies at a path, by its looks: a published set unpacked, or somebody's own data.
fn at(path: &Path) -> Outcome<Source> {
    if let Some(published) = Source::all().into_iter().find(|source| offer::find(source, path).as_deref() == Some(path)) {
        return Ok(published);
    }
    let has = |extension: &str| has_extension(path, extension);
    if has("csv")? {
        return Ok(Source::Csv(Table::default()));
    }
    if has("jsonl")? {
        return Ok(Source::Text(Text::default()));
    }
    if path.is_dir() {
        return Ok(Source::Images(ImageFolder::default()));
    }
    Err(Failure::request(
        format!("`{}` is neither a folder nor a `.csv` or `.jsonl` file", path.display()),
        "give a folder of pictures by client and class, a CSV file or a JSON-lines file; \
         published sets are read by name, with `--data DIR` for where they are",
    ))
}

/// Whether a file has that extension, or a folder a file that has.
fn has_extension(path: &Path, extension: &str) -> Outcome<bool> {
    let fits = |path: &Path| path.is_file() && path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    if !path.is_dir() {
        return Ok(fits(path));
    }
    let entries = fs::read_dir(path).map_err(Failure::io(path, "list it"))?;
    Ok(entries.flatten().any(|entry| fits(&entry.path())))
}
