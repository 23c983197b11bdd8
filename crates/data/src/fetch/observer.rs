//! How progress is told: the library never prints.
use std::path::Path;
use std::time::Duration;

/// Something worth telling a person while data is fetched.
#[derive(Clone, Debug, PartialEq)]
pub enum FetchEvent<'a> {
    /// Everything is in place and intact; nothing will be fetched.
    AlreadyThere,
    /// So much of the file has arrived. The first of these comes before any byte, and is not zero where a download resumes.
    Downloaded {
        /// Bytes on disk.
        done: u64,
        /// Bytes of the whole file.
        total: u64,
    },
    /// An attempt failed; the next follows after a pause.
    Retrying {
        /// What went wrong.
        problem: &'a str,
        /// How long until the next attempt.
        pause: Duration,
    },
    /// The whole file is there and its SHA-256 is being computed.
    Checking {
        /// The file.
        file: &'a Path,
    },
    /// A file of the data set was checked and is in its place.
    Placed {
        /// The file.
        file: &'a Path,
    },
}

/// Receives progress; every `FnMut(&FetchEvent)` is one.
pub trait FetchObserver {
    /// Called often, from the thread that does the work: be quick.
    fn observe(&mut self, event: &FetchEvent<'_>);
}

impl<F: FnMut(&FetchEvent<'_>)> FetchObserver for F {
    fn observe(&mut self, event: &FetchEvent<'_>) {
        self(event);
    }
}
