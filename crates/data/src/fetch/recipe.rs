//! A data set whose publisher offers raw material only: a person prepares it and brings the result.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::observer::FetchObserver;
use super::place::copy_unchecked;
use crate::source::Source;
use crate::{Error, Result};

/// How a person makes the files of a data set, and where those files go.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The data set, whose reader judges the files.
    pub source: Source,
    /// The folder inside the data folder that the files go to, with `/` between the parts.
    pub folder: &'static str,
    /// What the files may be called, as beginning and end of the name; the first that fits any file counts.
    pub names: &'static [(&'static str, &'static str)],
    /// Why there is no download.
    pub reason: &'static str,
    /// What to do instead, one command a line.
    pub steps: &'static [&'static str],
}

impl Recipe {
    /// Copies the files from where the person made them into the data folder, if the reader can read them.
    pub(super) fn copy(&self, from: &Path, data: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
        let files = self.find(from)?;
        self.source.load(from)?;
        let target = data.join(self.folder);
        for file in files {
            copy_unchecked(&file, &target.join(file.file_name().unwrap_or_default()), observer)?;
        }
        Ok(())
    }

    /// Why it cannot be downloaded; the hint is the recipe.
    pub(super) fn not_for_download(&self) -> Error {
        let steps: String = self.steps.iter().map(|step| format!("\n  {step}")).collect();
        Error::unmeetable(
            format!("`{}` cannot be downloaded ready for use: {}", self.source.name(), self.reason),
            format!("prepare it once, then bring it with `--from`:{steps}"),
        )
    }

    /// Whether such files lie directly in this folder.
    pub(super) fn lies_in(&self, folder: &Path) -> bool {
        children(folder).is_ok_and(|files| !self.fitting(&files).is_empty())
    }

    /// The files at `from`: itself, or those in it, or those in the part of our own layout that lies in it.
    fn find(&self, from: &Path) -> Result<Vec<PathBuf>> {
        if from.is_file() {
            return if self.fitting(&[from.to_owned()]).is_empty() { Err(self.none_at(from)) } else { Ok(vec![from.to_owned()]) };
        }
        for folder in self.candidates(from).into_iter().filter(|folder| folder.is_dir()) {
            let files = self.fitting(&children(&folder).map_err(Error::io(&folder, "list it"))?);
            if !files.is_empty() {
                return Ok(files);
            }
        }
        Err(self.none_at(from))
    }

    /// `from`, and `from/c`, `from/b/c`, `from/a/b/c` where our folder is `a/b/c`.
    fn candidates(&self, from: &Path) -> Vec<PathBuf> {
        let parts: Vec<&str> = self.folder.split('/').collect();
        let inner = (0..parts.len()).rev().map(|start| from.join(parts[start..].join("/")));
        std::iter::once(from.to_owned()).chain(inner).collect()
    }

    /// Those of `files` that the first fitting kind of name fits.
    fn fitting(&self, files: &[PathBuf]) -> Vec<PathBuf> {
        let by_name = |name: &(&str, &str)| files.iter().filter(|file| fits(file, name)).cloned().collect::<Vec<_>>();
        self.names.iter().map(by_name).find(|found| !found.is_empty()).unwrap_or_default()
    }

    fn none_at(&self, from: &Path) -> Error {
        let names: Vec<String> = self.names.iter().map(|(start, end)| format!("`{start}*{end}`")).collect();
        Error::unmeetable(
            format!("`{}` is not, and does not hold, a file named {}", from.display(), names.join(" or ")),
            format!("name the file or its folder; `fedeq data get {}` says how to make it", self.source.name()),
        )
    }
}

fn children(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

fn fits(file: &Path, (start, end): &(&str, &str)) -> bool {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    file.is_file() && name.starts_with(start) && name.ends_with(end)
}
