//! Which data set lies where.
use std::fs;
use std::path::Path;

use fedeq_data::fetch::offer;
use fedeq_data::source::Source;
use fedeq_data::source::image_folder::ImageFolder;
use fedeq_data::source::table::Table;
use fedeq_data::source::text::Text;
use fedeq_data::{Error, Result};

/// A set that can be fetched and is not there is worth a better hint than its reader's.
pub fn require_present(source: &Source, data: &Path) -> Result<()> {
    let name = source.name();
    if data.is_file() || offer::offer(name).is_none() || offer::find(source, data).is_some() {
        return Ok(());
    }
    Err(Error::unmeetable(
        format!("`{name}` is not in the data folder `{}`", data.display()),
        format!("get it with `fedeq data get {name}`, or name the folder that holds it with `--data DIR`"),
    ))
}

/// Refuses a place for data that is part of the program: nothing there would be used.
pub fn require_files(source: &Source, given: &Path) -> Result<()> {
    if !source.entry().places.is_empty() {
        return Ok(());
    }
    let (name, path) = (source.name(), given.display());
    Err(Error::unmeetable(
        format!("`{path}` is given as the place of the data, and `{name}` is part of the program: nothing there would be used"),
        format!("leave `--data` (or `data.folder`) out, or leave out `{name}` to learn from what lies at `{path}`"),
    ))
}

/// What lies at a path, by its looks: a published set, or data of one's own.
pub fn found_at(path: &Path) -> Result<Source> {
    if !path.exists() {
        return Err(Error::unmeetable(
            format!("there is nothing at `{}`", path.display()),
            "check the path; sets that can be fetched are named with `--set data=NAME`, and the built-in digits need no path",
        ));
    }
    if let Some(published) = published_at(path)? {
        return Ok(published);
    }
    let has = |extension: &str| has_extension(path, extension);
    if has("csv")? {
        return Ok(Source::Csv(Table::default()));
    }
    if has("jsonl")? {
        return Ok(Source::Text(Text::default()));
    }
    if has("safetensors")? {
        return Source::of_arrays(path);
    }
    if path.is_dir() {
        return Ok(Source::Images(ImageFolder::default()));
    }
    Err(Error::unmeetable(
        format!("`{}` is neither a folder nor a `.csv`, `.jsonl` or `.safetensors` file", path.display()),
        "give a folder of pictures by client and class, a CSV file, a JSON-lines file or a file of arrays; \
         published sets are read by name, with `--data DIR` for where they are",
    ))
}

/// The published set that lies at a path, or the only one below it.
fn published_at(path: &Path) -> Result<Option<Source>> {
    let found = |source: &Source| offer::find(source, path);
    if let Some(here) = Source::all().into_iter().find(|source| found(source).as_deref() == Some(path)) {
        return Ok(Some(here));
    }
    let mut below: Vec<Source> = Source::all().into_iter().filter(|source| found(source).is_some()).collect();
    if below.len() < 2 {
        return Ok(below.pop());
    }
    let names: Vec<&str> = below.iter().map(Source::name).collect();
    Err(Error::unmeetable(
        format!("`{}` holds several data sets: {}", path.display(), names.join(", ")),
        format!("say which one is meant: `--set data={}`", names[0]),
    ))
}

/// Whether a file has that extension, or a folder a file that has.
fn has_extension(path: &Path, extension: &str) -> Result<bool> {
    let fits = |path: &Path| path.is_file() && path.extension().is_some_and(|found| found.eq_ignore_ascii_case(extension));
    if !path.is_dir() {
        return Ok(fits(path));
    }
    let entries = fs::read_dir(path).map_err(Error::io(path, "list it"))?;
    Ok(entries.flatten().any(|entry| fits(&entry.path())))
}
