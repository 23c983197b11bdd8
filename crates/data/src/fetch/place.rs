//! From bytes of any origin to a checked file under its final name.
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use super::archive::Member;
use super::fingerprint::{self, Fingerprint};
use super::observer::{FetchEvent, FetchObserver};
use super::part::beside;
use crate::{Error, Place, Result};

/// Writes a member into the data folder; only if its bytes are right does it get its name.
///
/// `origin` is where the reader's bytes come from, for the error.
pub(super) fn place(
    reader: impl Read,
    member: &Member,
    data: &Path,
    origin: &Path,
    observer: &mut dyn FetchObserver,
) -> Result<()> {
    let target = data.join(&member.path);
    let at_most = member.fingerprint.bytes + 1;
    let (part, found) = write_part(reader.take(at_most), &target, origin)?;
    if found != member.fingerprint {
        fs::remove_file(&part).map_err(Error::io(&part, "remove it"))?;
        return Err(differs(member, &found, origin));
    }
    name(&part, &target, observer)
}

/// Copies a file of which no fingerprint is known.
pub(super) fn copy_unchecked(from: &Path, target: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
    let reader = File::open(from).map_err(Error::io(from, "read it"))?;
    let (part, _) = write_part(reader, target, from)?;
    name(&part, target, observer)
}

fn write_part(reader: impl Read, target: &Path, origin: &Path) -> Result<(PathBuf, Fingerprint)> {
    let folder = target.parent().unwrap_or(target);
    fs::create_dir_all(folder).map_err(Error::io(folder, "create it"))?;
    let part = beside(target);
    let file = File::create(&part).map_err(Error::io(&part, "create it"))?;
    let found = fingerprint::copy(reader, &file).map_err(|error| blame(error, &part, origin))?;
    file.sync_all().map_err(Error::io(&part, "write to it"))?;
    Ok((part, found))
}

/// A damaged archive shows as invalid data or an early end; anything else is the disk written to.
fn blame(error: io::Error, part: &Path, origin: &Path) -> Error {
    use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | UnexpectedEof => damaged(origin, &error),
        _ => Error::io(part, "write to it")(error),
    }
}

fn name(part: &Path, target: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
    fs::rename(part, target).map_err(Error::io(target, "create it"))?;
    observer.observe(&FetchEvent::Placed { file: target });
    Ok(())
}

/// The archive cannot be read through to its end.
pub(super) fn damaged(archive: &Path, error: &io::Error) -> Error {
    let remedy = "get the archive again; it must be the publisher's own `.tar.gz`";
    Error::malformed(archive, Place::Whole, format!("not a readable gzip-compressed tar archive: {error}"), remedy)
}

fn differs(member: &Member, found: &Fingerprint, origin: &Path) -> Error {
    let wanted = &member.fingerprint;
    let problem = if found.bytes == wanted.bytes {
        format!("`{}` has the SHA-256 `{}`, not the publisher's `{}`", member.path, found.sha256, wanted.sha256)
    } else {
        format!("`{}` does not have the publisher's `{}` bytes", member.path, wanted.bytes)
    };
    Error::malformed(origin, Place::Whole, problem, "get the publisher's own copy; this one is damaged or has been changed")
}
