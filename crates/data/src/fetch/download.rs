//! One file over HTTP: resumed where it was cut, retried when it fails, checked before it gets its name.
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::attempt::{Failure, attempt};
use super::fingerprint::Fingerprint;
use super::observer::{FetchEvent, FetchObserver};
use super::part::Part;
use super::patience::Patience;
use crate::{Error, Result};

/// Downloads `address` to `target`, which must turn out to have the given fingerprint.
///
/// Bytes gather in `target` + `.part`, which survives a failure, so that the next call continues where this one stopped.
/// Does nothing if `target` is there already and intact.
pub fn download(
    address: &str,
    expected: &Fingerprint,
    target: &Path,
    patience: &Patience,
    observer: &mut dyn FetchObserver,
) -> Result<()> {
    if expected.is_of(target) {
        return Ok(());
    }
    let mut part = Part::open(target)?;
    let deadline = Instant::now() + patience.total;
    let mut transfer = Transfer { address, expected, patience, deadline, observer };
    let resumed = part.length() > 0;
    let mut intact = transfer.complete(&mut part)?;
    if !intact && resumed {
        // What lay there from an earlier run may not have been the start of this file: once more, from nothing.
        part.clear()?;
        intact = transfer.complete(&mut part)?;
    }
    if intact {
        return part.finish(target);
    }
    part.discard()?;
    Err(transfer.wrong_bytes())
}

/// What stays the same from one attempt to the next.
struct Transfer<'a> {
    address: &'a str,
    expected: &'a Fingerprint,
    patience: &'a Patience,
    deadline: Instant,
    observer: &'a mut dyn FetchObserver,
}

impl Transfer<'_> {
    /// Fills the part and says whether it holds the right bytes.
    fn complete(&mut self, part: &mut Part) -> Result<bool> {
        self.fill(part)?;
        self.observer.observe(&FetchEvent::Checking { file: part.path() });
        Ok(part.fingerprint()? == *self.expected)
    }

    /// Attempts until the part is as long as the file. Only attempts in a row that bring nothing new count against it.
    fn fill(&mut self, part: &mut Part) -> Result<()> {
        let mut failures = 0;
        while part.length() != self.expected.bytes {
            if part.length() > self.expected.bytes {
                part.clear()?;
            }
            let before = part.length();
            if let Err(problem) = self.attempt(part)? {
                failures = if part.length() > before { 1 } else { failures + 1 };
                self.pause(failures, problem)?;
            }
        }
        Ok(())
    }

    /// The inner error is a problem that may pass.
    fn attempt(&mut self, part: &mut Part) -> Result<std::result::Result<(), String>> {
        match attempt(self.address, self.expected.bytes, part, self.patience, self.time_left(), self.observer) {
            Ok(()) => Ok(Ok(())),
            Err(Failure::Passing(problem)) => Ok(Err(problem)),
            Err(Failure::Final(problem)) => Err(self.error(problem, self.gone())),
            Err(Failure::Local(error)) => Err(error),
        }
    }

    fn pause(&mut self, failures: u32, problem: String) -> Result<()> {
        let pause = self.patience.pause_after(failures);
        if failures >= self.patience.attempts || pause >= self.time_left() {
            return Err(self.error(problem, self.try_again()));
        }
        self.observer.observe(&FetchEvent::Retrying { problem: &problem, pause });
        thread::sleep(pause);
        Ok(())
    }

    fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn wrong_bytes(&self) -> Error {
        let problem = format!("what was downloaded does not have the SHA-256 `{}`", self.expected.sha256);
        self.error(problem, self.gone())
    }

    fn error(&self, problem: String, remedy: String) -> Error {
        Error::Download { address: self.address.to_owned(), problem, remedy }
    }

    fn try_again(&self) -> String {
        "check the network and run the command again: it continues where it stopped; \
         or download that file elsewhere and bring it with `--from FILE`"
            .into()
    }

    fn gone(&self) -> String {
        "the publisher may have moved or changed the file, or something between here and there answers in its place; \
         get the file elsewhere and bring it with `--from FILE`"
            .into()
    }
}
