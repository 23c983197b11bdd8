//! What can go wrong in a federation, said so that a person can put it right.
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A failure with the offending thing and a remedy.
///
/// `Display` says what is wrong in one sentence; [`Error::hint`] says what to do about it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Something about the data.
    #[error(transparent)]
    Data(#[from] fedeq_data::Error),
    /// Something about the network.
    #[error(transparent)]
    Model(#[from] fedeq_models::ModelError),
    /// What was asked for makes no sense or does not fit together.
    #[error("{problem}")]
    Invalid {
        /// What is wrong, with the offending value in backticks.
        problem: String,
        /// What to do about it.
        remedy: String,
    },
    /// A message that cannot be understood or must not be obeyed. Nothing has changed because of it.
    #[error("the message is refused: {problem}")]
    Message {
        /// What is wrong with it.
        problem: String,
    },
    /// Training diverged: a loss, a parameter or a score is no longer finite.
    #[error("{problem}")]
    Diverged {
        /// What is not finite, at which client and in which round.
        problem: String,
        /// What to lower.
        remedy: String,
    },
    /// A device has no room for what the work needs.
    #[error("{problem}")]
    OutOfMemory {
        /// What was asked for, of which device, and how much was free.
        problem: String,
        /// What to lower.
        remedy: String,
    },
    /// Too few clients replied with something that counts. Nothing has changed because of those who did.
    #[error("{problem}")]
    Quorum {
        /// How many did, and why the others did not, by client.
        problem: String,
    },
    /// It was asked to stop.
    #[error("stopped before the work was done")]
    Interrupted,
    /// A file of a run is damaged or belongs to something else.
    #[error("`{}`: {problem}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refused.
    #[error("`{}`: cannot {action}: {}", path.display(), reason(source))]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was attempted, as a verb phrase: "read it".
        action: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// What to do about it.
    pub fn hint(&self) -> String {
        match self {
            Self::Data(error) => error.hint(),
            Self::Model(error) => error.hint(),
            Self::Invalid { remedy, .. } | Self::Diverged { remedy, .. } | Self::OutOfMemory { remedy, .. } => remedy.clone(),
            Self::Message { .. } => "check that both sides run the same experiment with the same version".into(),
            Self::Quorum { .. } => {
                "find out what is wrong with the clients it names (their own logs say more), or lower the share that must reply"
                    .into()
            }
            Self::Interrupted => "resume the run to continue from its last checkpoint".into(),
            Self::Damaged { .. } => {
                "bring back a copy of it, or resume from the checkpoint before it, or start the run over".into()
            }
            Self::Io { .. } if self.is_disk_full() => "free some space on that disk, then try again".into(),
            Self::Io { path, .. } => format!("check that `{}` exists, may be accessed and has room", path.display()),
        }
    }

    /// Shorthand for [`Error::Invalid`].
    pub fn invalid(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Invalid { problem: problem.into(), remedy: remedy.into() }
    }

    /// Shorthand for [`Error::OutOfMemory`].
    pub fn out_of_memory(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::OutOfMemory { problem: problem.into(), remedy: remedy.into() }
    }

    /// Whether there was no room left for a file.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if fullness(source).is_some())
    }

    /// Says where training diverged; other errors stay as they are.
    pub fn diverged_at(self, place: impl FnOnce() -> String) -> Self {
        match self {
            Self::Diverged { problem, remedy } => Self::Diverged { problem: format!("{} {problem}", place()), remedy },
            other => other,
        }
    }

    /// Shorthand for [`Error::Message`].
    pub fn message(problem: impl Into<String>) -> Self {
        Self::Message { problem: problem.into() }
    }

    /// Shorthand for [`Error::Damaged`].
    pub fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::Damaged { path: path.to_owned(), problem: problem.into() }
    }

    /// Shorthand for [`Error::Io`], shaped for `map_err`.
    pub fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }
}

/// The system's reason, in words where people often meet it.
fn reason(source: &io::Error) -> String {
    fullness(source).map_or_else(|| source.to_string(), str::to_owned)
}

/// Which way a disk is full, if it is.
fn fullness(source: &io::Error) -> Option<&'static str> {
    match source.kind() {
        ErrorKind::StorageFull => Some("the disk is full"),
        ErrorKind::QuotaExceeded => Some("your share of the disk is full"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_called_so() {
        let full = Error::io(Path::new("runs/a/rounds.jsonl"), "write to it")(ErrorKind::StorageFull.into());
        assert_eq!(full.to_string(), "`runs/a/rounds.jsonl`: cannot write to it: the disk is full");
        assert!(full.is_disk_full() && full.hint().contains("free some space"));
        let other = Error::io(Path::new("x"), "read it")(ErrorKind::PermissionDenied.into());
        assert!(!other.is_disk_full());
    }
}
