//! IDX files: a few numbers of one kind, as MNIST and its successors are published, plain or compressed by gzip.
use super::locate;
use crate::{Error, Place, Result};
use flate2::read::GzDecoder;
use std::io::Read;
use std::path::Path;

const REMEDY: &str = "download the publisher's file again";
/// The byte that says that values are bytes.
const BYTES: u8 = 0x08;
/// Bytes of all values together: 16 GiB.
const MOST: u64 = 1 << 34;

/// Bytes with their sizes in every direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdxArray {
    /// As many as there are directions.
    pub sizes: Vec<usize>,
    /// As many as the sizes multiply to.
    pub values: Vec<u8>,
}

/// Reads an array of bytes with so many directions, of which nothing may be missing or left over.
pub fn read(mut input: impl Read, file: &Path, directions: u8) -> Result<IdxArray> {
    let wrong = |at: u64, problem: String| Error::malformed(file, Place::Byte(at), problem, REMEDY);
    let mut head = vec![0; 4 + 4 * usize::from(directions)];
    let found = fill(&mut input, &mut head, file)?;
    if found < head.len() {
        return Err(wrong(found as u64, "the file ends before its sizes".into()));
    }
    if head[..4] != [0, 0, BYTES, directions] {
        let problem = format!("it begins with `{:02x?}`, not with that of bytes in {directions} directions", &head[..4]);
        return Err(wrong(0, problem));
    }
    let size = |word: &[u8]| u32::from_be_bytes([word[0], word[1], word[2], word[3]]) as usize;
    let sizes: Vec<usize> = head[4..].chunks_exact(4).map(size).collect();
    let count = sizes.iter().try_fold(1u64, |product, &size| product.checked_mul(size as u64)).filter(|count| *count <= MOST);
    let count = count.ok_or_else(|| wrong(4, format!("its sizes `{sizes:?}` are more than can be held")))?;
    let mut values = Vec::new();
    input.take(count + 1).read_to_end(&mut values).map_err(Error::io(file, "read it"))?;
    if values.len() as u64 != count {
        let (more, at) = (values.len() as u64 > count, head.len() as u64 + values.len() as u64);
        let problem = if more { "there is more than its sizes say" } else { "it ends before what its sizes say" };
        return Err(wrong(at, format!("{problem}, `{sizes:?}`")));
    }
    Ok(IdxArray { sizes, values })
}

/// Reads a file of that name in a folder, or the one compressed by gzip beside it.
pub(super) fn load(folder: &Path, name: &str, directions: u8) -> Result<IdxArray> {
    let plain = folder.join(name);
    if plain.is_file() {
        return read(locate::open(&plain)?, &plain, directions);
    }
    let packed = folder.join(format!("{name}.gz"));
    read(GzDecoder::new(locate::open(&packed)?), &packed, directions)
}

/// As many bytes as there are, up to the length of the buffer.
fn fill(input: &mut impl Read, buffer: &mut [u8], file: &Path) -> Result<usize> {
    let mut read = Vec::new();
    input.take(buffer.len() as u64).read_to_end(&mut read).map_err(Error::io(file, "read it"))?;
    buffer[..read.len()].copy_from_slice(&read);
    Ok(read.len())
}
