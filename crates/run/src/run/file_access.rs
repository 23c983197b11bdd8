//! Which files may be read as parts of a run.
//!
//! Whoever works on a run trusts its folder. A dashboard shows folders that others may have filled: there, a file that is really a link would show a file from
//! elsewhere, and one that never ends would take all memory.
use std::fs::{self, File, Metadata};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Where the files of a run may lie.
#[derive(Clone, Debug, Default)]
pub enum FileAccess {
    /// Wherever their names lead.
    #[default]
    Anywhere,
    /// Below this folder, given by its true path, and no links.
    Below(PathBuf),
}

/// No file of a run that is read as a whole is larger: the roster of 300,000 clients. What is read again and again is small.
pub(super) const LARGEST: u64 = 64 << 20;
pub(super) const SMALL: u64 = 1 << 20;

impl FileAccess {
    /// The folder that a dashboard serves; one that is not there reaches nothing.
    pub fn below(root: &Path) -> Self {
        Self::Below(fs::canonicalize(root).unwrap_or_else(|_| root.to_owned()))
    }

    /// Opens a file for reading.
    pub(super) fn open(&self, path: &Path) -> io::Result<File> {
        match self {
            Self::Anywhere => File::open(path),
            Self::Below(root) => open_below(root, path),
        }
    }

    /// Reads a file that is text, and has no more bytes than this where that matters.
    pub(super) fn read(&self, path: &Path, most: u64) -> io::Result<String> {
        let most = if matches!(self, Self::Anywhere) { u64::MAX - 1 } else { most };
        let mut text = String::new();
        let size = self.open(path)?.take(most + 1).read_to_string(&mut text)?;
        if size as u64 > most {
            return Err(refusal("it is too large for a file of a run, and is not shown"));
        }
        Ok(text)
    }
}

/// Opens a file that is what its name says. What counts is the file that was opened, not what lay there before: between two looks another program may put a link
/// in its place.
fn open_below(root: &Path, path: &Path) -> io::Result<File> {
    require_plain(&fs::symlink_metadata(path)?)?;
    let file = options().open(path)?;
    let opened = file.metadata()?;
    require_plain(&opened)?;
    let real = fs::canonicalize(path)?;
    if real.starts_with(root) && is_same(&opened, &fs::symlink_metadata(&real)?) {
        return Ok(file);
    }
    Err(refusal("it does not lie in the folder that is shown"))
}

fn require_plain(file: &Metadata) -> io::Result<()> {
    if file.is_file() { Ok(()) } else { Err(refusal("it is a link or no plain file, and is not shown")) }
}

fn refusal(problem: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, problem)
}

/// How a file is opened: a link in its place fails, and a pipe in its place does not wait to be written to.
fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(&mut options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options
}

#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    one.len() == other.len() && one.created().ok() == other.created().ok()
}

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// A folder `shown` with a file in it, and a file beside it.
    fn tree() -> (tempfile::TempDir, PathBuf, FileAccess) {
        let folder = tempfile::tempdir().expect("a folder");
        let shown = folder.path().join("shown");
        fs::create_dir_all(shown.join("run")).expect("writable");
        fs::write(shown.join("run/own"), "own").expect("writable");
        fs::write(folder.path().join("secret"), "secret").expect("writable");
        let access = FileAccess::below(&shown);
        (folder, shown, access)
    }

    #[test]
    fn a_plain_file_below_the_folder_is_read() {
        let (_folder, shown, access) = tree();
        assert_eq!(access.read(&shown.join("run/own"), LARGEST).expect("plain"), "own");
        assert_eq!(access.read(&shown.join("run/none"), LARGEST).expect_err("not there").kind(), ErrorKind::NotFound);
    }

    #[test]
    fn links_are_not_followed_wherever_they_lead() {
        let (folder, shown, access) = tree();
        for (name, target) in
            [("out", folder.path().join("secret")), ("in", shown.join("run/own")), ("device", "/dev/zero".into())]
        {
            symlink(target, shown.join("run").join(name)).expect("writable");
            assert!(access.read(&shown.join("run").join(name), LARGEST).is_err(), "{name}");
        }
        assert_eq!(FileAccess::Anywhere.read(&shown.join("run/out"), LARGEST).expect("its owner's choice"), "secret");
    }

    #[test]
    fn a_folder_on_the_way_that_is_a_link_leads_nowhere() {
        let (folder, shown, access) = tree();
        symlink(folder.path(), shown.join("up")).expect("writable");
        assert!(access.read(&shown.join("up/secret"), LARGEST).is_err());
        assert!(access.read(&shown.join("../secret"), LARGEST).is_err());
    }

    #[test]
    fn pipes_and_folders_are_not_waited_for() {
        let (_folder, shown, access) = tree();
        assert!(access.read(&shown.join("run"), LARGEST).is_err());
        let socket = shown.join("run/socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        assert!(access.read(&socket, LARGEST).is_err());
    }

    #[test]
    fn what_is_too_large_is_not_read() {
        let (_folder, shown, access) = tree();
        let path = shown.join("run/large");
        fs::write(&path, "12345").expect("writable");
        assert_eq!(access.read(&path, 5).expect("just so"), "12345");
        assert!(access.read(&path, 4).expect_err("too large").to_string().contains("too large"));
        assert_eq!(FileAccess::Anywhere.read(&path, 4).expect("its owner's choice"), "12345");
    }

    #[test]
    fn a_shown_folder_may_itself_be_reached_by_a_link() {
        let (folder, shown, _) = tree();
        let link = folder.path().join("link");
        symlink(&shown, &link).expect("writable");
        assert_eq!(FileAccess::below(&link).read(&link.join("run/own"), LARGEST).expect("plain"), "own");
    }
}
