//! Arrays in a safetensors file.
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, ErrorKind, Read, Write};
use std::ops::Range;
use std::path::Path;

use safetensors::Dtype;
use safetensors::tensor::{Metadata, TensorInfo};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::super::classes::ClassNames;
use super::super::flaw::Flaw;
use super::super::roster::Roster;
use super::clients::check_count;
use super::given::{GivenArray, GivenValues, MOST_TOKENS, RowShape};
use super::whole::{check_name, check_padding, check_whole};
use super::{Expected, SampleKind, source_of};
use crate::{Dataset, Error, Images, Labels, Owners, Place, Result, Samples, Scaling, Sequences, Vectors};

/// Bytes of a header: what names of a million clients take.
const MOST_HEADER: u64 = 100_000_000;
/// Bytes of a file: 32 GiB.
const MOST_BYTES: u64 = 1 << 35;
/// Bytes read at a time, so that memory grows with what was read and not with what a header says.
const BLOCK: usize = 1 << 20;
/// The key of the metadata that is ours; safetensors writes several in no fixed order.
const NOTES: &str = "fedeq";

const DAMAGED: &str = "write it again with `fedeq.data.save`, or as docs/own-data.md says";
const TENSORS: &str = "give `train/x`, `train/y` and `train/client`, and for test samples `test/x`, `test/y` and `test/client`";

/// What the metadata say.
#[derive(Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Notes {
    #[serde(skip_serializing_if = "Option::is_none")]
    clients: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    classes: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    vocabulary: Option<u16>,
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
struct Hashing<R> {
    inner: R,
    hash: Sha256,
}

impl<R> Hashing<R> {
    fn of(inner: R) -> Self {
        Self { inner, hash: Sha256::new() }
    }

    fn digest(self) -> String {
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

/// Everything that a file holds.
struct Parts<'a> {
    arrays: BTreeMap<String, GivenArray>,
    notes: Notes,
    file: &'a Path,
}

/// What a sample is to be, and the values of all of them.
enum Inputs {
    Pixels([usize; 3], Vec<u8>),
    Numbers(usize, Vec<f32>),
    Tokens(usize, Vec<u8>),
}

impl Parts<'_> {
    fn into_dataset(mut self, expected: &Expected<'_>) -> Result<Dataset> {
        self.check_names()?;
        let (x, y, client) = (self.take("train/x")?, self.take("train/y")?, self.arrays.remove("train/client"));
        let tests = ["test/x", "test/y", "test/client"].map(|name| self.arrays.remove(name));
        let (start, shape) = (x.rows(), x.row_shape().map_err(self.about("train/x"))?);
        self.check_kind(shape, expected.kind)?;
        let mut inputs = self.inputs("train/x", x, shape)?;
        let mut labels = self.integers("train/y", y, shape, start)?;
        let mut owners = client.map(|client| self.owners("train/client", client, start)).transpose()?;
        let has_test = match tests {
            [None, None, None] => false,
            [Some(x), Some(y), client] if client.is_some() == owners.is_some() => {
                let rows = x.rows();
                let found = x.row_shape().map_err(self.about("test/x"))?;
                if found != shape {
                    let problem = format!("`test/x` holds {}, and `train/x` {}", found.words(), shape.words());
                    return Err(malformed(self.file, &problem, "give both the same shape and type"));
                }
                inputs.extend(self.inputs("test/x", x, shape)?);
                labels.extend(self.integers("test/y", y, shape, rows)?);
                if let (Some(owners), Some(client)) = (&mut owners, client) {
                    owners.extend(self.owners("test/client", client, rows)?);
                }
                true
            }
            _ => return Err(malformed(self.file, "some of the tensors of `test` are missing", TENSORS)),
        };
        let owners = match (owners, self.notes.clients.take()) {
            (Some(of), Some(names)) => Some(Owners { names, of }),
            (None, None) => None,
            _ => {
                let problem = "one of the tensor `train/client` and the names `clients` in the metadata is missing";
                return Err(malformed(self.file, problem, "give both, or none where a partition is to deal the samples"));
            }
        };
        let (samples, labels) = self.joined(inputs, labels, expected)?;
        let name = source_of(expected.kind).name().into();
        Ok(Dataset { name, samples, labels, owners, test_start: has_test.then_some(start) })
    }

