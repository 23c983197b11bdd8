//! Messages whose weights are compressed: a header as text, and bytes that a codec wrote.
//!
//! Four bytes that begin no safetensors file that fits in memory, four that say how long the header is, the header, the rest.
use crate::codec::Reader;
use crate::error::{Error, Result};

const BEGINS: [u8; 4] = *b"fqc1";
/// A header is a few numbers; one that takes more is no header.
const LONGEST_HEADER: usize = 1 << 20;

/// The bytes of a message.
pub fn write(header: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len(header, body.len()) as usize);
    bytes.extend(BEGINS);
    bytes.extend((header.len() as u32).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(body);
    bytes
}

/// As many bytes as [`write()`] gives.
pub fn len(header: &str, body: usize) -> u64 {
    (BEGINS.len() + 4 + header.len() + body) as u64
}

/// Whether a message is of this form.
pub fn is_framed(bytes: &[u8]) -> bool {
    bytes.starts_with(&BEGINS)
}

/// The header and the rest.
pub fn read(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let mut reader = Reader::new(bytes);
    if reader.array()? != BEGINS {
        return Err(Error::message("it is not compressed"));
    }
    let len = u32::from_le_bytes(reader.array()?) as usize;
    if len > LONGEST_HEADER {
        return Err(Error::message(format!("its header takes {len} bytes")));
    }
    let header = std::str::from_utf8(reader.take(len)?).map_err(|_| Error::message("its header is no text"))?;
    Ok((header, reader.rest()))
}
