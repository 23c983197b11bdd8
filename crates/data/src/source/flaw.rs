//! Something wrong with one record, before it is known where that record is.
use crate::{Error, Place};
use std::path::Path;

/// What is wrong, and the remedy.
pub(super) struct Flaw {
    problem: String,
    remedy: &'static str,
}

impl Flaw {
    pub(super) fn new(problem: impl Into<String>, remedy: &'static str) -> Self {
        Self { problem: problem.into(), remedy }
    }

    /// The flaw as an error that says where it is.
    pub(super) fn at(self, place: Place, file: &Path) -> Error {
        Error::malformed(file, place, self.problem, self.remedy)
    }

    /// The same flaw, found in an array of that name.
    pub(super) fn in_array(self, name: &str) -> Self {
        Self { problem: format!("`{name}`: {}", self.problem), ..self }
    }

    /// The flaw as an error about something that is no file.
    pub(super) fn about(self, thing: &str) -> Error {
        Error::unmeetable(format!("{thing}: {}", self.problem), self.remedy)
    }
}
