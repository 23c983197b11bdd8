//! MATLAB's files of version 5, as SVHN and EMNIST are published in: arrays of numbers, and structs of them.
//!
//! The file is read once, front to back; whatever is neither a number nor a struct is passed over.
use crate::{Error, Place, Result};
use flate2::read::ZlibDecoder;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

const REMEDY: &str = "download the publisher's file again";
/// Bytes of one array at most: 16 GiB.
const MOST: u64 = 1 << 34;
/// Structs within structs at most.
const DEEPEST: usize = 8;
/// Fields of a struct, letters of their names, and directions of an array at most.
const MOST_FIELDS: usize = 1024;
const LONGEST_NAME: usize = 64;
const MOST_DIRECTIONS: usize = 8;

const HEADER: usize = 128;
/// Kinds of elements.
const MATRIX: u32 = 14;
const COMPRESSED: u32 = 15;
/// Kinds of arrays.
const STRUCT: u8 = 2;
const NUMBERS: std::ops::RangeInclusive<u8> = 6..=15;

/// What stands under a name.
#[derive(Clone, Debug, PartialEq)]
pub enum MatValue {
    /// Numbers in columns: the first direction changes fastest.
    Array(MatArray),
    /// Values by name.
    Struct(BTreeMap<String, MatValue>),
    /// Text, cells and other things that are not read here.
    Other,
}

/// Numbers in columns.
#[derive(Clone, Debug, PartialEq)]
pub struct MatArray {
    /// As many as there are directions.
    pub sizes: Vec<usize>,
    /// As many as the sizes multiply to.
    pub numbers: MatNumbers,
}

/// Bytes where the file has bytes, else numbers of any kind.
#[derive(Clone, Debug, PartialEq)]
pub enum MatNumbers {
    /// From 0 to 255.
    Bytes(Vec<u8>),
    /// Any.
    Any(Vec<f64>),
}

