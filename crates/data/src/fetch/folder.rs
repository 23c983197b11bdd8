//! A folder that has already been unpacked.
use std::fs::File;
use std::path::{Path, PathBuf};

use super::archive::Member;
use super::observer::FetchObserver;
use super::place::place;
use crate::{Error, Result};

/// Copies every member from the folder into the data folder, checked on the way.
pub(super) fn copy_members(folder: &Path, members: &[Member], data: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
    for member in members {
        let path = find(folder, member)?;
        let file = File::open(&path).map_err(Error::io(&path, "read it"))?;
        place(file, member, data, &path, observer)?;
    }
    Ok(())
}

/// The folder may be the unpacked one itself or the one that holds it.
fn find(folder: &Path, member: &Member) -> Result<PathBuf> {
    let candidates = [folder.join(&member.path), folder.join(member.file_name())];
    candidates.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        Error::unmeetable(
            format!("`{}` holds neither `{}` nor `{}`", folder.display(), member.path, member.file_name()),
            "name the folder that the publisher's archive unpacks to, or the one around it",
        )
    })
}
