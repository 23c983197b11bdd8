//! A folder, or an archive of it, that holds work which is continued on another machine.
//!
//! A path that ends in `.tar.gz` is an archive: it is unpacked beside its place while a process works with it, and packed again at the end. If that process is killed, what it
//! unpacked is still there, is newer than the archive, and is what the next process takes.
use std::fs::{self, File};
use std::io::{BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};

use fedeq_core::{Error, Result};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};

use crate::run::{read_json, write_json};

/// A folder that can be copied to another machine, taken for this process.
#[derive(Debug)]
pub struct PortableFolder {
    /// Where files are while a process works with them.
    folder: PathBuf,
    archive: Option<PathBuf>,
    /// Whether there was nothing to continue from, or all of it is in the archive: the folder itself holds nothing that would be missed.
    is_fresh: bool,
    /// Held as long as this process works with it.
    _lock: File,
}

/// What `state.json` says, by which such a folder is recognised.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Label {
    /// What kind of folder it is.
    kind: String,
    /// How it is laid out.
    version: u32,
}

const LABEL: &str = "state.json";
const LOCK: &str = "state.lock";
const ENDING: &str = ".tar.gz";
/// What an archive is unpacked to, beside it.
const UNPACKED: &str = ".unpacked";

impl Label {
    fn ours() -> Self {
        Self { kind: "fedeq state".into(), version: 1 }
    }
}

impl PortableFolder {
    /// Whether a path names an archive.
    pub fn is_archive(path: &Path) -> bool {
        path.to_string_lossy().ends_with(ENDING)
    }

    /// Takes a folder or an archive, which need not exist yet. One that holds anything else is refused, and so is one that another process works with.
    pub fn open(path: &Path) -> Result<Self> {
        let archive = Self::is_archive(path).then(|| path.to_owned());
        let folder = if archive.is_some() { with_ending(path, UNPACKED) } else { path.to_owned() };
        if path.is_file() != archive.is_some() && path.exists() {
            let problem = format!("`{}` is {}", path.display(), if path.is_file() { "a file" } else { "a folder" });
            return Err(Error::invalid(problem, "name a folder, or an archive that ends in `.tar.gz`"));
        }
        let is_fresh = !folder.join(LABEL).is_file();
        if let Some(archive) = archive.as_ref().filter(|archive| archive.is_file() && is_fresh) {
            unpack(archive, &folder)?;
        }
        ensure_ours(path, &folder)?;
        fs::create_dir_all(&folder).map_err(Error::io(&folder, "create it"))?;
        let lock = lock(path, &folder)?;
        if !folder.join(LABEL).is_file() {
            write_json(&folder.join(LABEL), &Label::ours())?;
        }
        Ok(Self { folder, archive, is_fresh, _lock: lock })
    }

    /// Looks at a folder or an archive to change nothing: nothing where there is none. What is unpacked for that is removed by [`leave`](Self::leave).
    pub fn open_if_there(path: &Path) -> Result<Option<Self>> {
        if path.exists() || with_ending(path, UNPACKED).exists() { Self::open(path).map(Some) } else { Ok(None) }
    }

    /// Where its files are as long as it is open.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Ends the work with it: an archive is written over, with all that is in the folder now. Gives the bytes that it takes.
    pub fn close(self) -> Result<u64> {
        let Some(archive) = &self.archive else { return size_of(&self.folder) };
        pack(&self.folder, archive)?;
        fs::remove_dir_all(&self.folder).map_err(Error::io(&self.folder, "remove it"))?;
        fs::metadata(archive).map(|metadata| metadata.len()).map_err(Error::io(archive, "look at it"))
    }

    /// Ends a look at it, or work that was refused: an archive stays as it was, and a folder that was made for nothing is removed.
    pub fn leave(self) -> Result<()> {
        let is_whole = self.archive.as_ref().is_some_and(|archive| archive.is_file());
        let is_idle = || files_below(&self.folder, Path::new("")).is_ok_and(|files| files == [Path::new(LABEL)]);
        if self.is_fresh && (is_whole || is_idle()) {
            return fs::remove_dir_all(&self.folder).map_err(Error::io(&self.folder, "remove it"));
        }
        Ok(())
    }
}

/// Refuses a folder that holds something else.
fn ensure_ours(path: &Path, folder: &Path) -> Result<()> {
    let label = folder.join(LABEL);
    let hint = "name a new folder or archive, or one that `--state` made";
    if label.is_file() {
        let found: Label = read_json(&label)?;
        let ours = Label::ours();
        return match found {
            found if found == ours => Ok(()),
            found if found.kind == ours.kind => Err(Error::invalid(
                format!("`{}` has the layout {}, and this program knows {}", path.display(), found.version, ours.version),
                "use the version of fedeq that made it",
            )),
            _ => Err(Error::invalid(format!("`{}` is no state of a reproduction", path.display()), hint)),
        };
    }
    let is_empty = |folder: &Path| fs::read_dir(folder).map_or(true, |mut entries| entries.all(|entry| is_lock(&entry)));
    if is_empty(folder) {
        return Ok(());
    }
    Err(Error::invalid(format!("`{}` is no state of a reproduction: it holds other files", path.display()), hint))
}

fn is_lock(entry: &std::io::Result<fs::DirEntry>) -> bool {
    entry.as_ref().is_ok_and(|entry| entry.file_name() == LOCK)
}

fn lock(path: &Path, folder: &Path) -> Result<File> {
    let file = folder.join(LOCK);
    let lock = File::options().create(true).truncate(false).write(true).open(&file).map_err(Error::io(&file, "open it"))?;
    match lock.try_lock() {
        Ok(()) => Ok(lock),
        Err(_) => Err(Error::invalid(
            format!("another process works with `{}`", path.display()),
            "wait until it is done, or give each process a state of its own",
        )),
    }
}

