//! Readers: from bytes to a [`Dataset`].
//!
//! [`Source`] is plain data: it says which data set is meant and with which options, and can stand in an experiment file.
//! [`Source::load`] does the work.
//!
//! # Layout
//! - [`Source`], [`catalog`], [`DataSet`], [`UsualTraining`] and [`DatasetSummary`]: what there is, where it comes from, how models usually learn from it, how large it is. A data set is a file that implements
//!   [`DataSet`] and a line in `data_sets!` below.
//! - [`digits`], [`cifar`]: pictures in binary records ([`records`]).
//! - [`mnist`], [`emnist`], [`svhn`]: pictures in IDX and MATLAB files ([`idx`], [`mat`]); [`tiny_imagenet`]: photographs in folders.
//! - [`femnist`]: pictures of writers, in LEAF's JSON.
//! - [`text`], [`shakespeare`]: what clients wrote or said, as [`vocabulary`] symbols, from JSON lines or LEAF's JSON.
//! - [`image_folder`], [`table`]: your own pictures and numbers; [`classes`]: what they may be called; [`scale`]: in which units numbers
//!   reach a model.
//! - [`arrays`]: what a program hands over from memory, kept in a safetensors file.
//! - [`synthetic`]: problems whose best answer is known.
//!
//! Every reader is a function over [`std::io::Read`] that takes a path only to name it in errors, never panics on what it reads,
//! and allocates in proportion to the bytes it has seen.
pub mod arrays;
mod catalog;
pub mod cifar;
pub mod classes;
pub mod digits;
pub mod emnist;
pub mod femnist;
mod flaw;
pub mod idx;
pub mod image_folder;
mod json;
mod leaf;
mod locate;
pub mod mat;
pub mod mnist;
pub mod records;
mod roster;
pub mod scale;
pub mod shakespeare;
mod stand_in;
mod summary;
pub mod svhn;
pub mod synthetic;
pub mod table;
pub mod text;
pub mod tiny_imagenet;
mod training;
pub mod vocabulary;

#[cfg(feature = "fetch")]
use crate::fetch::Offer;
use crate::{Dataset, Error, Result, Scaling};
use arrays::{ImageArrays, TokenArrays, VectorArrays};
pub use catalog::{DataSet, Entry, SampleKind, UsualPartition, catalog};
use classes::ClassNames;
use image_folder::ImageFolder;
use scale::Scale;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;
pub use summary::DatasetSummary;
use synthetic::Synthetic;
use table::Table;
use text::Text;
pub use training::UsualTraining;

