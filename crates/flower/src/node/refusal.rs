//! What a server is told when a request is refused.
use fedeq_core::named;

use crate::Error;

named! {
    /// Why a request is refused, as far as the server is told: one of these sentences and nothing else. The exact reason may contain names, numbers and
    /// paths of the node's own data, and appears only in the node's log.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Refusal without serde {
        /// The message cannot be decoded, or is of an unknown type.
        Unreadable = "refused: this node cannot read the message (the reason is in the node's log)",
        /// The message's time to live is over.
        Expired = "refused: the message has expired",
        /// It would take more memory than a message may.
        TooLarge = "refused: the message is larger than this node allows",
        /// The owner of the node has not accepted this experiment, or the request is no part of it.
        NotAccepted = "refused: this node has not accepted this experiment (the reason is in the node's log)",
        /// It would take more of the device than its owner allows.
        Limit = "refused: this is beyond what this node allows (the reason is in the node's log)",
        /// The experiment, the data and the state of this node do not fit together, or training failed.
        Unable = "refused: this node cannot carry out the experiment (the reason is in the node's log)",
        /// Work on this request has failed twice.
        Failed = "refused: this node has failed at this request twice and drops it (the reason is in the node's log)",
        /// The node crashed while working on this request before.
        Crashed = "refused: this node crashed on this request before (the reason is in the node's log)",
    }
}

impl Refusal {
    /// The sentence that is sent.
    pub fn words(self) -> &'static str {
        self.name()
    }

    /// What the server is told of an error.
    pub(super) fn of(error: &Error) -> Self {
        match error {
            Error::TooLarge { .. } => Self::TooLarge,
            Error::Expired { .. } => Self::Expired,
            Error::Limit { .. } => Self::Limit,
            Error::Object { .. } | Error::Record { .. } | Error::Refused { .. } => Self::Unreadable,
            _ => Self::Unable,
        }
    }
}

/// A refused request: what the server is told, and the exact reason for the node's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) refusal: Refusal,
    pub(super) reason: String,
}

impl Rejection {
    /// The work cannot be done, for whatever reason.
    pub(super) fn unable(reason: impl ToString) -> Self {
        Self { refusal: Refusal::Unable, reason: reason.to_string() }
    }
}

impl From<Error> for Rejection {
    fn from(error: Error) -> Self {
        Self { refusal: Refusal::of(&error), reason: error.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_refusal_has_a_sentence_of_its_own() {
        let sentences: BTreeSet<&str> = Refusal::ALL.iter().map(|refusal| refusal.words()).collect();
        assert_eq!(sentences.len(), Refusal::ALL.len());
        assert!(sentences.iter().all(|sentence| sentence.starts_with("refused: ")));
    }
}
