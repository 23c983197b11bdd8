//! What a server is told when a question is not answered.
use crate::Error;

/// Why a question is not answered, as far as the server is told: one of these sentences and nothing else. What exactly is wrong may hold names, numbers and
/// paths of the node's own data, and is said only to who runs the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The message is not one that this node understands.
    Unreadable,
    /// Nobody waits for the answer any more.
    Late,
    /// It would take more memory than a message may.
    TooLarge,
    /// The experiment, the data and the state of this node do not fit together, or training failed.
    Unable,
    /// The node ended while it worked on this question before.
    Fatal,
}

impl Refusal {
    /// What is sent.
    pub fn words(self) -> &'static str {
        match self {
            Self::Unreadable => "refused: this node cannot read the message (its own log says why)",
            Self::Late => "refused: the message is out of date",
            Self::TooLarge => "refused: the message is larger than this node allows",
            Self::Unable => "refused: this node cannot carry out the experiment (its own log says why)",
            Self::Fatal => "refused: this node ended at this question before (its own log says why)",
        }
    }

    /// What is told of an error.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::TooLarge { .. } => Self::TooLarge,
            Error::Late { .. } => Self::Late,
            Error::Object { .. } | Error::Record { .. } | Error::Refused { .. } => Self::Unreadable,
            _ => Self::Unable,
        }
    }
}

/// A question that is turned down: what the server is told, and what is said here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TurnedDown {
    pub(super) refusal: Refusal,
    pub(super) words: String,
}

impl TurnedDown {
    /// The work cannot be done, whatever exactly is wrong.
    pub(super) fn unable(words: impl ToString) -> Self {
        Self { refusal: Refusal::Unable, words: words.to_string() }
    }
}

impl From<Error> for TurnedDown {
    fn from(error: Error) -> Self {
        Self { refusal: Refusal::of(&error), words: error.to_string() }
    }
}
