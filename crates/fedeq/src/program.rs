//! How this program is started: again with the same arguments, or beside itself with others.
use std::env;
use std::ffi::OsString;
use std::io;
use std::sync::OnceLock;

/// The words that start it, where it is no program of its own.
static WORDS: OnceLock<Vec<OsString>> = OnceLock::new();

/// What it was started with.
static ARGUMENTS: OnceLock<Vec<OsString>> = OnceLock::new();

/// Says by which words the program is started, where it is part of another one: `python -m fedeq`. The first call counts.
pub fn is_started_by(words: Vec<OsString>) {
    let _ = WORDS.set(words);
}

/// Remembers the arguments, the first being the program itself.
pub(crate) fn remember(arguments: &[OsString]) {
    let _ = ARGUMENTS.set(arguments.get(1..).unwrap_or_default().to_vec());
}

/// The words that start it: those that were given, else this executable.
pub(crate) fn words() -> io::Result<Vec<OsString>> {
    WORDS.get().map_or_else(|| Ok(vec![env::current_exe()?.into()]), |words| Ok(words.clone()))
}

/// What it was started with, without the program itself.
#[cfg(unix)]
pub(crate) fn arguments() -> &'static [OsString] {
    ARGUMENTS.get().map_or(&[], Vec::as_slice)
}
