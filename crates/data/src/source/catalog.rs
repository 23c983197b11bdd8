//! What the program knows about each data set before it has read a byte of it.
use super::Source;

/// One line of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name it goes by on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// Where it is looked for, below the data folder and in this order; `""` is the folder itself. Empty: it needs no files.
    pub places: &'static [&'static str],
    /// The files expected there, as their publisher lays them out.
    pub layout: &'static str,
    /// Under which terms it may be used.
    pub licence: &'static str,
    /// Whom to cite.
    pub citation: &'static str,
}

/// Everything there is, in the order people should meet it.
pub fn catalog() -> impl Iterator<Item = &'static Entry> {
    Source::all().into_iter().map(|source| source.entry())
}
