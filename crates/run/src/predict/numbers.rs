//! Tables: CSV with a header, one input a row, one number a column.
use std::path::{Path, PathBuf};

use csv::StringRecord;
use fedeq_core::{Error, Result};
use fedeq_data::{Images, Samples, Scaling, Vectors};

use super::columns::Wanted;
use super::question::Brought;

/// Whether the files are tables.
pub(super) fn is_table(files: &[PathBuf]) -> bool {
    files.iter().all(|file| file.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("csv")))
}

/// Vectors, a row each, scaled as those a model has learned from.
pub(super) fn rows(wanted: &Wanted, scaling: Option<&Scaling>, files: &[PathBuf]) -> Result<Brought> {
    let (names, mut values) = read(wanted, files)?;
    if let Some(scaling) = scaling {
        scaling.apply(&mut values);
    }
    Ok(Brought { names, samples: Samples::Vectors(Vectors { width: wanted.width(), values }) })
}

/// Pictures as rows of pixels, in the units of the pictures a model has seen.
pub(super) fn pixels(like: &Images, files: &[PathBuf]) -> Result<Brought> {
    let (names, values) = read(&Wanted::Counted(like.shape.iter().product()), files)?;
    let white = f32::from(like.white);
    let pixel = |&value: &f32| {
        let is_pixel = value.fract() == 0.0 && (0.0..=white).contains(&value);
        let hint = format!("write whole numbers from 0 to {white}");
        if is_pixel { Ok(value as u8) } else { Err(Error::invalid(format!("`{value}` is not a pixel"), hint)) }
    };
    let pixels = values.iter().map(pixel).collect::<Result<_>>()?;
    Ok(Brought { names, samples: Samples::Images(Images { pixels, ..like.clone() }) })
}

fn read(wanted: &Wanted, files: &[PathBuf]) -> Result<(Vec<String>, Vec<f32>)> {
    let (mut names, mut values) = (Vec::new(), Vec::new());
    for file in files {
        read_file(wanted, file, &mut names, &mut values)?;
    }
    Ok((names, values))
}

fn read_file(wanted: &Wanted, file: &Path, names: &mut Vec<String>, values: &mut Vec<f32>) -> Result<()> {
    let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_path(file).map_err(|error| unreadable(file, &error))?;
    let header = reader.headers().map_err(|error| unreadable(file, &error))?.clone();
    let columns = wanted.among(&header, file)?;
    for (index, record) in reader.records().enumerate() {
        let record = record.map_err(|error| unreadable(file, &error))?;
        values.extend(columns.iter().map(|&column| number(&record, column, file)).collect::<Result<Vec<_>>>()?);
        names.push(format!("{}:{}", file.display(), index + 2));
    }
    Ok(())
}

fn number(record: &StringRecord, column: usize, file: &Path) -> Result<f32> {
    let text = record.get(column).unwrap_or_default();
    text.parse().ok().filter(|number: &f32| number.is_finite()).ok_or_else(|| {
        let line = record.position().map_or(0, csv::Position::line);
        Error::invalid(format!("`{}` on line {line}: `{text}` is not a finite number", file.display()), "write a number there")
    })
}

fn unreadable(file: &Path, error: &csv::Error) -> Error {
    Error::invalid(format!("`{}` cannot be read as CSV: {error}", file.display()), "give a CSV file with a header line")
}