    fn take(&mut self, name: &str) -> Result<GivenArray> {
        self.arrays.remove(name).ok_or_else(|| malformed(self.file, &format!("there is no `{name}`"), TENSORS))
    }

    fn about(&self, name: &'static str) -> impl Fn(Flaw) -> Error + '_ {
        move |flaw| flaw.in_array(name).at(Place::Whole, self.file)
    }

    fn check_kind(&self, shape: RowShape, kind: SampleKind) -> Result<()> {
        let found = match shape {
            RowShape::Image(_) => SampleKind::Images,
            RowShape::Vector(_) => SampleKind::Numbers,
            RowShape::Tokens(_) => SampleKind::Text,
        };
        if found == kind {
            return Ok(());
        }
        let problem = format!("holds {}, and the data set is `{}`", shape.words(), source_of(kind).name());
        Err(malformed(
            self.file,
            &problem,
            format!("leave out the name of the data set, or choose `data={}`", source_of(found).name()),
        ))
    }

    fn inputs(&self, name: &'static str, x: GivenArray, shape: RowShape) -> Result<Inputs> {
        let inputs = match shape {
            RowShape::Image(shape) => x.into_pixels(u8::MAX).map(|pixels| Inputs::Pixels(shape, pixels)),
            RowShape::Vector(width) => x.into_numbers().map(|values| Inputs::Numbers(width, values)),
            RowShape::Tokens(length) => x.into_tokens(MOST_TOKENS).map(|tokens| Inputs::Tokens(length, tokens)),
        };
        inputs.map_err(self.about(name))
    }

    /// Labels: one a sample, for tokens one a position.
    fn integers(&self, name: &'static str, y: GivenArray, shape: RowShape, rows: usize) -> Result<Vec<i64>> {
        let (labels, wanted) = match shape {
            RowShape::Tokens(length) => (y.shape.get(..2), vec![rows, length]),
            RowShape::Image(_) | RowShape::Vector(_) => (y.shape.get(..1), vec![rows]),
        };
        if labels != Some(&wanted[..]) || y.shape.len() != wanted.len() {
            let problem = format!("`{name}` has the shape `{:?}`", y.shape);
            return Err(malformed(self.file, &problem, format!("give it the shape {wanted:?}")));
        }
        y.into_integers().map_err(self.about(name))
    }

    fn owners(&self, name: &'static str, client: GivenArray, rows: usize) -> Result<Vec<u32>> {
        check_count(if client.shape.len() == 1 { client.rows() } else { 0 }, rows).map_err(self.about(name))?;
        let names = self.notes.clients.as_deref().unwrap_or_default();
        let number = |value: &i64| {
            let number = usize::try_from(*value).ok().filter(|number| *number < names.len());
            let problem = format!("`{value}` is none of the `{}` clients that the metadata name", names.len());
            number.map(|number| number as u32).ok_or_else(|| Flaw::new(problem, "name every client in `clients`"))
        };
        let of = client.into_integers().and_then(|values| values.iter().map(number).collect());
        of.map_err(self.about(name))
    }

    fn joined(&mut self, inputs: Inputs, labels: Vec<i64>, expected: &Expected<'_>) -> Result<(Samples, Labels)> {
        match inputs {
            Inputs::Pixels(shape, pixels) => {
                let scaling = Scaling::identity(shape[2]);
                Ok((Samples::Images(Images { shape, pixels, white: u8::MAX, scaling }), self.classes(&labels, expected)?))
            }
            Inputs::Numbers(width, values) => Ok((Samples::Vectors(Vectors { width, values }), self.classes(&labels, expected)?)),
            Inputs::Tokens(length, symbols) => {
                let next = GivenArray { shape: vec![symbols.len() / length, length], values: GivenValues::Integers(labels) };
                let next = next.into_tokens(MOST_TOKENS).map_err(self.about("y"))?;
                check_padding(&symbols, &next, length).map_err(self.about("y"))?;
                let vocabulary = self.vocabulary(&symbols, &next, expected)?;
                Ok((Samples::Sequences(Sequences { length, vocabulary, symbols }), Labels::NextSymbols(next)))
            }
        }
    }

    fn check_names(&self) -> Result<()> {
        let mut seen = Roster::default();
        for name in self.notes.clients.iter().flatten() {
            let shown = name.escape_debug();
            check_name(name).map_err(|flaw| flaw.at(Place::Client(shown.to_string(), None), self.file))?;
            if seen.number_new(name).is_none() {
                return Err(malformed(self.file, &format!("two clients are called `{shown}`"), "give each a name of its own"));
            }
        }
        Ok(())
    }

    /// Classes by the names in the metadata, or called by their own digits.
    fn classes(&mut self, labels: &[i64], expected: &Expected<'_>) -> Result<Labels> {
        let Some(names) = self.notes.classes.take() else {
            let mut roster = Roster::default();
            let of: Vec<u32> = labels.iter().map(|label| roster.number(&label.to_string())).collect();
            return roster.into_classes(&of, expected.classes);
        };
        let count = names.len() as i64;
        if let Some(label) = labels.iter().find(|label| !(0..count).contains(*label)) {
            let problem = format!("the label `{label}` is none of the `{count}` classes that the metadata name");
            return Err(malformed(self.file, &problem, "name every class in `classes`"));
        }
        let own =
            ClassNames::try_from(names.clone()).map_err(|problem| malformed(self.file, &problem, "name each class once"))?;
        let classes = expected.classes.unwrap_or(&own);
        let numbers = classes.numbers(&names)?;
        let values = labels.iter().map(|label| numbers[*label as usize]).collect();
        Ok(Labels::Classes { names: classes.clone().into(), values })
    }

    fn vocabulary(&self, symbols: &[u8], next: &[u8], expected: &Expected<'_>) -> Result<usize> {
        let largest = symbols.iter().chain(next).copied().max().map_or(0, usize::from);
        let said = expected.vocabulary.map(|size| size.get()).or(self.notes.vocabulary).map(usize::from);
        match said.unwrap_or(largest + 1) {
            size if size > MOST_TOKENS => {
                Err(malformed(self.file, &format!("the vocabulary of `{size}` tokens is too large"), "give at most 256"))
            }
            size if largest >= size => {
                let problem = format!("the token `{largest}` is not below the vocabulary of {size}");
                Err(malformed(self.file, &problem, "give a larger `vocabulary`, or leave it out"))
            }
            size => Ok(size),
        }
    }
}

impl Inputs {
    /// Appends samples of the same shape.
    fn extend(&mut self, more: Self) {
        match (self, more) {
            (Self::Pixels(_, all), Self::Pixels(_, more)) | (Self::Tokens(_, all), Self::Tokens(_, more)) => all.extend(more),
            (Self::Numbers(_, all), Self::Numbers(_, more)) => all.extend(more),
            _ => {}
        }
    }
}

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
    // What lies there is left over, or a link that somebody else has put there: neither is written to.
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
    values: Written<'a>,
}