fn with_ending(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

/// Unpacks an archive as a whole or not at all.
fn unpack(archive: &Path, folder: &Path) -> Result<()> {
    let partial = with_ending(folder, ".partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).map_err(Error::io(&partial, "remove it"))?;
    }
    fs::create_dir_all(&partial).map_err(Error::io(&partial, "create it"))?;
    let file = File::open(archive).map_err(Error::io(archive, "open it"))?;
    // Names that lead out of the folder are left out by `tar`.
    let unpacked = tar::Archive::new(GzDecoder::new(BufReader::new(file))).unpack(&partial);
    let is_sound = unpacked.is_ok() && partial.join(LABEL).is_file();
    if !is_sound {
        let _ = fs::remove_dir_all(&partial);
        let why = unpacked.err().map_or_else(|| "it holds something else".to_owned(), |error| error.to_string());
        let problem = format!("`{}` is no archive of a state: {why}", archive.display());
        return Err(Error::invalid(problem, "copy it again, or name another one"));
    }
    let _ = fs::remove_dir_all(folder); // It has no label, so no work was done in it.
    fs::rename(&partial, folder).map_err(Error::io(folder, "create it"))
}

/// Packs a folder, its files in the order of their names, and replaces the archive at once.
fn pack(folder: &Path, archive: &Path) -> Result<()> {
    let partial = with_ending(archive, ".partial");
    let write = || -> std::io::Result<()> {
        // Weights hardly become smaller, and journals do at any level.
        let encoder = GzEncoder::new(BufWriter::new(File::create(&partial)?), Compression::fast());
        let mut builder = tar::Builder::new(encoder);
        builder.follow_symlinks(false);
        for file in files_below(folder, Path::new(""))? {
            builder.append_path_with_name(folder.join(&file), &file)?;
        }
        let mut file = builder.into_inner()?.finish()?;
        file.flush()?;
        file.get_ref().sync_all()
    };
    write().map_err(Error::io(&partial, "write it"))?;
    fs::rename(&partial, archive).map_err(Error::io(archive, "replace it"))
}

/// What lies in a folder, relative to it; locks and what was being written stay behind.
fn files_below(folder: &Path, below: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut entries: Vec<_> = fs::read_dir(folder.join(below))?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let (path, name) = (below.join(entry.file_name()), entry.file_name().to_string_lossy().into_owned());
        if entry.file_type()?.is_dir() {
            files.extend(files_below(folder, &path)?);
        } else if name != LOCK && name != "lock" && !name.ends_with(".partial") {
            files.push(path);
        }
    }
    Ok(files)
}

/// The bytes of all files in a folder.
pub fn size_of(folder: &Path) -> Result<u64> {
    let mut total = 0;
    for entry in fs::read_dir(folder).map_err(Error::io(folder, "list it"))?.flatten() {
        let metadata = entry.metadata().map_err(Error::io(folder, "list it"))?;
        total += if metadata.is_dir() { size_of(&entry.path())? } else { metadata.len() };
    }
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    fn write(state: &PortableFolder, name: &str, text: &str) {
        let path = state.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
        fs::write(path, text).expect("writable");
    }

    #[test]
    fn an_archive_can_be_continued_elsewhere() {
        let [here, there] = [(); 2].map(|()| TempDir::new().expect("a folder"));
        let archive = here.path().join("state.tar.gz");
        let state = PortableFolder::open(&archive).expect("a new one");
        write(&state, "runs/one/rounds.jsonl", "1\n");
        write(&state, "runs/one/lock", "");
        assert!(state.close().expect("packed") > 0);
        assert_eq!(fs::read_dir(here.path()).expect("readable").count(), 1, "nothing but the archive");
        let copy = there.path().join("copy.tar.gz");
        fs::copy(&archive, &copy).expect("copied");
        let state = PortableFolder::open(&copy).expect("unpacked");
        assert_eq!(fs::read_to_string(state.path().join("runs/one/rounds.jsonl")).expect("there"), "1\n");
        assert!(!state.path().join("runs/one/lock").exists());
        let before = fs::read(&copy).expect("readable");
        state.leave().expect("left");
        assert_eq!(fs::read(&copy).expect("readable"), before);
    }

    #[test]
    fn what_a_killed_process_unpacked_is_newer_than_the_archive() {
        let folder = TempDir::new().expect("a folder");
        let archive = folder.path().join("state.tar.gz");
        PortableFolder::open(&archive).expect("a new one").close().expect("packed");
        let killed = PortableFolder::open(&archive).expect("again");
        write(&killed, "later", "yes");
        drop(killed);
        PortableFolder::open(&archive).expect("looked at").leave().expect("left");
        let state = PortableFolder::open(&archive).expect("continued");
        assert!(state.path().join("later").is_file());
        let new = folder.path().join("new");
        PortableFolder::open(&new).expect("made").leave().expect("left");
        assert!(!new.exists(), "nothing happened");
    }

    #[test]
    fn two_processes_do_not_share_a_state_and_other_files_are_left_alone() {
        let folder = TempDir::new().expect("a folder");
        let _first = PortableFolder::open(&folder.path().join("state")).expect("a new one");
        let error = PortableFolder::open(&folder.path().join("state")).expect_err("taken").to_string();
        assert!(error.contains("another process"), "{error}");
        for (name, text) in [("letters/letter.txt", "Dear"), ("letters.tar.gz", "Dear"), ("letter", "Dear")] {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("writable");
            fs::write(&path, text).expect("writable");
            let named = folder.path().join(name.split('/').next().expect("a name"));
            PortableFolder::open(&named).expect_err("not ours");
            assert_eq!(fs::read_to_string(&path).expect("still there"), text);
        }
    }
}
