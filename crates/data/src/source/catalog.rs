//! What the program knows about each data set before it has read a byte of it.
use std::path::Path;

use super::classes::ClassNames;
use super::scale::Scale;
use super::{Source, UsualTraining};
#[cfg(feature = "fetch")]
use crate::fetch::Offer;
use crate::{Dataset, Result};

/// A data set, in a file of its own: what is known of it, its options and how it is read.
pub trait DataSet: Clone + Default {
    /// What the catalog says.
    const ENTRY: Entry;

    /// Whether it is arrays that a program handed over, kept in a file.
    const IS_ARRAYS: bool = false;

    /// Reads all of it from a folder, or from one of the [places](Entry::places) below it.
    fn load(&self, folder: &Path) -> Result<Dataset>;

    /// What it is, for the person whose data would be read.
    fn description(&self) -> String {
        let name = Self::ENTRY.name;
        if Self::ENTRY.places.is_empty() {
            return format!("nothing of yours: `{name}` is part of the program");
        }
        format!("the data set `{name}`")
    }

    /// The classes that its options name, where they name any.
    fn classes(&self) -> Option<&ClassNames> {
        None
    }

    /// Refuses options that mean nothing.
    fn validate(&self) -> Result<()> {
        Ok(())
    }

    /// The columns below a path that hold features, in the order in which a model sees them; nothing where its samples are no rows of a table.
    fn feature_columns(&self, _path: &Path) -> Result<Option<Vec<String>>> {
        Ok(None)
    }

    /// How models usually learn from it: as from others of its kind, unless it says otherwise.
    fn training() -> UsualTraining {
        UsualTraining::of(Self::ENTRY.kind)
    }

    /// The same for people who hold other samples than those in `example`: read by it, theirs have the shape and the classes of the example. Published sets and text are alike
    /// anyway; columns of a table are for their owners to keep in order.
    fn alike(&self, _example: &Dataset) -> Self {
        self.clone()
    }

    /// What becomes of the features of rows of numbers; nothing for other samples, and for numbers that are generated.
    fn scale(&self) -> Option<&Scale> {
        None
    }

    /// The same, to be changed.
    fn scale_mut(&mut self) -> Option<&mut Scale> {
        None
    }

    /// Of [arrays](Self::IS_ARRAYS): the hash of their file, where that is known.
    fn sha256_mut(&mut self) -> Option<&mut Option<String>> {
        None
    }

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
    /// How it is divided among clients where nothing else is said.
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

/// How a data set is divided among clients where nothing else is said.
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
