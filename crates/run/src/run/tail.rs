//! Reading journals while they grow.
use std::fs::File;
use std::io::{ErrorKind, Seek, SeekFrom};
use std::path::PathBuf;

use fedeq_core::{Error, Result};
use serde::de::DeserializeOwned;

use super::lines::Lines;
use super::reach::Reach;

/// A place in a journal: what lies before it has been read.
#[derive(Clone, Debug)]
pub struct Tail {
    path: PathBuf,
    reach: Reach,
    offset: u64,
    lines: usize,
}

impl Tail {
    /// The beginning of a journal, which need not be there yet.
    pub(super) fn new(path: PathBuf, reach: Reach) -> Self {
        Self { path, reach, offset: 0, lines: 0 }
    }

    /// Takes the whole lines written since this was last asked, one after the other: they need not fit into memory. An error may also mean that the journal has
    /// been cut back: begin anew then.
    pub fn added<V: DeserializeOwned>(&mut self, mut take: impl FnMut(V)) -> Result<()> {
        let Some(file) = self.open()? else { return Ok(()) };
        let mut lines = Lines::new(&self.path, file, self.lines);
        while let Some((value, size)) = lines.read()? {
            take(value);
            self.offset += size as u64;
            self.lines += 1;
        }
        Ok(())
    }

    /// The journal, where something was added to it.
    fn open(&self) -> Result<Option<File>> {
        let mut file = match self.reach.open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound && self.offset == 0 => return Ok(None),
            Err(error) => return Err(Error::io(&self.path, "read it")(error)),
        };
        let length = file.metadata().map_err(Error::io(&self.path, "look at it"))?.len();
        if length < self.offset {
            return Err(Error::damaged(&self.path, "it is shorter than it was"));
        }
        file.seek(SeekFrom::Start(self.offset)).map_err(Error::io(&self.path, "read it"))?;
        Ok((length > self.offset).then_some(file))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn tail(path: &std::path::Path) -> Tail {
        Tail::new(path.to_owned(), Reach::Anywhere)
    }

    fn added(tail: &mut Tail) -> Result<Vec<u8>> {
        let mut values = Vec::new();
        tail.added(|value| values.push(value)).map(|()| values)
    }

    #[test]
    fn lines_come_once_and_only_whole() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("journal");
        let mut tail = tail(&path);
        assert!(added(&mut tail).expect("nothing yet").is_empty());
        fs::write(&path, "1\n2\n3").expect("writable");
        assert_eq!(added(&mut tail).expect("two lines"), [1, 2]);
        fs::write(&path, "1\n2\n34\n").expect("writable");
        assert_eq!(added(&mut tail).expect("one line"), [34]);
        assert!(added(&mut tail).expect("none").is_empty());
    }

    #[test]
    fn a_journal_that_was_cut_back_or_damaged_is_no_journal_to_go_on_with() {
        let folder = tempfile::TempDir::new().expect("a folder");
        let path = folder.path().join("journal");
        fs::write(&path, "1\n2\n").expect("writable");
        let mut tail = tail(&path);
        added(&mut tail).expect("two lines");
        fs::write(&path, "1\n").expect("writable");
        assert!(added(&mut tail).expect_err("shorter").to_string().contains("shorter"));
        fs::write(&path, "1\n2\nsix\n").expect("writable");
        assert!(added(&mut tail).expect_err("damaged").to_string().contains("line 3"));
    }
}
