//! Files as people have them, as samples like those of the run's own data: pictures, tables of numbers or pixels, and JSON lines of text.
use std::fs::{self, File};
use std::io::BufReader;
use std::path::{Path, PathBuf};

use csv::StringRecord;
use fedeq_core::{Error, Result};
use fedeq_data::source::image_folder::ImageFolder;
use fedeq_data::source::vocabulary::{BEGIN, PAD, symbol};
use fedeq_data::{Images, Samples, Scaling, Sequences, Vectors};
use serde::Deserialize;

use crate::experiment::DataConfig;
use crate::number;

/// Inputs from files: their names and their samples.
pub(super) struct FileInputs {
    pub(super) names: Vec<String>,
    pub(super) samples: Samples,
}

/// Pictures in files of their own, brought to the size and channels of those a model has seen.
pub(super) fn pictures(like: &Images, files: &[PathBuf]) -> Result<FileInputs> {
    let reader = reader_for(like)?;
    let mut pixels = Vec::new();
    for file in files {
        let input = File::open(file).map_err(Error::io(file, "read it"))?;
        pixels.extend(reader.decode(BufReader::new(input), file)?.pixels);
    }
    let names = files.iter().map(|file| file.display().to_string()).collect();
    Ok(FileInputs { names, samples: Samples::Images(Images { pixels, white: 255, ..like.clone() }) })
}

fn reader_for(like: &Images) -> Result<ImageFolder> {
    let [.., channels] = like.shape;
    let unfitting = || {
        Error::invalid(
            format!("this model's pictures have {}", number::counted(channels, "channel")),
            "predict samples of its own data",
        )
    };
    ImageFolder::for_shape(like.shape).ok_or_else(unfitting)
}

/// Whether the files are tables.
pub(super) fn is_table(files: &[PathBuf]) -> bool {
    files.iter().all(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")))
}

/// Vectors, a row each, scaled as those a model has learned from.
pub(super) fn rows(wanted: &ColumnsWanted, scaling: Option<&Scaling>, files: &[PathBuf]) -> Result<FileInputs> {
    let (names, mut values) = read_tables(wanted, files)?;
    if let Some(scaling) = scaling {
        scaling.apply(&mut values);
    }
    Ok(FileInputs { names, samples: Samples::Vectors(Vectors { width: wanted.width(), values }) })
}

/// Pictures as rows of pixels, in the units of the pictures a model has seen.
pub(super) fn pixels(like: &Images, files: &[PathBuf]) -> Result<FileInputs> {
    let (names, values) = read_tables(&ColumnsWanted::Counted(like.shape.iter().product()), files)?;
    let white = f32::from(like.white);
    let pixel = |&value: &f32| {
        let is_pixel = value.fract() == 0.0 && (0.0..=white).contains(&value);
        let hint = format!("write whole numbers from 0 to {white}");
        if is_pixel { Ok(value as u8) } else { Err(Error::invalid(format!("`{value}` is not a pixel"), hint)) }
    };
    let pixels = values.iter().map(pixel).collect::<Result<_>>()?;
    Ok(FileInputs { names, samples: Samples::Images(Images { pixels, ..like.clone() }) })
}

fn read_tables(wanted: &ColumnsWanted, files: &[PathBuf]) -> Result<(Vec<String>, Vec<f32>)> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for file in files {
        read_table(wanted, file, &mut names, &mut values)?;
    }
    Ok((names, values))
}

fn read_table(wanted: &ColumnsWanted, file: &Path, names: &mut Vec<String>, values: &mut Vec<f32>) -> Result<()> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(file).map_err(|error| unreadable(file, &error))?;
    let header = reader.headers().map_err(|error| unreadable(file, &error))?.clone();
    let columns = wanted.among(&header, file)?;
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| unreadable(file, &error))?;
        values.extend(columns.iter().map(|&column| number_at(&record, column, file)).collect::<Result<Vec<_>>>()?);
        names.push(format!("{}:{}", file.display(), index + 2));
    }
    Ok(())
}

