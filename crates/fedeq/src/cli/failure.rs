//! Errors as people read them: what is wrong, what to do, and the exit code.
use std::io::{self, ErrorKind, Write};
use std::path::Path;

use fedeq_data::Error;

/// The exit code of work that was stopped by Ctrl-C: 128 and the number of the signal, as shells have it.
const INTERRUPTED: u8 = 130;

/// The exit code of work that ended since its time was over: a script may start it again.
const OUT_OF_TIME: u8 = 3;

/// The result of a command.
pub(super) type Outcome<T> = Result<T, Failure>;

/// Why a command ended early.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something to tell the person.
    Told {
        /// What is wrong.
        problem: String,
        /// What to do about it.
        hint: String,
        /// 1 the work itself failed, 2 the request or the input was wrong, 130 it was interrupted.
        code: u8,
    },
    /// The time that was given is over, and there is more to do.
    OutOfTime,
    /// Whoever read our output has gone, which is their right.
    ReaderGone,
}

impl Failure {
    /// The request cannot be met.
    pub(super) fn request(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Told { problem: problem.into(), hint: hint.into(), code: 2 }
    }

    /// The work itself failed.
    pub(super) fn work(problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Told { problem: problem.into(), hint: hint.into(), code: 1 }
    }

    /// The request was refused before any work began.
    pub(super) fn refused(error: fedeq_core::Error) -> Self {
        // A full disk is nothing that was wrong with the request.
        let code = if error.is_disk_full() { 1 } else { 2 };
        Self::Told { problem: error.to_string(), hint: error.hint(), code }
    }

    /// The work was under way.
    pub(super) fn during_work(error: fedeq_core::Error) -> Self {
        let code = if matches!(error, fedeq_core::Error::Interrupted) { INTERRUPTED } else { 1 };
        Self::Told { problem: error.to_string(), hint: error.hint(), code }
    }

    /// Shorthand for a failed read or write, shaped for `map_err`.
    pub(super) fn io(path: &Path, action: &'static str) -> impl FnOnce(io::Error) -> Self {
        let error = Error::io(path, action);
        move |source| error(source).into()
    }

    /// Output that could not be written.
    pub(super) fn output(error: io::Error) -> Self {
        if error.kind() == ErrorKind::BrokenPipe {
            return Self::ReaderGone;
        }
        Self::Told { problem: format!("cannot write the output: {error}"), hint: "check where it goes".into(), code: 1 }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let code = match &error {
            Error::Malformed { .. } | Error::Unmeetable { .. } => 2,
            Error::Io { source, .. } if source.kind() == ErrorKind::NotFound => 2,
            Error::Io { .. } | Error::Download { .. } => 1,
        };
        Self::Told { problem: error.to_string(), hint: error.hint(), code }
    }
}

/// Tells the person and gives the exit code.
pub(super) fn conclude(outcome: Outcome<()>) -> u8 {
    match outcome {
        Ok(()) | Err(Failure::ReaderGone) => 0,
        Err(Failure::OutOfTime) => {
            let _ = writeln!(io::stderr(), "the time is over; the same command again continues from here");
            OUT_OF_TIME
        }
        Err(Failure::Told { problem, hint, code }) => {
            // If not even stderr can be written to, no one is left to tell.
            let _ = writeln!(io::stderr(), "error: {problem}\nhint: {hint}");
            code
        }
    }
}
