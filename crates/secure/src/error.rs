//! What can go wrong, and whose doing it was.

/// Why a setting, a message or a step was refused. A client that refuses is out of the session: its state is gone with the error.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting that no session can have.
    #[error("`{setting}`: {why}")]
    Setting {
        /// Its name.
        setting: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// A message above the size that this session allows; it was not read.
    #[error("{kind} of {bytes} bytes: this session allows {limit}")]
    TooLong {
        /// What it should have been.
        kind: &'static str,
        /// Its size.
        bytes: usize,
        /// The largest size.
        limit: usize,
    },
    /// Bytes that are no such message.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// A message of another session: a replay, or other settings.
    #[error("{0} of another session")]
    OtherSession(&'static str),
    /// A client that has no place in this step.
    #[error("{kind}: client `{client}` has no place in it")]
    UnknownClient {
        /// In which message.
        kind: &'static str,
        /// Who.
        client: u16,
    },
    /// A client that is named twice, or out of order, or that has already answered.
    #[error("{kind}: client `{client}` is named twice or out of order")]
    Duplicate {
        /// In which message.
        kind: &'static str,
        /// Who.
        client: u16,
    },
    /// A list whose length or item sizes are wrong.
    #[error("{what} of size {found}: this session needs {expected}")]
    WrongSize {
        /// Of what.
        what: &'static str,
        /// As it came.
        found: usize,
        /// As it should have been.
        expected: usize,
    },
    /// A public key that gives away what is agreed with it, is used twice, or is not the one that was advertised.
    #[error("the public keys of client `{0}` cannot be used")]
    BadKey(u16),
    /// A signature that the client's long-term key did not make, or none where there must be one.
    #[error("the signature of client `{0}` does not hold")]
    BadSignature(u16),
    /// A client's long-term key does not fit what the session asks for.
    #[error("client `{0}`: its long-term key is not the one that the session's trust asks for")]
    WrongIdentity(u16),
    /// The server asks for both secrets of one client.
    #[error("the server says that client `{0}` both survived and dropped out: it would learn that client's vector")]
    BothSecrets(u16),
    /// The server's list leaves out, or adds, clients.
    #[error("the server's list of survivors and drop-outs is not the list of those who dealt shares (client `{0}`)")]
    OtherClients(u16),
    /// Fewer clients than the session needs; nothing was revealed.
    #[error("{what}: {present} clients where {needed} are needed")]
    TooFew {
        /// At which point.
        what: &'static str,
        /// How many there are.
        present: usize,
        /// How many there must be.
        needed: usize,
    },
    /// A secret that cannot be put together from the shares that came.
    #[error("the mask of client `{client}` cannot be removed: {good} sound shares where {needed} are needed")]
    Unrecoverable {
        /// Whose.
        client: u16,
        /// Shares that fit the client's commitment.
        good: usize,
        /// Shares it takes.
        needed: usize,
    },
    /// A client that shared another secret than the one its public key belongs to.
    #[error("client `{0}` dealt shares of a secret that is not its own")]
    FalseDealer(u16),
    /// Survivors that fall apart into groups without common neighbours, whose sums would become known one by one.
    #[error("too many drop-outs: the survivors' neighbourhoods fall apart, and the sums of single groups would become known")]
    Disconnected,
    /// A step that this session's trust does not have, or has instead of another.
    #[error("{0}")]
    WrongStep(&'static str),
    /// A number that cannot be quantised.
    #[error("value {index} is `{value}`: only finite numbers can be summed")]
    NotFinite {
        /// Where.
        index: usize,
        /// As text, so that errors can be compared.
        value: String,
    },
    /// The operating system gave no random numbers.
    #[error("the operating system gives no random numbers")]
    NoRandomness,
}

/// What a fallible call of this crate gives.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    pub(crate) fn setting(setting: &'static str, why: impl Into<String>) -> Self {
        Self::Setting { setting, why: why.into() }
    }
}

/// That there are enough clients at this point.
pub(crate) fn enough(what: &'static str, present: usize, needed: usize) -> Result<()> {
    if present < needed { Err(Error::TooFew { what, present, needed }) } else { Ok(()) }
}

/// That a size is what it must be.
pub(crate) fn sized(what: &'static str, found: usize, expected: usize) -> Result<()> {
    if found == expected { Ok(()) } else { Err(Error::WrongSize { what, found, expected }) }
}

/// That clients are named in ascending order, each once.
pub(crate) fn ascending(kind: &'static str, clients: impl IntoIterator<Item = u16>) -> Result<()> {
    let mut last = None;
    for client in clients {
        if last.is_some_and(|last| last >= client) {
            return Err(Error::Duplicate { kind, client });
        }
        last = Some(client);
    }
    Ok(())
}
