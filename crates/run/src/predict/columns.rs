//! Which columns of a table a model takes.
use std::fs;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use fedeq_core::{Error, Result};
use fedeq_data::source::Source;

use crate::experiment::DataConfig;

/// The columns a model takes, in its order.
pub(super) enum Wanted {
    /// So many, in the order of the file; columns called `client` and `label` are passed over.
    Counted(usize),
    /// By their names, wherever they stand; all others are passed over.
    Named(Vec<String>),
}

impl Wanted {
    /// What a model takes that learned from this data: the features of its table, by name, or `width` numbers.
    pub(super) fn by(data: &DataConfig, width: usize) -> Result<Self> {
        let Source::Csv(table) = &data.source else { return Ok(Self::Counted(width)) };
        let is_feature = |name: &&str| *name != table.label && *name != table.client.as_deref().unwrap_or("client");
        let file = table_file(&data.folder)?;
        let features: Vec<String> = header_of(&file)?.iter().filter(is_feature).map(str::to_owned).collect();
        // A file that has changed since it was learned from is no guide.
        Ok(if features.len() == width { Self::Named(features) } else { Self::Counted(width) })
    }

    /// How many.
    pub(super) fn width(&self) -> usize {
        match self {
            Self::Counted(width) => *width,
            Self::Named(names) => names.len(),
        }
    }

    /// Where they are under a header.
    pub(super) fn among(&self, header: &StringRecord, file: &Path) -> Result<Vec<usize>> {
        match self {
            Self::Counted(width) => counted(*width, header, file),
            Self::Named(names) => names.iter().map(|name| position(name, header, file)).collect(),
        }
    }
}

fn counted(width: usize, header: &StringRecord, file: &Path) -> Result<Vec<usize>> {
    let columns: Vec<usize> = (0..header.len()).filter(|&column| !["client", "label"].contains(&&header[column])).collect();
    if columns.len() == width {
        return Ok(columns);
    }
    let problem = format!("`{}` has `{}` columns of numbers, and the model wants {width}", file.display(), columns.len());
    Err(Error::invalid(problem, "write a header line, then one column a number"))
}

fn position(name: &str, header: &StringRecord, file: &Path) -> Result<usize> {
    header.iter().position(|found| found == name).ok_or_else(|| {
        let problem = format!("`{}` has no column `{name}`, and the model learned from one", file.display());
        Error::invalid(problem, "name the columns in the header line as in the data of the run; their order is free")
    })
}

/// A CSV file, or the only one of a folder.
fn table_file(path: &Path) -> Result<PathBuf> {
    if !path.is_dir() {
        return Ok(path.to_owned());
    }
    let entries = fs::read_dir(path).map_err(Error::io(path, "list it"))?;
    let mut files = entries.flatten().map(|entry| entry.path());
    Ok(files.find(|file| file.extension().is_some_and(|end| end == "csv")).unwrap_or_else(|| path.to_owned()))
}

/// The header line of a table.
pub(super) fn header_of(file: &Path) -> Result<StringRecord> {
    let unreadable = |error: csv::Error| {
        Error::invalid(format!("`{}` cannot be read as CSV: {error}", file.display()), "give a CSV file with a header line")
    };
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(file).map_err(unreadable)?;
    reader.headers().cloned().map_err(unreadable)
}
