//! What publishers offer; each data set's file says what its own does.
use std::path::{Path, PathBuf};

use super::archive::Archive;
use super::recipe::Recipe;
use crate::source::Source;

/// How a data set can be had.
#[derive(Clone, Debug, PartialEq)]
pub enum Offer {
    /// As an archive that is downloaded, checked and unpacked.
    Archive(Archive),
    /// As loose files: downloaded one by one, or prepared by a person.
    Recipe(Recipe),
}

/// The offer for a data set; none for a set that needs no fetching or is not known.
///
/// ```
/// use fedeq_data::fetch::offer::offer;
/// assert!(offer("cifar10").is_some());
/// assert!(offer("digits").is_none());
/// ```
pub fn offer(name: &str) -> Option<Offer> {
    Source::named(name).ok()?.offer()
}

/// The folder in which a data set's files lie, among those that its reader looks in: a glance, not a check of every byte.
pub fn find(source: &Source, data: &Path) -> Option<PathBuf> {
    let offer = source.offer()?;
    let mut folders = source.entry().places.iter().map(|place| data.join(place));
    folders.find(|folder| offer.lies_in(folder))
}

impl Offer {
    fn lies_in(&self, folder: &Path) -> bool {
        match self {
            Self::Archive(archive) => archive.members.iter().all(|member| folder.join(member.file_name()).is_file()),
            Self::Recipe(recipe) => recipe.lies_in(folder),
        }
    }
}
