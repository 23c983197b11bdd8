//! TensorBoard's event files, as far as scalars need them.
//!
//! A file is a sequence of records: the length (8 bytes), a checksum of these 8 bytes, the data, a checksum of the data; all
//! little-endian. The data is an `Event` in protocol buffers, the checksum a masked CRC-32C.
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use fedeq_core::{Error, Result};

/// An event file that grows.
pub(super) struct EventFile {
    path: PathBuf,
    file: File,
}

impl EventFile {
    /// A new file in a folder. TensorBoard then drops what older files there say about later rounds than `from`.
    pub(super) fn create(folder: &Path, from: u64) -> Result<Self> {
        fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
        let name = format!("events.out.tfevents.{:010}.{}.fedeq", now().as_secs(), std::process::id());
        let path = folder.join(name);
        let file = File::create(&path).map_err(Error::io(&path, "create it"))?;
        let mut events = Self { path, file };
        events.append(&event(0, &text(3, "brain.Event:2")))?;
        events.append(&event(from, &bytes(7, &varint_field(1, 1))))?;
        Ok(events)
    }

    /// Adds the values of some scalars after a round.
    pub(super) fn scalars(&mut self, round: u64, scalars: &[(&str, f64)]) -> Result<()> {
        let value = |(tag, value): &(&str, f64)| bytes(1, &[text(1, tag), float(2, *value as f32)].concat());
        let summary: Vec<u8> = scalars.iter().flat_map(value).collect();
        self.append(&event(round, &bytes(5, &summary)))
    }

    fn append(&mut self, event: &[u8]) -> Result<()> {
        self.file.write_all(&record(event)).map_err(Error::io(&self.path, "write to it"))
    }
}

fn now() -> std::time::Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn record(data: &[u8]) -> Vec<u8> {
    let length = (data.len() as u64).to_le_bytes();
    let checksum = |bytes: &[u8]| masked(crc32c(bytes)).to_le_bytes();
    [&length[..], &checksum(&length), data, &checksum(data)].concat()
}

/// `wall_time = 1`, `step = 2`, and what happened.
fn event(step: u64, what: &[u8]) -> Vec<u8> {
    let mut event = vec![1 << 3 | 1];
    event.extend(now().as_secs_f64().to_le_bytes());
    event.extend(varint_field(2, step));
    event.extend(what);
    event
}

fn varint_field(field: u8, value: u64) -> Vec<u8> {
    let mut bytes = vec![field << 3];
    bytes.extend(varint(value));
    bytes
}

fn float(field: u8, value: f32) -> Vec<u8> {
    [&[field << 3 | 5][..], &value.to_le_bytes()].concat()
}

fn text(field: u8, text: &str) -> Vec<u8> {
    bytes(field, text.as_bytes())
}

fn bytes(field: u8, content: &[u8]) -> Vec<u8> {
    [&[field << 3 | 2][..], &varint(content.len() as u64), content].concat()
}

/// Seven bits a byte, the lowest first; the eighth says that more follows.
fn varint(mut value: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A checksum that is stored beside the data it covers is masked, lest data with checksums in it fool it.
fn masked(checksum: u32) -> u32 {
    checksum.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32 with Castagnoli's polynomial, bit by bit: event files are small.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    !bytes.iter().fold(!0, |crc, &byte| (0..8).fold(crc ^ u32::from(byte), step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_rfc_3720() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc32c(&(0..32).collect::<Vec<u8>>()), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn varints_are_those_of_the_protocol_buffers_manual() {
        assert_eq!((varint(1), varint(150), varint(300)), (vec![1], vec![0x96, 1], vec![0xac, 2]));
    }
}
