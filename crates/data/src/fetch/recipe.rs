//! A data set of loose files: downloaded one by one, or prepared and brought by a person.
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::archive::Member;
use super::download::download;
use super::observer::{FetchEvent, FetchObserver};
use super::patience::Patience;
use super::place::copy_unchecked;
use crate::source::Source;
use crate::{Error, Result};

/// How the files of a data set are had, and where they go.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// The data set, whose reader checks the files.
    pub source: Source,
    /// The folder inside the data folder that the files go to, with `/` between the parts.
    pub folder: &'static str,
    /// What the files may be called, as beginning and end of the name; the first that fits any file counts.
    pub names: &'static [(&'static str, &'static str)],
    /// How they are had.
    pub ways: Ways,
}

/// How loose files of a data set are had.
#[derive(Clone, Debug, PartialEq)]
pub enum Ways {
    /// Each is downloaded from its publisher, and kept as it is.
    Download {
        /// What their names are put after.
        address: &'static str,
        /// Where they go, and what they must be.
        files: Vec<Member>,
    },
    /// A person prepares them, and brings them with `--from`.
    Prepared {
        /// Why there is no download.
        reason: &'static str,
        /// What to do instead, one command a line.
        steps: &'static [&'static str],
    },
    /// A person unpacks them into the data folder: they are too many to be copied.
    Unpacked {
        /// Why there is no download.
        reason: &'static str,
        /// What to do instead, one command a line.
        steps: &'static [&'static str],
    },
}

impl Recipe {
    /// The bytes of a download, where there is one.
    pub fn download_bytes(&self) -> Option<u64> {
        match &self.ways {
            Ways::Download { files, .. } => Some(files.iter().map(|file| file.fingerprint.bytes).sum()),
            Ways::Prepared { .. } | Ways::Unpacked { .. } => None,
        }
    }

    /// Downloads the files into the data folder; where there is no download, the error's hint says what to do.
    pub(super) fn fetch(&self, data: &Path, patience: &Patience, observer: &mut dyn FetchObserver) -> Result<()> {
        let Ways::Download { address, files } = &self.ways else { return Err(self.not_for_download()) };
        let is_there = |file: &Member| file.fingerprint.is_of(&data.join(&file.path));
        if files.iter().all(is_there) {
            observer.observe(&FetchEvent::AlreadyThere);
            return Ok(());
        }
        for file in files {
            let target = data.join(&file.path);
            let folder = target.parent().unwrap_or(data);
            fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
            download(&format!("{address}{}", file.file_name()), &file.fingerprint, &target, patience, observer)?;
            observer.observe(&FetchEvent::Placed { file: &target });
        }
        Ok(())
    }

    /// Copies the files from where the person made them into the data folder, if the reader can read them.
    pub(super) fn copy(&self, from: &Path, data: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
        if let Ways::Unpacked { .. } = self.ways {
            return Err(self.not_for_download());
        }
        let files = self.find(from)?;
        self.source.load(from)?;
        let target = data.join(self.folder);
        for file in files {
            copy_unchecked(&file, &target.join(file.file_name().unwrap_or_default()), observer)?;
        }
        Ok(())
    }

    /// Why it cannot be downloaded; the hint is the recipe.
    fn not_for_download(&self) -> Error {
        let files = self.source.entry().layout;
        let (reason, steps, remedy) = match self.ways {
            Ways::Download { .. } => ("", &[][..], "download it".to_owned()),
            Ways::Prepared { reason, steps } => {
                (reason, steps, format!("prepare it once (files: {files}), then bring it with `--from`:"))
            }
            Ways::Unpacked { reason, steps } => {
                (reason, steps, format!("unpack it (files: {files}) into the data folder, where it is used as it lies:"))
            }
        };
        let steps: String = steps.iter().map(|step| format!("\n  {step}")).collect();
        let problem = format!("`{}` cannot be downloaded ready for use: {reason}", self.source.name());
        Error::unmeetable(problem, format!("{remedy}{steps}"))
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
