//! The errors of a node.
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why something from the SuperLink or from the disk cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object that is malformed.
    #[error("object `{id}`: {problem}")]
    Object {
        /// Its id, or as much of it as is known.
        id: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A record that cannot be used.
    #[error("record `{name}`: {problem}")]
    Record {
        /// Its name in the message.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A message that takes more memory than it may.
    #[error("the message takes more than {} MB when it is unpacked; `--message-limit` allows more", most >> 20)]
    TooLarge {
        /// What it may take, in bytes.
        most: usize,
    },
    /// More than the node's owner allows.
    #[error("{problem}")]
    Limit {
        /// Of what.
        problem: String,
    },
    /// A message whose time to live is over.
    #[error("message `{id}` has expired")]
    Expired {
        /// Its id.
        id: String,
    },
    /// A call that failed and may succeed later.
    #[error("the SuperLink did not answer `{call}`: {problem}")]
    Unreachable {
        /// The call.
        call: &'static str,
        /// What happened.
        problem: String,
    },
    /// The SuperLink's identity could not be verified.
    #[error("the SuperLink cannot be trusted: {problem}")]
    Untrusted {
        /// Why not.
        problem: String,
    },
    /// The SuperLink does not accept the node's signature: it was restarted, or the clocks differ.
    #[error("the SuperLink does not know this node: {problem}")]
    UnknownNode {
        /// The SuperLink's own words.
        problem: String,
    },
    /// A call that the SuperLink understood and refused.
    #[error("the SuperLink refused `{call}`: {problem}")]
    Refused {
        /// The call.
        call: &'static str,
        /// The SuperLink's own words.
        problem: String,
    },
    /// A file or a folder that cannot be used.
    #[error("`{}`: {problem}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

impl Error {
    /// About an object.
    pub fn object(id: &str, problem: impl Into<String>) -> Self {
        Self::Object { id: id.into(), problem: problem.into() }
    }

    /// About a record.
    pub fn record(name: &str, problem: impl Into<String>) -> Self {
        Self::Record { name: name.into(), problem: problem.into() }
    }

    /// About a file with the wrong content.
    pub fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.into(), problem: problem.into() }
    }

    /// About a file that the operating system gives no access to: `.map_err(Error::file(path, "read it"))`.
    pub fn file(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, problem: format!("cannot {action}: {error}") }
    }

    /// Whether only one message is affected, so that the node can continue with others.
    pub fn concerns_one_message(&self) -> bool {
        matches!(
            self,
            Self::Object { .. }
                | Self::Record { .. }
                | Self::Refused { .. }
                | Self::TooLarge { .. }
                | Self::Limit { .. }
                | Self::Expired { .. }
        )
    }

    /// Whether trying again later may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unreachable { .. })
    }
}

impl From<fedeq_core::Error> for Error {
    fn from(error: fedeq_core::Error) -> Self {
        Self::record("fedeq", error.to_string())
    }
}