/// Makes [`Source`] of lines `Variant(Options) = "name"`, one a data set.
macro_rules! data_sets {
    ($($(#[$doc:meta])+ $variant:ident($options:ty) = $name:literal,)+) => {
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
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
        #[serde(tag = "name")]
        pub enum Source {
            $($(#[$doc])+ #[serde(rename = $name)] $variant($options),)+
        }

        impl Source {
            /// One of each, with default options, in the order people should meet them.
            pub fn all() -> Vec<Self> {
                vec![$(Self::$variant(<$options>::default()),)+]
            }

            /// What the catalog says about it.
            pub fn entry(&self) -> &'static Entry {
                match self {
                    $(Self::$variant(_) => &<$options as DataSet>::ENTRY,)+
                }
            }

            /// Reads the whole data set from `folder`, or from one of the [places](Entry::places) below it.
            ///
            /// A source of a single file (`text`, `csv`, `shakespeare`) also takes the path of that file; `digits` and `synthetic` look
            /// nowhere.
            pub fn load(&self, folder: &Path) -> Result<Dataset> {
                match self {
                    $(Self::$variant(options) => DataSet::load(options, folder),)+
                }
            }

            /// What it is, for the person whose data would be read.
            pub fn description(&self) -> String {
                match self {
                    $(Self::$variant(options) => options.description(),)+
                }
            }

            /// The classes that its options name, where they name any.
            pub fn classes(&self) -> Option<&ClassNames> {
                match self {
                    $(Self::$variant(options) => options.classes(),)+
                }
            }

            /// Refuses options that mean nothing.
            pub fn validate(&self) -> Result<()> {
                match self {
                    $(Self::$variant(options) => options.validate(),)+
                }
            }

            /// The columns below a path that hold features, in the order in which a model sees them; nothing where its samples are no rows of a table.
            pub fn feature_columns(&self, path: &Path) -> Result<Option<Vec<String>>> {
                match self {
                    $(Self::$variant(options) => options.feature_columns(path),)+
                }
            }

            /// Whether it is arrays that a program handed over.
            pub fn is_arrays(&self) -> bool {
                match self {
                    $(Self::$variant(_) => <$options as DataSet>::IS_ARRAYS,)+
                }
            }

            /// How models usually learn from it.
            pub fn training(&self) -> UsualTraining {
                match self {
                    $(Self::$variant(_) => <$options as DataSet>::training(),)+
                }
            }

            /// The same source for people who hold other samples than those in `example`: read by it, theirs have the shape and the classes
            /// of the example. Published sets and text are alike anyway; columns of a table are for their owners to keep in order.
            pub fn alike(&self, example: &Dataset) -> Self {
                match self {
                    $(Self::$variant(options) => Self::$variant(options.alike(example)),)+
                }
            }

            /// What becomes of the features of rows of numbers; nothing for other samples, and for numbers that are generated.
            pub fn scale(&self) -> Option<&Scale> {
                match self {
                    $(Self::$variant(options) => options.scale(),)+
                }
            }

            fn scale_mut(&mut self) -> Option<&mut Scale> {
                match self {
                    $(Self::$variant(options) => options.scale_mut(),)+
                }
            }

            fn sha256_mut(&mut self) -> Option<&mut Option<String>> {
                match self {
                    $(Self::$variant(options) => options.sha256_mut(),)+
                }
            }

            /// Noise of the same shape, for measuring where the data is not available; nothing where its shape is not known.
            pub fn stand_in(&self) -> Option<Dataset> {
                match self {
                    $(Self::$variant(options) => options.stand_in(),)+
                }
            }

            /// How it can be fetched, if it can.
            #[cfg(feature = "fetch")]
            pub fn offer(&self) -> Option<Offer> {
                match self {
                    $(Self::$variant(_) => <$options as DataSet>::offer(),)+
                }
            }
        }
    };
}

data_sets! {
    /// The UCI hand-written digits, part of the program.
    Digits(digits::Digits) = "digits",
    /// CIFAR-10, binary version.
    Cifar10(cifar::Cifar10) = "cifar10",
    /// CIFAR-100, binary version, fine labels.
    Cifar100(cifar::Cifar100) = "cifar100",
    /// MNIST, in the publisher's IDX files.
    Mnist(mnist::Mnist) = "mnist",
    /// Fashion-MNIST, in the publisher's IDX files.
    FashionMnist(mnist::FashionMnist) = "fashion-mnist",
    /// EMNIST by writer, in the publisher's MATLAB files.
    Emnist(emnist::Emnist) = "emnist",
    /// SVHN's cropped digits, in the publisher's MATLAB files.
    Svhn(svhn::Svhn) = "svhn",
    /// Tiny ImageNet, in the publisher's folders.
    TinyImagenet(tiny_imagenet::TinyImageNet) = "tiny-imagenet",
    /// Federated EMNIST in LEAF's JSON.
    Femnist(femnist::Femnist) = "femnist",
    /// What Shakespeare's roles say, from LEAF's JSON or JSON lines.
    Shakespeare(shakespeare::Shakespeare) = "shakespeare",
    /// Your own text, as JSON lines.
    Text(Text) = "text",
    /// Your own pictures, in folders by client and class.
    Images(ImageFolder) = "images",
    /// Your own numbers, as a table.
    Csv(Table) = "csv",
    /// Your own pictures as arrays, from a program.
    ImageArrays(ImageArrays) = "image-arrays",
    /// Your own numbers as arrays, from a program.
    VectorArrays(VectorArrays) = "vector-arrays",
    /// Your own sequences of tokens as arrays, from a program.
    TokenArrays(TokenArrays) = "token-arrays",
    /// Generated problems with a known optimum.
    Synthetic(Synthetic) = "synthetic",
}

impl Default for Source {
    fn default() -> Self {
        Self::Digits(digits::Digits {})
    }
}

impl Source {
    /// The source that goes by `name` on the command line, with default options.
    pub fn named(name: &str) -> Result<Self> {
        let unknown = || Error::unmeetable(format!("there is no data set `{name}`"), format!("choose one of {}", names()));
        Self::all().into_iter().find(|source| source.name() == name).ok_or_else(unknown)
    }

    /// The name it goes by on the command line and in experiment files.
    pub fn name(&self) -> &'static str {
        self.entry().name
    }

    /// The scaling that is part of the source itself.
    pub fn given_scaling(&self) -> Option<Scaling> {
        match self.scale() {
            Some(Scale::By(scaling)) => Some(scaling.clone()),
            _ => None,
        }
    }

    /// The same source with features scaled otherwise, where they are.
    pub fn with_scale(mut self, new: Scale) -> Self {
        if let Some(scale) = self.scale_mut() {
            *scale = new;
        }
        self
    }
}

fn names() -> String {
    let names: Vec<_> = catalog().map(|entry| format!("`{}`", entry.name)).collect();
    names.join(", ")
}
