//! What a file must hold, in 40 bytes: its length and its SHA-256.
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

use sha2::{Digest, Sha256};

/// The length and the SHA-256 of a file.
///
/// ```
/// use fedeq_data::fetch::Fingerprint;
/// let of_abc = Fingerprint::new(3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
/// assert_eq!(Fingerprint::of(&b"abc"[..]).unwrap(), of_abc);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    /// Bytes of the file.
    pub bytes: u64,
    /// Its SHA-256 as 64 lower-case hexadecimal digits.
    pub sha256: String,
}

impl Fingerprint {
    /// A known fingerprint.
    pub fn new(bytes: u64, sha256: &str) -> Self {
        Self { bytes, sha256: sha256.to_owned() }
    }

    /// The fingerprint of everything a reader yields.
    pub fn of(reader: impl Read) -> io::Result<Self> {
        copy(reader, io::sink())
    }

    /// Whether a file has this fingerprint; a file that cannot be read has not.
    pub fn is_of(&self, file: &Path) -> bool {
        let same_length = file.metadata().is_ok_and(|found| found.len() == self.bytes);
        same_length && File::open(file).and_then(Self::of).is_ok_and(|found| found == *self)
    }
}

/// Copies everything and returns the fingerprint of what was copied.
pub(super) fn copy(reader: impl Read, mut writer: impl Write) -> io::Result<Fingerprint> {
    let mut both = Hashing { hash: Sha256::new(), writer: &mut writer };
    let bytes = io::copy(&mut BufReader::with_capacity(1 << 18, reader), &mut both)?;
    Ok(Fingerprint { bytes, sha256: hexadecimal(&both.hash.finalize()) })
}

/// Hashes what it passes on.
struct Hashing<W> {
    hash: Sha256,
    writer: W,
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.writer.write(bytes)?;
        self.hash.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
