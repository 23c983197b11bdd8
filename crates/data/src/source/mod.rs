//! Readers: from bytes to a [`Dataset`].
//!
//! [`Source`] is plain data: it says which data set is meant and with which options, and can stand in an experiment file.
//! [`Source::load`] does the work.
//!
//! # Layout
//! - [`Source`], [`catalog`] and [`Summary`]: what there is, where it comes from, how large it is.
//! - [`digits`], [`cifar`]: pictures in binary records ([`records`]).
//! - [`femnist`]: pictures of writers, in LEAF's JSON.
//! - [`text`], [`shakespeare`]: what clients wrote or said, as [`vocabulary`] symbols, from JSON lines or LEAF's JSON.
//! - [`image_folder`], [`table`]: your own pictures and numbers; [`classes`]: what they may be called; [`scale`]: in which units numbers
//!   reach a model.
//! - [`synthetic`]: problems whose best answer is known.
//!
//! Every reader is a function over [`std::io::Read`] that takes a path only to name it in errors, never panics on what it reads,
//! and allocates in proportion to the bytes it has seen.
mod catalog;
pub mod cifar;
pub mod classes;
pub mod digits;
pub mod femnist;
mod flaw;
pub mod image_folder;
mod json;
mod leaf;
mod locate;
pub mod records;
mod roster;
pub mod scale;
pub mod shakespeare;
mod summary;
pub mod synthetic;
pub mod table;
pub mod text;
pub mod vocabulary;

use crate::{Dataset, Error, Labels, Result, Samples, Scaling};
pub use catalog::{Entry, catalog};
use cifar::Cifar;
use classes::ClassNames;
use image_folder::ImageFolder;
use scale::Scale;
use serde::{Deserialize, Serialize};
use std::path::Path;
pub use summary::Summary;
use synthetic::Synthetic;
use table::Table;
use text::Text;

/// Which data set, and how it is to be read.
///
/// ```
/// use fedeq_data::source::Source;
/// let source = Source::named("digits")?;
/// let digits = source.load("data".as_ref())?;
/// assert_eq!(digits.len(), 1_797);
/// # Ok::<(), fedeq_data::Error>(())
/// ```
///
/// As data it is a table whose `name` decides what else may stand there: `{ name = "shakespeare", length = 80 }`.
// Variants without options are written `{}`: serde refuses unknown keys only for variants that have fields.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "name", rename_all = "lowercase", deny_unknown_fields)]
pub enum Source {
    /// The UCI hand-written digits, part of the program.
    Digits {},
    /// CIFAR-10, binary version.
    Cifar10 {},
    /// CIFAR-100, binary version, fine labels.
    Cifar100 {},
    /// Federated EMNIST in LEAF's JSON.
    Femnist {},
    /// What Shakespeare's roles say, from LEAF's JSON or JSON lines.
    Shakespeare(Text),
    /// Your own text, as JSON lines.
    Text(Text),
    /// Your own pictures, in folders by client and class.
    Images(ImageFolder),
    /// Your own numbers, as a table.
    Csv(Table),
    /// Generated problems with a known optimum.
    Synthetic(Synthetic),
}

impl Default for Source {
    fn default() -> Self {
        Self::Digits {}
    }
}

impl Source {
    /// One of each, with default options, in the order people should meet them.
    pub fn all() -> Vec<Self> {
        vec![
            Self::Digits {},
            Self::Cifar10 {},
            Self::Cifar100 {},
            Self::Femnist {},
            Self::Shakespeare(Text::default()),
            Self::Text(Text::default()),
            Self::Images(ImageFolder::default()),
            Self::Csv(Table::default()),
            Self::Synthetic(Synthetic::default()),
        ]
    }

    /// The source that goes by `name` on the command line, with default options.
    pub fn named(name: &str) -> Result<Self> {
        let unknown = || Error::unmeetable(format!("there is no data set `{name}`"), format!("choose one of {}", names()));
        Self::all().into_iter().find(|source| source.name() == name).ok_or_else(unknown)
    }

    /// The name it goes by on the command line and in experiment files.
    pub fn name(&self) -> &'static str {
        self.entry().name
    }

    /// What the catalog says about it.
    pub fn entry(&self) -> &'static Entry {
        match self {
            Self::Digits {} => &digits::ENTRY,
            Self::Cifar10 {} => &cifar::ENTRY_10,
            Self::Cifar100 {} => &cifar::ENTRY_100,
            Self::Femnist {} => &femnist::ENTRY,
            Self::Shakespeare(_) => &shakespeare::ENTRY,
            Self::Text(_) => &text::ENTRY,
            Self::Images(_) => &image_folder::ENTRY,
            Self::Csv(_) => &table::ENTRY,
            Self::Synthetic(_) => &synthetic::ENTRY,
        }
    }

    /// The same source for people who hold other samples than those in `example`: read by it, theirs have the shape and the classes
    /// of the example. Published sets and text are alike anyway; columns of a table are for their owners to keep in order.
    pub fn alike(&self, example: &Dataset) -> Self {
        let classes = match &example.labels {
            Labels::Classes { names, .. } => ClassNames::try_from(names.clone()).ok(),
            _ => None,
        };
        match (self.clone(), &example.samples) {
            (Self::Images(options), Samples::Images(images)) => {
                Self::Images(ImageFolder { classes, ..ImageFolder::for_shape(images.shape).unwrap_or(options) })
            }
            (Self::Csv(options), _) => Self::Csv(Table { classes, ..options }),
            (other, _) => other,
        }
    }

    /// The scaling that is part of the source itself.
    pub fn given_scaling(&self) -> Option<Scaling> {
        match self {
            Self::Csv(Table { scale: Scale::By(scaling), .. }) => Some(scaling.clone()),
            _ => None,
        }
    }

    /// Reads the whole data set from `folder`, or from one of the [places](Entry::places) below it.
    ///
    /// A source of a single file (`text`, `csv`, `shakespeare`) also takes the path of that file; `digits` and `synthetic` look
    /// nowhere.
    pub fn load(&self, folder: &Path) -> Result<Dataset> {
        match self {
            Self::Digits {} => digits::load(),
            Self::Cifar10 {} => Cifar::Ten.load(folder),
            Self::Cifar100 {} => Cifar::Hundred.load(folder),
            Self::Femnist {} => femnist::load(folder),
            Self::Shakespeare(options) => shakespeare::load(folder, options),
            Self::Text(options) => options.load(folder),
            Self::Images(options) => options.load(folder),
            Self::Csv(options) => options.load(folder),
            Self::Synthetic(options) => options.load(),
        }
    }
}

fn names() -> String {
    let names: Vec<_> = catalog().map(|entry| format!("`{}`", entry.name)).collect();
    names.join(", ")
}
