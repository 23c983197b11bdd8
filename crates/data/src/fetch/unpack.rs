//! Out of an archive come the expected members, each checked, and nothing else.
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Component, Path};

use flate2::read::GzDecoder;

use super::archive::Member;
use super::observer::FetchObserver;
use super::place::{damaged, place};
use crate::{Error, Place, Result};

/// Room for headers and for the small files that lie in an archive beside the wanted ones.
const SLACK: u64 = 16 << 20;

/// Unpacks the members into the data folder.
///
/// A path that leads out of the data folder, or a link in a member's place, condemns the whole archive. Reading stops not far
/// beyond the members' own size, however much the archive would inflate to.
pub(super) fn unpack(archive: &Path, members: &[Member], data: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
    let file = File::open(archive).map_err(Error::io(archive, "read it"))?;
    let most: u64 = members.iter().map(|member| member.fingerprint.bytes).sum::<u64>() + SLACK;
    let mut tar = tar::Archive::new(GzDecoder::new(BufReader::new(file)).take(most));
    let mut missing: BTreeMap<&str, &Member> = members.iter().map(|member| (member.path.as_str(), member)).collect();
    for entry in tar.entries().map_err(|error| damaged(archive, &error))? {
        let entry = entry.map_err(|error| damaged(archive, &error))?;
        let path = path_inside(&entry, archive)?;
        if let Some(member) = missing.remove(path.as_str()) {
            require_plain_file(&entry, member, archive)?;
            place(entry, member, data, archive, observer)?;
        }
    }
    match missing.keys().next() {
        Some(path) => Err(Error::malformed(archive, Place::Whole, format!("holds no `{path}`"), WRONG_ARCHIVE)),
        None => Ok(()),
    }
}

const WRONG_ARCHIVE: &str = "check that this is the archive the publisher offers for this data set";

/// The entry's path with `/` between its parts, `./` left out.
fn path_inside<R: Read>(entry: &tar::Entry<'_, R>, archive: &Path) -> Result<String> {
    let path = entry.path().map_err(|error| damaged(archive, &error))?;
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(part) => parts.push(part.to_string_lossy().into_owned()),
            Component::CurDir => {}
            Component::Prefix(_) | Component::RootDir | Component::ParentDir => return Err(leads_out(&path, archive)),
        }
    }
    Ok(parts.join("/"))
}

fn leads_out(path: &Path, archive: &Path) -> Error {
    let problem = format!("`{}` leads out of the data folder", path.display());
    Error::malformed(archive, Place::Whole, problem, "do not trust this archive; get the publisher's own")
}

fn require_plain_file<R: Read>(entry: &tar::Entry<'_, R>, member: &Member, archive: &Path) -> Result<()> {
    if entry.header().entry_type().is_file() {
        return Ok(());
    }
    let problem = format!("`{}` is a link or a folder, not a file", member.path);
    Err(Error::malformed(archive, Place::Whole, problem, "do not trust this archive; get the publisher's own"))
}