/// Values as they are written.
enum Written<'a> {
    Bytes(&'a [u8]),
    Floats(&'a [f32]),
    Classes(&'a [u16]),
    Owners(&'a [u32]),
}

impl Written<'_> {
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
        Samples::Images(images) => tensor("x", &images.shape, Written::Bytes(&images.pixels[of(images.shape.iter().product())])),
        Samples::Vectors(vectors) => tensor("x", &[vectors.width], Written::Floats(&vectors.values[of(vectors.width)])),
        Samples::Sequences(sequences) => {
            tensor("x", &[sequences.length], Written::Bytes(&sequences.symbols[of(sequences.length)]))
        }
    };
    let y = match &dataset.labels {
        Labels::Classes { values, .. } => tensor("y", &[], Written::Classes(&values[of(1)])),
        Labels::NextSymbols(next) => {
            let length = next.len() / dataset.len();
            tensor("y", &[length], Written::Bytes(&next[of(length)]))
        }
    };
    let client = dataset.owners.as_ref().map(|owners| tensor("client", &[], Written::Owners(&owners.of[of(1)])));
    [x, y].into_iter().chain(client).collect()
}

fn malformed(file: &Path, problem: &str, remedy: impl Into<String>) -> Error {
    Error::malformed(file, Place::Whole, problem, remedy)
}

fn cut_short(error: std::io::Error, file: &Path) -> Error {
    match error.kind() {
        ErrorKind::UnexpectedEof => malformed(file, "ends before its values do", DAMAGED),
        _ => Error::io(file, "read it")(error),
    }
}
