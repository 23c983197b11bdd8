//! What can go wrong with data, said so that a person can put it right.
use std::fmt;
use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failure with the offending thing and a remedy.
///
/// `Display` says what is wrong in one sentence; [`Error::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file exists and can be read, but what it holds is wrong.
    #[error("`{}`{place}: {problem}", file.display())]
    Malformed {
        /// The offending file.
        file: PathBuf,
        /// Where in it.
        place: Place,
        /// What is wrong there, with the offending value in backticks.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// The operating system refused.
    #[error("`{}`: cannot {action}: {source}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was attempted, as a verb phrase: "read it", "create it".
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// The request is understood but this data cannot meet it.
    #[error("{problem}")]
    Unmeetable {
        /// What cannot be done and why, with the offending values in backticks.
        problem: String,
        /// The nearest thing that can.
        remedy: String,
    },
    /// A download failed or brought the wrong bytes.
    #[error("{address}: {problem}")]
    Download {
        /// Where from.
        address: String,
        /// What happened.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Malformed { remedy, .. } | Self::Unmeetable { remedy, .. } | Self::Download { remedy, .. } => remedy.clone(),
            Self::Io { path, source, .. } => io_hint(path, source),
        }
    }

    /// Shorthand for [`Error::Malformed`].
    pub fn malformed(file: &Path, place: Place, problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Malformed { file: file.to_owned(), place, problem: problem.into(), remedy: remedy.into() }
    }

    /// Shorthand for [`Error::Unmeetable`].
    pub fn unmeetable(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Unmeetable { problem: problem.into(), remedy: remedy.into() }
    }

    /// Shorthand for [`Error::Io`], shaped for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

fn io_hint(path: &Path, source: &std::io::Error) -> String {
    use std::io::ErrorKind::{NotFound, PermissionDenied, StorageFull};
    match source.kind() {
        NotFound => format!("check the path `{}`; `fedeq data list` says where each data set is looked for", path.display()),
        PermissionDenied => format!("check the permissions of `{}`", path.display()),
        StorageFull => "free some space on that disk and run the command again".into(),
        _ => format!("check that `{}` is on a working disk and try again", path.display()),
    }
}

/// Where in a file something is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The file as a whole.
    Whole,
    /// A byte offset.
    Byte(u64),
    /// A record, counted from 0 (an image of a binary file, say).
    Record(u64),
    /// A line, counted from 1.
    Line(u64),
    /// A named client and, where known, its sample.
    Client(String, Option<u64>),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => Ok(()),
            Self::Byte(offset) => write!(f, " at byte {offset}"),
            Self::Record(index) => write!(f, " in record {index}"),
            Self::Line(line) => write!(f, " on line {line}"),
            Self::Client(name, None) => write!(f, " for client `{name}`"),
            Self::Client(name, Some(sample)) => write!(f, " for client `{name}`, sample {sample}"),
        }
    }
}

/// An offending number and what is counted: `` `1` client ``, `` `2` clients ``.
pub(crate) fn quoted(number: usize, thing: &str) -> String {
    format!("`{number}` {}", plural(number, thing))
}

/// A number and what is counted: `1 client`, `2 clients`.
pub(crate) fn counted(number: usize, thing: &str) -> String {
    format!("{number} {}", plural(number, thing))
}

fn plural(number: usize, thing: &str) -> String {
    match (number, thing) {
        (1, thing) => thing.to_owned(),
        (_, "class") => "classes".into(),
        (_, thing) => format!("{thing}s"),
    }
}
