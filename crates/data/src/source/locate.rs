//! Finding a data set's files below the folder a person names.
use crate::{Error, Result};
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

const WHERE_TO_LOOK: &str = "check the path; `fedeq data list` says where each data set is looked for";

/// Opens a file for reading through a buffer.
pub(super) fn open(path: &Path) -> Result<BufReader<File>> {
    File::open(path).map(BufReader::new).map_err(Error::io(path, "open it"))
}

/// The first of `places` below `start` that holds a file named `wanted`.
pub(super) fn folder_with(start: &Path, places: &[&str], wanted: &str) -> Result<PathBuf> {
    let mut folders = places.iter().map(|place| start.join(place));
    folders.find(|folder| folder.join(wanted).is_file()).ok_or_else(|| nothing_found(start, places, wanted))
}

/// The files of the first of `places` below `start` where one of `patterns` (`stem*suffix`) fits any, in order of their names.
///
/// Where several patterns fit, the first counts. A `start` that is itself a file is the answer, whatever it is called.
pub(super) fn files(start: &Path, places: &[&str], patterns: &[&str]) -> Result<Vec<PathBuf>> {
    if start.is_file() {
        return Ok(vec![start.to_owned()]);
    }
    for folder in places.iter().map(|place| start.join(place)).filter(|folder| folder.is_dir()) {
        let children = children(&folder)?;
        for pattern in patterns {
            let found: Vec<_> = children.iter().filter(|path| path.is_file() && fits(path, pattern)).cloned().collect();
            if !found.is_empty() {
                return Ok(found);
            }
        }
    }
    Err(nothing_found(start, places, &patterns.join("` or `")))
}

/// What a folder holds, in order of the names; names that begin with a dot are left out.
pub(super) fn children(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list it"))? {
        let entry = entry.map_err(Error::io(folder, "list it"))?;
        if !entry.file_name().to_string_lossy().starts_with('.') {
            paths.push(entry.path());
        }
    }
    paths.sort();
    Ok(paths)
}

fn fits(path: &Path, pattern: &str) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let (stem, suffix) = pattern.split_once('*').unwrap_or((pattern, ""));
    name.len() >= stem.len() + suffix.len() && name.starts_with(stem) && name.ends_with(suffix)
}

fn nothing_found(start: &Path, places: &[&str], wanted: &str) -> Error {
    let places: Vec<_> = places.iter().map(|place| format!("`{}`", start.join(place).display())).collect();
    Error::unmeetable(format!("no `{wanted}` in {}", places.join(" or ")), WHERE_TO_LOOK)
}