fn number_at(record: &StringRecord, column: usize, file: &Path) -> Result<f32> {
    let text = record.get(column).unwrap_or_default();
    text.parse().ok().filter(|number: &f32| number.is_finite()).ok_or_else(|| {
        let line = record.position().map_or(0, csv::Position::line);
        Error::invalid(format!("`{}` on line {line}: `{text}` is not a finite number", file.display()), "write a number there")
    })
}

fn unreadable(file: &Path, error: &csv::Error) -> Error {
    Error::invalid(format!("`{}` cannot be read as CSV: {error}", file.display()), "give a CSV file with a header line")
}

#[derive(Deserialize)]
struct TextLine {
    text: String,
}

/// Text: JSON lines, one `{"text": ..}` a line. The model says what comes next.
pub(super) fn texts(like: &Sequences, files: &[PathBuf]) -> Result<FileInputs> {
    let (mut names, mut symbols) = (Vec::new(), Vec::new());
    for file in files {
        let content = fs::read_to_string(file).map_err(Error::io(file, "read it"))?;
        for (index, line) in content.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let TextLine { text } = serde_json::from_str(line).map_err(|error| malformed(file, index + 1, &error))?;
            symbols.extend(chunk(&text, like.length));
            names.push(format!("{}:{}", file.display(), index + 1));
        }
    }
    Ok(FileInputs { names, samples: Samples::Sequences(Sequences { symbols, ..like.clone() }) })
}

fn malformed(file: &Path, line: usize, error: &serde_json::Error) -> Error {
    Error::invalid(format!("`{}` on line {line}: {error}", file.display()), "write one {\"text\": ..} a line")
}

/// The last symbols of a text that has begun, padded to the length a model wants.
fn chunk(text: &str, length: usize) -> Vec<u8> {
    let all: Vec<u8> = [BEGIN].into_iter().chain(text.chars().map(symbol)).collect();
    let mut last = all[all.len().saturating_sub(length)..].to_vec();
    last.resize(length, PAD);
    last
}

/// The columns a model takes, in its order.
pub(super) enum ColumnsWanted {
    /// So many, in the order of the file; columns called `client` and `label` are passed over.
    Counted(usize),
    /// By their names, wherever they stand; all others are passed over.
    Named(Vec<String>),
}

impl ColumnsWanted {
    /// What a model takes that learned from this data: the features of its table, by name, or `width` numbers.
    pub(super) fn by(data: &DataConfig, width: usize) -> Result<Self> {
        let features = data.source.feature_columns(&data.folder)?;
        // A file that has changed since it was learned from is no guide.
        let features = features.filter(|features| features.len() == width);
        Ok(features.map_or(Self::Counted(width), Self::Named))
    }

    /// How many.
    fn width(&self) -> usize {
        match self {
            Self::Counted(width) => *width,
            Self::Named(names) => names.len(),
        }
    }

    /// Where they are under a header.
    fn among(&self, header: &StringRecord, file: &Path) -> Result<Vec<usize>> {
        match self {
            Self::Counted(width) => all_but_names(*width, header, file),
            Self::Named(names) => names.iter().map(|name| position(name, header, file)).collect(),
        }
    }
}

fn all_but_names(width: usize, header: &StringRecord, file: &Path) -> Result<Vec<usize>> {
    let columns: Vec<usize> = (0..header.len()).filter(|&column| !["client", "label"].contains(&&header[column])).collect();
    if columns.len() == width {
        return Ok(columns);
    }
    let problem = format!("`{}` has `{}` columns of numbers, and the model takes {width}", file.display(), columns.len());
    Err(Error::invalid(problem, "write a header line, then one column a number"))
}

fn position(name: &str, header: &StringRecord, file: &Path) -> Result<usize> {
    header.iter().position(|found| found == name).ok_or_else(|| {
        let problem = format!("`{}` has no column `{name}`, and the model learned from one", file.display());
        Error::invalid(problem, "name the columns in the header line as in the data of the run; their order is free")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_keep_their_end_and_short_ones_are_padded() {
        assert_eq!(chunk("to be", 3), [' ', 'b', 'e'].map(symbol));
        assert_eq!(chunk("a", 4), [BEGIN, symbol('a'), PAD, PAD]);
    }
}
