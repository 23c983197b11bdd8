//! What can go wrong between a node and the world.
use std::path::{Path, PathBuf};

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Something that came from outside and is not as it should be.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An object that does not say what it should.
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
    /// A message that nobody waits for any more.
    #[error("message `{id}` is out of date")]
    Late {
        /// Its id.
        id: String,
    },
    /// A call that did not come through; it may another time.
    #[error("the SuperLink did not answer `{call}`: {problem}")]
    Away {
        /// What was asked.
        call: &'static str,
        /// What happened.
        problem: String,
    },
    /// Nobody can say that the SuperLink is the SuperLink.
    #[error("the SuperLink cannot be trusted: {problem}")]
    Untrusted {
        /// Why not.
        problem: String,
    },
    /// The SuperLink does not know who calls: it was restarted, or the clocks differ.
    #[error("the SuperLink does not know this node: {problem}")]
    Stranger {
        /// With which words.
        problem: String,
    },
    /// A call that was understood and turned down.
    #[error("the SuperLink refused `{call}`: {problem}")]
    Refused {
        /// What was asked.
        call: &'static str,
        /// With which words.
        problem: String,
    },
    /// A file that cannot be used.
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

    /// About a file whose content is not what it should be.
    pub fn damaged(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.into(), problem: problem.into() }
    }

    /// About a file that the system does not let us use: `.map_err(Error::file(path, "read it"))`.
    pub fn file(path: &Path, deed: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, problem: format!("cannot {deed}: {error}") }
    }

    /// Whether it is about one message, so that others may go on.
    pub fn is_about_the_message(&self) -> bool {
        matches!(
            self,
            Self::Object { .. } | Self::Record { .. } | Self::Refused { .. } | Self::TooLarge { .. } | Self::Late { .. }
        )
    }

    /// Whether trying again later may help.
    pub fn is_passing(&self) -> bool {
        matches!(self, Self::Away { .. })
    }
}

impl From<fedeq_core::Error> for Error {
    fn from(error: fedeq_core::Error) -> Self {
        Self::record("fedeq", error.to_string())
    }
}
