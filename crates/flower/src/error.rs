//! What can go wrong with what a SuperLink sends.

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Something that came from outside and is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
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
}
