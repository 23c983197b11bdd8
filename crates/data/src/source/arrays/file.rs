//! Reading arrays from a safetensors file.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, ErrorKind, Read, Write};
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::given::{GivenArray, GivenValues};
use super::parts::Parts;
use super::whole::check_whole;
use super::{Expected, SampleKind};
use crate::{Dataset, Error, Place, Result};

/// Bytes of a header: what names of a million clients take.
const MOST_HEADER: u64 = 100_000_000;

/// Bytes of a file: 32 GiB.
const MOST_BYTES: u64 = 1 << 35;

/// Bytes read at a time, so that memory grows with what was read and not with what a header says.
pub(super) const BLOCK: usize = 1 << 20;

/// The key of the metadata that is ours; safetensors writes several in no fixed order.
pub(super) const NOTES: &str = "fedeq";

const DAMAGED: &str = "write it again with `fedeq.data.save`, or as docs/own-data.md says";

pub(super) const TENSORS: &str =
    "give `train/x`, `train/y` and `train/client`, and for test samples `test/x`, `test/y` and `test/client`";

/// What the metadata say.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Notes {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) clients: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) classes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) vocabulary: Option<u16>,
}

/// A file of arrays, and how many bytes it has.
pub(super) fn open(path: &Path) -> Result<(BufReader<File>, u64)> {
    let file = File::open(path).map_err(Error::io(path, "open it"))?;
    let length = file.metadata().map_err(Error::io(path, "open it"))?.len();
    Ok((BufReader::new(file), length))
}

/// The SHA-256 of a file, in hexadecimal.
pub fn sha256_of(path: &Path) -> Result<String> {
    let mut input = Hashing::of(open(path)?.0);
    std::io::copy(&mut input, &mut std::io::sink()).map_err(Error::io(path, "read it"))?;
    Ok(input.digest())
}

/// What the samples of a file are, by its header.
pub(super) fn kind(mut input: impl Read, length: u64, file: &Path) -> Result<SampleKind> {
    let header = Header::read(&mut input, length, file)?;
    let x = header.tensors.iter().find(|(name, _)| name == "train/x").map(|(_, info)| info);
    let kind = x.map(|info| (info.shape.len(), info.dtype));
    match kind {
        Some((3 | 4, _)) => Ok(SampleKind::Images),
        Some((2, Dtype::F32 | Dtype::F64)) => Ok(SampleKind::Numbers),
        Some((2, _)) => Ok(SampleKind::Text),
        Some((axes, _)) => {
            Err(malformed(file, &format!("`train/x` has {axes} axes"), "give pictures, rows or sequences, see docs/own-data.md"))
        }
        None => Err(malformed(file, "there is no `train/x`", TENSORS)),
    }
}

/// Reads all of a file of so many bytes.
pub fn read(input: impl Read, length: u64, file: &Path, expected: &Expected<'_>) -> Result<Dataset> {
    let mut input = Hashing::of(input);
    let Header { notes, tensors } = Header::read(&mut input, length, file)?;
    let mut arrays = BTreeMap::new();
    for (name, info) in tensors {
        let array = read_array(&mut input, &info, file, &name)?;
        arrays.insert(name, array);
    }
    expected.sha256.map_or(Ok(()), |wanted| check_sha256(&input.digest(), wanted, file))?;
    let dataset = Parts { arrays, notes, file }.into_dataset(expected)?;
    check_whole(&dataset).map_err(|flaw| flaw.at(Place::Whole, file))?;
    Ok(dataset)
}

fn check_sha256(found: &str, wanted: &str, file: &Path) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    let problem =
        format!("is not the data of the experiment: its SHA-256 is `{found}`, and `data.source.sha256` says `{wanted}`");
    Err(malformed(file, &problem, "bring the file back that it was, or leave out `data.source.sha256` for a new run"))
}

