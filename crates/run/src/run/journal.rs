//! Journals: files of JSON lines that grow, can be cut back to where they were, and are read while they grow.
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result, fingerprint, write_atomically};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::file_access::FileAccess;
use super::folder::RunFolder;
use super::record::Timing;

/// A file that grows by lines.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

/// How long a journal was at some moment, and what it held.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// Its length in bytes.
    pub bytes: u64,
    /// The fingerprint of these bytes.
    pub fingerprint: String,
}

impl Journal {
    /// Opens a journal to write on where it ends.
    pub(super) fn open(path: PathBuf) -> Result<Self> {
        let file = File::options().create(true).append(true).open(&path).map_err(Error::io(&path, "open it"))?;
        Ok(Self { path, file })
    }

    /// Whether nothing has been written.
    pub(super) fn is_empty(&self) -> Result<bool> {
        self.file.metadata().map(|metadata| metadata.len() == 0).map_err(Error::io(&self.path, "look at it"))
    }

    /// Adds a line.
    pub(super) fn line(&mut self, line: &str) -> Result<()> {
        self.file.write_all(format!("{line}\n").as_bytes()).map_err(Error::io(&self.path, "write to it"))
    }

    /// Adds a value as a line of JSON.
    pub(super) fn json(&mut self, value: &impl Serialize) -> Result<()> {
        let line = serde_json::to_string(value).map_err(|error| Error::io(&self.path, "write to it")(error.into()))?;
        self.line(&line)
    }
}

impl Default for Stamp {
    /// That of a journal in which nothing is written.
    fn default() -> Self {
        Self { bytes: 0, fingerprint: fingerprint(&[]) }
    }
}

impl Stamp {
    /// Makes sure that a journal is on disk, and says how long it is; nothing if it is not there yet.
    pub(super) fn of(path: &Path) -> Result<Self> {
        match fs::read(path) {
            Ok(bytes) => {
                // Windows syncs only what is open for writing.
                let file = File::options().write(true).open(path);
                file.and_then(|file| file.sync_all()).map_err(Error::io(path, "sync it"))?;
                Ok(Self { bytes: bytes.len() as u64, fingerprint: fingerprint(&bytes) })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::io(path, "read it")(error)),
        }
    }

    /// Refuses a journal that does not begin with what it held.
    pub(super) fn check(&self, path: &Path) -> Result<()> {
        let held = read_if_there(path)?;
        let Some(kept) = held.get(..self.bytes as usize) else {
            let problem = format!("it holds {} bytes, and held {} when the checkpoint was written", held.len(), self.bytes);
            return Err(Error::damaged(path, problem));
        };
        if fingerprint(kept) == self.fingerprint { Ok(()) } else { Err(Error::damaged(path, "it is not what was written")) }
    }

    /// Cuts a journal back to what it was.
    pub(super) fn cut_back(&self, path: &Path) -> Result<()> {
        self.check(path)?;
        cut(path, self.bytes)
    }
}

/// How long a file is; nothing if it is not there.
pub(super) fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |metadata| metadata.len())
}

/// Cuts a file back to a length, and makes sure that it is on disk like that.
pub(super) fn cut(path: &Path, bytes: u64) -> Result<()> {
    if length(path) <= bytes {
        return Ok(());
    }
    let cut = || {
        let file = File::options().write(true).open(path)?;
        file.set_len(bytes)?;
        file.sync_all()
    };
    cut().map_err(Error::io(path, "cut it back"))
}

/// Keeps only the lines wanted, for files of which no stamp is taken.
pub(super) fn keep_lines(path: &Path, wanted: impl Fn(&str) -> bool) -> Result<()> {
    let held = read_if_there(path)?;
    let text = String::from_utf8_lossy(&held);
    // What follows the last line break was still being written.
    let whole = text.rfind('\n').map_or("", |end| &text[..=end]);
    let kept: String = whole.lines().filter(|line| wanted(line)).map(|line| format!("{line}\n")).collect();
    if kept.len() < held.len() { write_atomically(path, kept.as_bytes()) } else { Ok(()) }
}

fn read_if_there(path: &Path) -> Result<Vec<u8>> {
    match fs::read(path) {
        Ok(bytes) => Ok(bytes),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(Error::io(path, "read it")(error)),
    }
}

/// No line of a journal is longer: an evaluation of a million clients.
const LONGEST: u64 = 64 << 20;

/// The whole lines of a journal, one after the other; one that is still being written is left out.
pub(super) struct JournalLines<'a> {
    path: &'a Path,
    reader: BufReader<File>,
    buffer: Vec<u8>,
    /// JournalLines that were read, counted from the beginning of the journal.
    number: usize,
}

impl<'a> JournalLines<'a> {
    /// Continues in an opened journal where so many lines have been read.
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

/// A place in a journal: what lies before it has been read.
#[derive(Clone, Debug)]
pub struct Tail {
    path: PathBuf,
    access: FileAccess,
    offset: u64,
    lines: usize,
}

impl Tail {
    /// The beginning of a journal, which need not be there yet.
    pub(super) fn new(path: PathBuf, access: FileAccess) -> Self {
        Self { path, access, offset: 0, lines: 0 }
    }

