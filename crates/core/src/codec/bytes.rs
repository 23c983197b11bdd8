//! Reading bytes and bits that may be anything.
use crate::error::{Error, Result};

/// What is left of some bytes.
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// The next so many.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(count).ok_or_else(|| Error::message("it ends too early"))?;
        self.0 = left;
        Ok(taken)
    }

    /// The next so many, as an array.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        Ok(self.take(N)?.try_into().expect("as many as were taken"))
    }

    /// All that is left.
    pub(crate) fn rest(self) -> &'a [u8] {
        self.0
    }

    /// Refuses bytes that are left over.
    pub(crate) fn end(&self) -> Result<()> {
        if self.0.is_empty() { Ok(()) } else { Err(Error::message(format!("it is {} bytes too long", self.0.len()))) }
    }
}

/// Bits, the first in the lowest bit of the first byte. The last byte is filled with zeros.
#[derive(Default)]
pub(super) struct BitWriter {
    bytes: Vec<u8>,
    /// Bits of the last byte that are taken; 0 where there is no room in it.
    taken: u32,
}

impl BitWriter {
    pub(super) fn bit(&mut self, bit: bool) {
        if self.taken == 0 {
            self.bytes.push(0);
        }
        *self.bytes.last_mut().expect("one was just put there") |= u8::from(bit) << self.taken;
        self.taken = (self.taken + 1) % 8;
    }

    /// The lowest bits of a number, lowest first.
    pub(super) fn bits(&mut self, value: u64, count: u32) {
        (0..count).for_each(|at| self.bit(value >> at & 1 == 1));
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Bits of a reader, as [`BitWriter`] wrote them.
pub(super) struct BitReader<'r, 'a> {
    reader: &'r mut Reader<'a>,
    byte: u8,
    left: u32,
}

impl<'r, 'a> BitReader<'r, 'a> {
    pub(super) fn new(reader: &'r mut Reader<'a>) -> Self {
        Self { reader, byte: 0, left: 0 }
    }

    pub(super) fn bit(&mut self) -> Result<bool> {
        if self.left == 0 {
            [self.byte] = self.reader.array()?;
            self.left = 8;
        }
        let bit = self.byte & 1 == 1;
        self.byte >>= 1;
        self.left -= 1;
        Ok(bit)
    }

    pub(super) fn bits(&mut self, count: u32) -> Result<u64> {
        (0..count).try_fold(0, |value, at| Ok(value | u64::from(self.bit()?) << at))
    }

    /// Refuses a last byte that is not filled with zeros: the same numbers are the same bytes.
    pub(super) fn end(self) -> Result<()> {
        if self.byte == 0 { Ok(()) } else { Err(Error::message("its last bits are not 0")) }
    }
}
