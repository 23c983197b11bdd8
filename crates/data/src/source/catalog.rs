//! What the program knows about each data set before it has read a byte of it.
use std::path::Path;

use super::Source;
#[cfg(feature = "fetch")]
use crate::fetch::Offer;
use crate::{Dataset, Result};

/// A data set, in a file of its own: what is known of it, its options and how it is read.
pub trait DataSet: Default {
    /// What the catalog says.
    const ENTRY: Entry;

    /// Reads all of it from a folder, or from one of the [places](Entry::places) below it.
    fn load(&self, folder: &Path) -> Result<Dataset>;

    /// Noise of the same shape, for measuring where the data is not available; nothing where its shape is known only when it is read.
    fn stand_in(&self) -> Option<Dataset> {
        None
    }

    /// How it can be fetched, if it can.
    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        None
    }
}

/// One line of the catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name it goes by on the command line.
    pub name: &'static str,
    /// What it is, in one line.
    pub about: &'static str,
    /// What its samples are.
    pub kind: SampleKind,
    /// How it is divided among clients where nobody says otherwise.
    pub partition: UsualPartition,
    /// Where it is looked for, below the data folder and in this order; `""` is the folder itself. Empty: it needs no files.
    pub places: &'static [&'static str],
    /// The files expected there, as their publisher lays them out.
    pub layout: &'static str,
    /// Under which terms it may be used.
    pub licence: &'static str,
    /// Whom to cite.
    pub citation: &'static str,
}

/// What the samples of a data set are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleKind {
    /// Pictures.
    Images,
    /// Text, symbol by symbol.
    Text,
    /// Rows of numbers.
    Numbers,
}

/// How a data set is divided among clients where nobody says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UsualPartition {
    /// The [rule](crate::partition::Partition::rule).
    pub rule: &'static str,
    /// How many clients a rule makes.
    pub clients: usize,
    /// How many labels a client has, where the rule counts them.
    pub labels: usize,
    /// How many owners are taken as clients; all if left out.
    pub owners: Option<usize>,
}

impl UsualPartition {
    /// By whose the samples are.
    pub const NATURAL: Self = Self { rule: "natural", clients: 100, labels: 5, owners: None };
    /// A few labels a client.
    pub const BY_LABEL: Self = Self { rule: "label-shards", ..Self::NATURAL };
}

/// Everything there is, in the order people should meet it.
pub fn catalog() -> impl Iterator<Item = &'static Entry> {
    Source::all().into_iter().map(|source| source.entry())
}