/// Reads or writes everything through a hash.
pub(super) struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Hashing<R> {
    pub(super) fn of(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    pub(super) fn digest(self) -> String {
        self.hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, buffer: &[u8]) -> std::io::Result<usize> {
        let written = self.inner.write(buffer)?;
        self.hash.update(&buffer[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.inner.flush()
    }
}

/// What comes before the values: tensors in the order in which they lie.
struct Header {
    notes: Notes,
    tensors: Vec<(String, TensorInfo)>,
}

impl Header {
    fn read(input: &mut impl Read, length: u64, file: &Path) -> Result<Self> {
        let refused = |problem: &str| malformed(file, problem, DAMAGED);
        if length > MOST_BYTES {
            let problem = format!("has `{length}` bytes, more than the {MOST_BYTES} that can be held");
            return Err(malformed(file, &problem, "give fewer or smaller samples"));
        }
        let mut size = [0; 8];
        input.read_exact(&mut size).map_err(|error| cut_short(error, file))?;
        let size = u64::from_le_bytes(size);
        if size > MOST_HEADER.min(length.saturating_sub(8)) {
            return Err(refused("is no safetensors file: its header would be longer than the file, or than 100 MB"));
        }
        let mut header = Vec::new();
        input.take(size).read_to_end(&mut header).map_err(|error| cut_short(error, file))?;
        let metadata: Metadata =
            serde_json::from_slice(&header).map_err(|error| refused(&format!("is no safetensors file: {error}")))?;
        let notes = metadata.metadata().as_ref().and_then(|notes| notes.get(NOTES));
        let notes = notes.map(|notes| serde_json::from_str(notes)).transpose();
        let notes: Option<Notes> = notes.map_err(|error| {
            malformed(file, &format!("the metadata `{NOTES}`: {error}"), "write them as docs/own-data.md says")
        })?;
        let tensors = in_order(&metadata, length - 8 - size).map_err(|problem| refused(&problem))?;
        if let Some((name, _)) = tensors.iter().find(|(name, _)| !is_known(name)) {
            return Err(malformed(file, &format!("there is a tensor `{name}`, which means nothing here"), TENSORS));
        }
        Ok(Self { notes: notes.unwrap_or_default(), tensors })
    }
}

fn is_known(name: &str) -> bool {
    matches!(name.split_once('/'), Some(("train" | "test", "x" | "y" | "client")))
}

/// The tensors in the order in which they lie: one after the other, each as long as its shape says, and all of them the whole file.
fn in_order(metadata: &Metadata, bytes: u64) -> Result<Vec<(String, TensorInfo)>, String> {
    let mut tensors = Vec::new();
    let mut end = 0;
    for name in metadata.offset_keys() {
        let Some(info) = metadata.info(&name) else { continue };
        let values = info.shape.iter().try_fold(1_usize, |product, &axis| product.checked_mul(axis));
        let size = values.and_then(|values| values.checked_mul(info.dtype.bitsize())).map(|bits| bits / 8);
        if info.data_offsets.0 != end || size.and_then(|size| end.checked_add(size)) != Some(info.data_offsets.1) {
            return Err(format!("the tensor `{name}` does not lie where its shape says"));
        }
        end = info.data_offsets.1;
        tensors.push((name, info.clone()));
    }
    if end as u64 == bytes { Ok(tensors) } else { Err(format!("has `{bytes}` bytes of values, and the header says {end}")) }
}

fn read_array(input: &mut impl Read, info: &TensorInfo, file: &Path, name: &str) -> Result<GivenArray> {
    let size = info.data_offsets.1 - info.data_offsets.0;
    let mut bytes = Values { input, left: size, file };
    let values = match info.dtype {
        Dtype::U8 => GivenValues::Bytes(bytes.each(|[byte]| byte)?),
        Dtype::F32 => GivenValues::Floats(bytes.each(f32::from_le_bytes)?),
        Dtype::F64 => GivenValues::Doubles(bytes.each(f64::from_le_bytes)?),
        Dtype::I8 => GivenValues::Integers(bytes.each(|byte| i8::from_le_bytes(byte).into())?),
        Dtype::I16 => GivenValues::Integers(bytes.each(|bytes| i16::from_le_bytes(bytes).into())?),
        Dtype::U16 => GivenValues::Integers(bytes.each(|bytes| u16::from_le_bytes(bytes).into())?),
        Dtype::I32 => GivenValues::Integers(bytes.each(|bytes| i32::from_le_bytes(bytes).into())?),
        Dtype::U32 => GivenValues::Integers(bytes.each(|bytes| u32::from_le_bytes(bytes).into())?),
        Dtype::I64 => GivenValues::Integers(bytes.each(i64::from_le_bytes)?),
        other => {
            let problem = format!("`{name}` is of the type `{other:?}`");
            return Err(malformed(
                file,
                &problem,
                "give bytes (`U8`), floats (`F32`, `F64`) or integers (`I8` to `I64`, `U16`, `U32`)",
            ));
        }
    };
    Ok(GivenArray { shape: info.shape.clone(), values })
}

/// The bytes of one tensor, as values.
struct Values<'a, R> {
    input: &'a mut R,
    left: usize,
    file: &'a Path,
}

impl<R: Read> Values<'_, R> {
    fn each<const SIZE: usize, V>(&mut self, value: impl Fn([u8; SIZE]) -> V) -> Result<Vec<V>> {
        let mut values = Vec::new();
        let mut block = vec![0; BLOCK.min(self.left)];
        while self.left > 0 {
            let piece = &mut block[..BLOCK.min(self.left)];
            self.input.read_exact(piece).map_err(|error| cut_short(error, self.file))?;
            values.extend(piece.as_chunks::<SIZE>().0.iter().map(|bytes| value(*bytes)));
            self.left -= piece.len();
        }
        Ok(values)
    }
}

pub(super) fn malformed(file: &Path, problem: &str, remedy: impl Into<String>) -> Error {
    Error::malformed(file, Place::Whole, problem, remedy)
}

fn cut_short(error: std::io::Error, file: &Path) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => malformed(file, "ends before its values do", DAMAGED),
        _ => Error::io(file, "read it")(error),
    }
}