impl MatNumbers {
    /// How many there are.
    pub fn len(&self) -> usize {
        match self {
            Self::Bytes(values) => values.len(),
            Self::Any(values) => values.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// One of them, if it is a whole number of at least 0.
    pub fn whole(&self, at: usize) -> Option<u32> {
        match self {
            Self::Bytes(values) => values.get(at).map(|&value| value.into()),
            Self::Any(values) => {
                values.get(at).filter(|value| value.fract() == 0.0 && (0.0..4e9).contains(*value)).map(|&value| value as u32)
            }
        }
    }
}

/// Reads everything in a file.
pub fn read(mut input: impl Read, file: &Path) -> Result<BTreeMap<String, MatValue>> {
    let wrong = |problem: String| Error::malformed(file, Place::Whole, problem, REMEDY);
    check_header(&mut input, file)?;
    let mut all = BTreeMap::new();
    let input: &mut dyn Read = &mut input;
    while let Some(tag) = Tag::next(input).map_err(wrong)? {
        let mut element = (&mut *input).take(tag.size);
        let named = match tag.kind {
            COMPRESSED => unpacked(&mut element).map_err(wrong)?,
            MATRIX => Some(matrix(&mut element, 0).map_err(wrong)?),
            _ => None,
        };
        let left = io::copy(&mut element, &mut io::sink()).map_err(Error::io(file, "read it"))?;
        if left == 0 && element.limit() > 0 {
            return Err(wrong("it ends in the middle of a variable".into()));
        }
        skip(input, tag.padding).map_err(wrong)?;
        all.extend(named);
    }
    Ok(all)
}

fn check_header(input: &mut impl Read, file: &Path) -> Result<()> {
    let wrong = |problem: String, remedy: &str| Error::malformed(file, Place::Byte(0), problem, remedy);
    let mut header = Vec::new();
    input.take(HEADER as u64).read_to_end(&mut header).map_err(Error::io(file, "read it"))?;
    if header.starts_with(b"MATLAB 7.3") {
        return Err(wrong("it is a MATLAB file of version 7.3, which is HDF5".into(), "save it with `-v7`"));
    }
    match header.get(124..) {
        Some([0x00, 0x01, b'I', b'M']) => Ok(()),
        Some([0x01, 0x00, b'M', b'I']) => {
            Err(wrong("it was written by a machine that stores the large end of numbers first".into(), "save it on another one"))
        }
        _ => Err(wrong("it is not a MATLAB file of version 5".into(), REMEDY)),
    }
}

/// The variable in a compressed element.
fn unpacked(element: &mut dyn Read) -> Result<Option<(String, MatValue)>, String> {
    let mut inner = ZlibDecoder::new(element);
    let inner: &mut dyn Read = &mut inner;
    match Tag::next(inner)? {
        Some(Tag { kind: MATRIX, size, .. }) => matrix(&mut inner.take(size), 0).map(Some),
        _ => Ok(None),
    }
}

/// What stands before an element.
struct Tag {
    kind: u32,
    size: u64,
    /// Bytes after it that mean nothing.
    padding: u64,
    /// A small element has its bytes in the tag.
    small: Option<[u8; 4]>,
}

impl Tag {
    /// The next one; nothing at the end of the file.
    fn next(input: &mut dyn Read) -> Result<Option<Self>, String> {
        let mut words = Vec::new();
        input.take(8).read_to_end(&mut words).map_err(|error| format!("it cannot be read: {error}"))?;
        let Ok([a, b, c, d, rest @ ..]) = <[u8; 8]>::try_from(words.as_slice()) else {
            return if words.is_empty() { Ok(None) } else { Err("it ends in the middle of a variable".into()) };
        };
        let first = u32::from_le_bytes([a, b, c, d]);
        if first >> 16 != 0 {
            let size = u64::from(first >> 16);
            if size > 4 {
                return Err(format!("a small element says that it has `{size}` bytes"));
            }
            return Ok(Some(Self { kind: first & 0xffff, size, padding: 0, small: Some(rest) }));
        }
        let size = u64::from(u32::from_le_bytes(rest));
        let padding = if first == COMPRESSED { 0 } else { size.next_multiple_of(8) - size };
        Ok(Some(Self { kind: first, size, padding, small: None }))
    }
}

/// A whole element, of at most so many bytes.
fn element(input: &mut dyn Read, most: u64) -> Result<(u32, Vec<u8>), String> {
    let tag = Tag::next(input)?.ok_or("it ends in the middle of a variable")?;
    if tag.size > most {
        return Err(format!("an element says that it has `{}` bytes, more than {most}", tag.size));
    }
    if let Some(small) = tag.small {
        return Ok((tag.kind, small[..tag.size as usize].to_vec()));
    }
    let mut bytes = Vec::new();
    input.take(tag.size).read_to_end(&mut bytes).map_err(|error| format!("it cannot be unpacked: {error}"))?;
    if bytes.len() as u64 != tag.size {
        return Err("it ends in the middle of a variable".into());
    }
    skip(input, tag.padding)?;
    Ok((tag.kind, bytes))
}

fn skip(input: &mut dyn Read, bytes: u64) -> Result<(), String> {
    io::copy(&mut input.take(bytes), &mut io::sink()).map(drop).map_err(|error| format!("it cannot be read: {error}"))
}

/// A variable or a field: its name and its value.
fn matrix(input: &mut dyn Read, depth: usize) -> Result<(String, MatValue), String> {
    let (_, flags) = element(input, 8)?;
    let (_, sizes) = element(input, 4 * MOST_DIRECTIONS as u64)?;
    let (_, name) = element(input, LONGEST_NAME as u64)?;
    let (class, complex) = (flags.first().copied().unwrap_or(0), flags.get(1).is_some_and(|bits| bits & 0x08 != 0));
    let size = |word: &[u8]| u32::from_le_bytes([word[0], word[1], word[2], word[3]]) as usize;
    let sizes: Vec<usize> = sizes.chunks_exact(4).map(size).collect();
    let name = String::from_utf8_lossy(&name).into_owned();
    let value = match class {
        STRUCT => fields(input, &sizes, depth)?,
        class if NUMBERS.contains(&class) && !complex => numbers(input, sizes)?,
        _ => MatValue::Other,
    };
    Ok((name, value))
}

fn numbers(input: &mut dyn Read, sizes: Vec<usize>) -> Result<MatValue, String> {
    let (kind, bytes) = element(input, MOST)?;
    let numbers = match kind {
        1 => MatNumbers::Any(bytes.iter().map(|&byte| f64::from(byte as i8)).collect()),
        2 => MatNumbers::Bytes(bytes),
        3 => MatNumbers::Any(bytes.chunks_exact(2).map(|b| f64::from(i16::from_le_bytes([b[0], b[1]]))).collect()),
        4 => MatNumbers::Any(bytes.chunks_exact(2).map(|b| f64::from(u16::from_le_bytes([b[0], b[1]]))).collect()),
        5 => MatNumbers::Any(bytes.chunks_exact(4).map(|b| f64::from(i32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()),
        6 => MatNumbers::Any(bytes.chunks_exact(4).map(|b| f64::from(u32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()),
        7 => MatNumbers::Any(bytes.chunks_exact(4).map(|b| f64::from(f32::from_le_bytes([b[0], b[1], b[2], b[3]]))).collect()),
        9 => MatNumbers::Any(
            bytes.chunks_exact(8).map(|b| f64::from_le_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]])).collect(),
        ),
        _ => return Ok(MatValue::Other),
    };
    let count = sizes.iter().try_fold(1usize, |product, &size| product.checked_mul(size));
    if count != Some(numbers.len()) {
        return Err(format!("an array of sizes `{sizes:?}` has `{}` numbers", numbers.len()));
    }
    Ok(MatValue::Array(MatArray { sizes, numbers }))
}

fn fields(input: &mut dyn Read, sizes: &[usize], depth: usize) -> Result<MatValue, String> {
    if depth >= DEEPEST || sizes.iter().any(|&size| size != 1) {
        return Ok(MatValue::Other);
    }
    let (_, width) = element(input, 4)?;
    let width = <[u8; 4]>::try_from(width).map(u32::from_le_bytes).unwrap_or(0) as usize;
    let (_, names) = element(input, (MOST_FIELDS * LONGEST_NAME) as u64)?;
    if width == 0 || width > LONGEST_NAME || !names.len().is_multiple_of(width) {
        return Err(format!("names of fields have `{width}` letters in `{}` bytes", names.len()));
    }
    let mut all = BTreeMap::new();
    for name in names.chunks_exact(width) {
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(width);
        let tag = Tag::next(input)?.ok_or("it ends in the middle of a struct")?;
        let mut inner = (&mut *input).take(tag.size);
        let value = if tag.kind == MATRIX && tag.size > 0 { matrix(&mut inner, depth + 1)?.1 } else { MatValue::Other };
        skip(&mut inner, tag.size)?;
        skip(input, tag.padding)?;
        all.insert(String::from_utf8_lossy(&name[..end]).into_owned(), value);
    }
    Ok(MatValue::Struct(all))
}