    /// Takes the whole lines written since this was last asked, one after the other: they need not fit into memory. An error may also mean that the journal has
    /// been cut back: start from its beginning then.
    pub fn added<V: DeserializeOwned>(&mut self, mut take: impl FnMut(V)) -> Result<()> {
        let Some(file) = self.open()? else { return Ok(()) };
        let mut lines = JournalLines::new(&self.path, file, self.lines);
        while let Some((value, size)) = lines.read()? {
            take(value);
            self.offset += size as u64;
            self.lines += 1;
        }
        Ok(())
    }

    /// The journal, where something was added to it.
    fn open(&self) -> Result<Option<File>> {
        let mut file = match self.access.open(&self.path) {
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

/// The journals that are the same for the same experiment, to the byte.
const STAMPED: [&str; 4] = ["rounds.jsonl", "evaluations.jsonl", "heads.jsonl", "metrics.csv"];

/// How long every journal was at some moment.
#[derive(Clone, Debug)]
pub(super) struct Lengths(Vec<(&'static str, u64)>);

/// All journals of a run together: what a checkpoint vouches for.
pub(super) struct Journals<'a>(pub(super) &'a RunFolder);

impl Journals<'_> {
    /// Makes sure that all journals are on disk, and says what those hold that are the same for the same experiment.
    pub(super) fn stamp(&self) -> Result<BTreeMap<String, Stamp>> {
        Stamp::of(&self.0.timings_file())?;
        self.sync_events();
        STAMPED.iter().map(|name| Ok(((*name).to_owned(), Stamp::of(&self.0.path().join(name))?))).collect()
    }

    /// TensorBoard's files are for looking at: a system that cannot sync them has lost nothing of the run.
    fn sync_events(&self) {
        let files = fs::read_dir(self.0.tensorboard()).into_iter().flatten().flatten();
        let opened = files.filter_map(|entry| File::options().write(true).open(entry.path()).ok());
        opened.for_each(|file| drop(file.sync_all()));
    }

    /// Cuts the journals back to a checkpoint after so many rounds. If one of them is damaged, none is touched.
    pub(super) fn cut_back(&self, stamps: &BTreeMap<String, Stamp>, round: u64) -> Result<()> {
        self.check(stamps, round)?;
        for name in STAMPED {
            stamp_of(stamps, name).cut_back(&self.0.path().join(name))?;
        }
        keep_lines(&self.0.timings_file(), |line| serde_json::from_str(line).is_ok_and(|line: Timing| line.round <= round))
    }

    /// Refuses journals that do not begin with what a checkpoint after so many rounds says they held.
    pub(super) fn check(&self, stamps: &BTreeMap<String, Stamp>, round: u64) -> Result<()> {
        for name in STAMPED {
            stamp_of(stamps, name).check(&self.0.path().join(name))?;
        }
        self.check_timings(round)
    }

    /// Times differ from run to run, so no stamp is taken of them; but there is a line for every round.
    fn check_timings(&self, round: u64) -> Result<()> {
        let path = self.0.timings_file();
        let timings = if path.is_file() { self.0.timings()? } else { Vec::new() };
        let told: Vec<u64> = timings.iter().map(|timing| timing.round).filter(|told| *told <= round).collect();
        if told.iter().copied().eq(1..=round) {
            return Ok(());
        }
        Err(Error::damaged(&path, format!("it tells of {} of {round} rounds", told.len())))
    }

    /// How long the journals are now.
    pub(super) fn lengths(&self) -> Lengths {
        let names = STAMPED.into_iter().chain(["timings.jsonl"]);
        Lengths(names.map(|name| (name, length(&self.0.path().join(name)))).collect())
    }

    /// Cuts the journals back to what they were in this process.
    pub(super) fn cut_to(&self, Lengths(lengths): &Lengths) -> Result<()> {
        lengths.iter().try_for_each(|(name, bytes)| cut(&self.0.path().join(name), *bytes))
    }
}

fn stamp_of(stamps: &BTreeMap<String, Stamp>, name: &str) -> Stamp {
    stamps.get(name).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn tail(path: &std::path::Path) -> Tail {
        Tail::new(path.to_owned(), FileAccess::Anywhere)
    }

    /// As JSON is read by default, some numbers of 17 digits come back one bit off: a resumed sweep would then sum up other numbers than the one that went through.
    #[test]
    fn numbers_are_read_back_to_the_last_bit() {
        let sums = (1..2_000).map(|index| f64::from(index) * 0.1 + f64::from(index) / 7.0);
        for number in sums.chain([0.581_009_249_000_000_1]) {
            let text = serde_json::to_string(&number).expect("JSON");
            assert_eq!(serde_json::from_str::<f64>(&text).expect("JSON").to_bits(), number.to_bits(), "{text}");
        }
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
