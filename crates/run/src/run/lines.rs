//! Reading journals line by line, so that memory does not depend on their length.
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use fedeq_core::{Error, Result};
use serde::de::DeserializeOwned;

/// No line of a journal is longer: an evaluation of a million clients.
const LONGEST: u64 = 64 << 20;

/// The whole lines of a journal, one after the other; one that is still being written is left out.
pub(super) struct Lines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    /// Lines that were read, counted from the beginning of the journal.
    number: usize,
}

impl<'a> Lines<'a> {
    /// Goes on in an opened journal where so many lines have been read.
    pub(super) fn new(path: &'a Path, file: File, number: usize) -> Self {
        Self { path, reader: BufReader::new(file), buffer: Vec::new(), number }
    }

    /// The next value and the bytes it took.
    pub(super) fn read<V: DeserializeOwned>(&mut self) -> Result<Option<(V, usize)>> {
        self.buffer.clear();
        let read = (&mut self.reader).take(LONGEST).read_until(b'\n', &mut self.buffer);
        let size = read.map_err(Error::io(self.path, "read it"))?;
        if self.buffer.last() != Some(&b'\n') {
            return if size as u64 == LONGEST { Err(self.damaged("it has no end")) } else { Ok(None) };
        }
        let value = serde_json::from_slice(&self.buffer).map_err(|error| self.damaged(&error.to_string()))?;
        self.number += 1;
        Ok(Some((value, size)))
    }

    fn damaged(&self, problem: &str) -> Error {
        Error::damaged(self.path, format!("line {}: {problem}", self.number + 1))
    }
}
