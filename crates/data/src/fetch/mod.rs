//! Verified, resumable downloads from the publishers, and copies of what a person already has.
//!
//! ```text
//! from_publisher   address -download-> archive -unpack-> members, each checked, in the data folder
//! from_path        archive or folder on this machine ------^
//! ```
//!
//! Nothing lands under its final name before its SHA-256 is right, so whatever is found there later can be trusted.
//!
//! # Layout
//! - [`offer`]: what each publisher offers, and the checksums of it
//! - `download`, `part`, `attempt`: one file over HTTP, resumed, retried and bounded in time
//! - `unpack`, `place`: from an archive or a folder to checked files; `recipe`: files that are no archive
//! - [`FetchObserver`]: how progress is told
mod archive;
mod attempt;
mod download;
mod fingerprint;
mod folder;
mod observer;
pub mod offer;
mod part;
mod patience;
mod place;
mod recipe;
mod unpack;

use std::fs;
use std::path::Path;

pub use archive::{Archive, Member};
pub use download::download;
pub use fingerprint::Fingerprint;
pub use observer::{FetchEvent, FetchObserver};
pub use offer::Offer;
pub use patience::Patience;
pub use recipe::{Recipe, Ways};

use crate::{Error, Result};

/// Brings a data set from its publisher into the data folder.
///
/// Does nothing if everything is there already and intact. Where the publisher has nothing ready to use, the error's hint
/// says how to make it.
pub fn from_publisher(offer: &Offer, data: &Path, patience: &Patience, observer: &mut dyn FetchObserver) -> Result<()> {
    match offer {
        Offer::Archive(archive) => from_archive(archive, data, patience, observer),
        Offer::Recipe(recipe) => recipe.fetch(data, patience, observer),
    }
}

/// Brings a data set from an archive or an unpacked folder on this machine into the data folder.
///
/// Every file of a published archive must have the publisher's SHA-256. Of files made by a person it is not published what
/// they must hold: they are copied if their reader can read them.
pub fn from_path(offer: &Offer, from: &Path, data: &Path, observer: &mut dyn FetchObserver) -> Result<()> {
    let kind = fs::metadata(from).map_err(Error::io(from, "read it"))?;
    match offer {
        Offer::Archive(archive) if archive.is_in(data) => already_there(observer),
        Offer::Archive(archive) if kind.is_dir() => folder::copy_members(from, &archive.members, data, observer),
        Offer::Archive(archive) => unpack::unpack(from, &archive.members, data, observer),
        Offer::Recipe(recipe) => recipe.copy(from, data, observer),
    }
}

fn from_archive(archive: &Archive, data: &Path, patience: &Patience, observer: &mut dyn FetchObserver) -> Result<()> {
    if archive.is_in(data) {
        return already_there(observer);
    }
    fs::create_dir_all(data).map_err(Error::io(data, "create it"))?;
    let file = data.join(archive.file_name());
    download(&archive.address, &archive.fingerprint, &file, patience, observer)?;
    unpack::unpack(&file, &archive.members, data, observer)?;
    fs::remove_file(&file).map_err(Error::io(&file, "remove it"))
}

fn already_there(observer: &mut dyn FetchObserver) -> Result<()> {
    observer.observe(&FetchEvent::AlreadyThere);
    Ok(())
}
