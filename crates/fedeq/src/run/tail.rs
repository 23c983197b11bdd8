//! Reading journals while they grow.
use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::PathBuf;

use fedeq_core::{Error, Result};
use serde::de::DeserializeOwned;

/// A place in a journal: what lies before it has been read.
#[derive(Clone, Debug)]
pub struct Tail {
    path: PathBuf,
    offset: u64,
    lines: usize,
}

impl Tail {
    /// The beginning of a journal, which need not be there yet.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, offset: 0, lines: 0 }
    }

    /// The whole lines written since this was last asked. An error may also mean that the journal has been cut back: begin anew then.
    pub fn added<V: DeserializeOwned>(&mut self) -> Result<Vec<V>> {
        let Some(bytes) = self.new_bytes()? else { return Ok(Vec::new()) };
        let text = String::from_utf8_lossy(&bytes);
        let value = |(at, line): (usize, &str)| serde_json::from_str(line).map_err(|error| self.damaged(at, &error));
        let values = text.lines().enumerate().map(value).collect::<Result<Vec<V>>>()?;
        self.offset += bytes.len() as u64;
        self.lines += values.len();
        Ok(values)
    }

    /// What was written since, up to its last line break.
    fn new_bytes(&self) -> Result<Option<Vec<u8>>> {
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && self.offset == 0 => return Ok(None),
            Err(error) => return Err(Error::io(&self.path, "read it")(error)),
        };
        let length = file.metadata().map_err(Error::io(&self.path, "look at it"))?.len();
        if length < self.offset {
            return Err(Error::damaged(&self.path, "it is shorter than it was"));
        }
        let mut bytes = Vec::new();
        if length > self.offset {
            file.seek(SeekFrom::Start(self.offset)).map_err(Error::io(&self.path, "read it"))?;
            file.read_to_end(&mut bytes).map_err(Error::io(&self.path, "read it"))?;
        }
        bytes.truncate(bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1));
        Ok(Some(bytes))
    }

    /// What is wrong with a line, counted from the first new one.
    fn damaged(&self, at: usize, problem: &serde_json::Error) -> Error {
        Error::damaged(&self.path, format!("line {}: {problem}", self.lines + at + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn lines_come_once_and_only_whole() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("journal");
        let mut tail = Tail::new(path.clone());
        assert!(tail.added::<u8>().expect("nothing yet").is_empty());
        fs::write(&path, "1\n2\n3").expect("writable");
        assert_eq!(tail.added::<u8>().expect("two lines"), [1, 2]);
        fs::write(&path, "1\n2\n34\n").expect("writable");
        assert_eq!(tail.added::<u8>().expect("one line"), [34]);
        assert!(tail.added::<u8>().expect("none").is_empty());
    }

    #[test]
    fn a_journal_that_was_cut_back_or_damaged_is_no_journal_to_go_on_with() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("journal");
        fs::write(&path, "1\n2\n").expect("writable");
        let mut tail = Tail::new(path.clone());
        tail.added::<u8>().expect("two lines");
        fs::write(&path, "1\n").expect("writable");
        assert!(tail.added::<u8>().expect_err("shorter").to_string().contains("shorter"));
        fs::write(&path, "1\n2\nsix\n").expect("writable");
        assert!(tail.added::<u8>().expect_err("damaged").to_string().contains("line 3"));
    }
}
