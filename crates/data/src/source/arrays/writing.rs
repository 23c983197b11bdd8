//! A data set written as a file of arrays.
use std::cmp::Reverse;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufWriter, ErrorKind, Write};
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};

use super::file::{BLOCK, Hashing, NOTES, Notes};
use crate::{Dataset, Error, Labels, Result, Samples};

/// Writes a data set as a file that is there whole or not at all, and gives its SHA-256.
pub fn write(dataset: &Dataset, path: &Path) -> Result<String> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = Path::new(&partial);
    let written = write_new(dataset, partial).map_err(Error::io(path, "write it")).and_then(|sha256| {
        fs::rename(partial, path).map_err(Error::io(path, "replace it"))?;
        Ok(sha256)
    });
    if written.is_err() {
        let _ = fs::remove_file(partial);
    }
    // The rename itself lives in the folder; not every system lets a folder be synced.
    if let Some(folder) = path.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    written
}

fn write_new(dataset: &Dataset, path: &Path) -> std::io::Result<String> {
    // What lies there is left over, or a link that another program has put there: neither is written to.
    fs::remove_file(path).or_else(|error| if error.kind() == ErrorKind::NotFound { Ok(()) } else { Err(error) })?;
    let file = File::create_new(path)?;
    let sha256 = write_to(dataset, BufWriter::with_capacity(BLOCK, &file))?;
    file.sync_all()?;
    Ok(sha256)
}

/// Writes a data set as the bytes of a file, and gives their SHA-256.
pub fn write_to(dataset: &Dataset, output: impl Write) -> std::io::Result<String> {
    let start = dataset.test_start.unwrap_or(dataset.len());
    let parts = [("train", 0..start), ("test", start..dataset.len())];
    let mut tensors: Vec<Tensor<'_>> = parts
        .into_iter()
        .filter(|(_, samples)| !samples.is_empty())
        .flat_map(|(part, samples)| tensors_of(dataset, part, &samples))
        .collect();
    // As safetensors orders them: values of any size then lie at multiples of it.
    tensors.sort_by_key(|tensor| (Reverse(tensor.values.dtype().bitsize()), tensor.name.clone()));
    let mut output = Hashing::of(output);
    let header = header_of(dataset, &tensors)?;
    output.write_all(&(header.len() as u64).to_le_bytes())?;
    output.write_all(&header)?;
    tensors.iter().try_for_each(|tensor| tensor.values.write_to(&mut output))?;
    output.flush()?;
    Ok(output.digest())
}

fn header_of(dataset: &Dataset, tensors: &[Tensor<'_>]) -> std::io::Result<Vec<u8>> {
    let notes = Notes {
        clients: dataset.owners.as_ref().map(|owners| owners.names.clone()),
        classes: if let Labels::Classes { names, .. } = &dataset.labels { Some(names.clone()) } else { None },
        vocabulary: if let Samples::Sequences(sequences) = &dataset.samples {
            u16::try_from(sequences.vocabulary).ok()
        } else {
            None
        },
    };
    let mut end = 0;
    let infos = tensors.iter().map(|Tensor { name, shape, values }| {
        let begin = end;
        end += shape.iter().product::<usize>() * values.dtype().bitsize() / 8;
        (name.clone(), TensorInfo { dtype: values.dtype(), shape: shape.clone(), data_offsets: (begin, end) })
    });
    let notes = HashMap::from([(NOTES.to_owned(), serde_json::to_string(&notes)?)]);
    let metadata = Metadata::new(Some(notes), infos.collect()).map_err(std::io::Error::other)?;
    let mut header = serde_json::to_vec(&metadata)?;
    header.resize(header.len().next_multiple_of(8), b' ');
    Ok(header)
}

/// One tensor of a file.
struct Tensor<'a> {
    name: String,
    shape: Vec<usize>,
    values: ArrayValues<'a>,
}

/// Values as they are written.
enum ArrayValues<'a> {
    Bytes(&'a [u8]),
    Floats(&'a [f32]),
    Classes(&'a [u16]),
    Owners(&'a [u32]),
}

impl ArrayValues<'_> {
    fn dtype(&self) -> Dtype {
        match self {
            Self::Bytes(_) => Dtype::U8,
            Self::Floats(_) => Dtype::F32,
            Self::Classes(_) => Dtype::U16,
            Self::Owners(_) => Dtype::U32,
        }
    }

    fn write_to(&self, output: &mut impl Write) -> std::io::Result<()> {
        match self {
            Self::Bytes(values) => output.write_all(values),
            Self::Floats(values) => in_blocks(values, |value| value.to_le_bytes(), output),
            Self::Classes(values) => in_blocks(values, |value| value.to_le_bytes(), output),
            Self::Owners(values) => in_blocks(values, |value| value.to_le_bytes(), output),
        }
    }
}

fn in_blocks<V: Copy, const SIZE: usize>(
    values: &[V],
    bytes: impl Fn(V) -> [u8; SIZE],
    output: &mut impl Write,
) -> std::io::Result<()> {
    let mut block = Vec::new();
    for values in values.chunks(BLOCK / SIZE) {
        block.clear();
        values.iter().for_each(|value| block.extend_from_slice(&bytes(*value)));
        output.write_all(&block)?;
    }
    Ok(())
}

/// Samples, labels and owners of a part of a data set.
fn tensors_of<'a>(dataset: &'a Dataset, part: &str, samples: &Range<usize>) -> Vec<Tensor<'a>> {
    let of = |each: usize| samples.start * each..samples.end * each;
    let tensor = |array: &str, row: &[usize], values| {
        let shape = [samples.len()].into_iter().chain(row.iter().copied()).collect();
        Tensor { name: format!("{part}/{array}"), shape, values }
    };
    let x = match &dataset.samples {
        Samples::Images(images) => {
            tensor("x", &images.shape, ArrayValues::Bytes(&images.pixels[of(images.shape.iter().product())]))
        }
        Samples::Vectors(vectors) => tensor("x", &[vectors.width], ArrayValues::Floats(&vectors.values[of(vectors.width)])),
        Samples::Sequences(sequences) => {
            tensor("x", &[sequences.length], ArrayValues::Bytes(&sequences.symbols[of(sequences.length)]))
        }
    };
    let y = match &dataset.labels {
        Labels::Classes { values, .. } => tensor("y", &[], ArrayValues::Classes(&values[of(1)])),
        Labels::NextSymbols(next) => {
            let length = next.len() / dataset.len();
            tensor("y", &[length], ArrayValues::Bytes(&next[of(length)]))
        }
    };
    let client = dataset.owners.as_ref().map(|owners| tensor("client", &[], ArrayValues::Owners(&owners.of[of(1)])));
    [x, y].into_iter().chain(client).collect()
}
