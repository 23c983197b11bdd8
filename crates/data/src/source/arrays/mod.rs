//! Arrays that a program hands over: pictures, rows of numbers or sequences of tokens, each with its label and its client.
//!
//! They are kept as one [safetensors](https://github.com/huggingface/safetensors) file, so that whatever comes later (resuming, re-evaluating,
//! predicting, exporting) finds them again, in this program or another one. The tensors of a file are
//!
//! | tensor | shape | holds |
//! |---|---|---|
//! | `train/x` | `[N, H, W]` or `[N, H, W, C]` of bytes, `[N, D]` of floats, or `[N, T]` of integers | the samples: pictures, numbers or tokens |
//! | `train/y` | `[N]` of integers; for tokens `[N, T]` | a class each; for tokens, the one that follows |
//! | `train/client` | `[N]` of integers | whose each sample is; left out where a partition is to deal them |
//! | `test/x`, `test/y`, `test/client` | alike | the test samples; left out where clients are to split their own |
//!
//! and the metadata have one key `fedeq`, a JSON object in which `clients` lists the names that `client` counts, `classes` those that `y` counts (the
//! values of `y` themselves are the names if it is left out) and `vocabulary` says how many tokens there are (one more than the largest if it is left out).
//!
//! # Layout
//! - this file: the three data sets, told apart by what their samples are, since networks and rates are chosen by that
//! - `given`: one array, and what it is as samples
//! - `clients`: arrays of clients put together; `whole`: what must hold of all of them
//! - `file`: reading; `parts`: from what was read to a data set; `writing`: the way back
mod clients;
mod file;
mod given;
mod parts;
mod whole;
mod writing;

use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use clients::{GivenClients, GivenPart};
pub use file::{read, sha256_of};
pub use given::{GivenArray, GivenLabels, GivenValues};
pub use writing::{write, write_to};

use super::classes::ClassNames;
use super::scale::Scale;
use super::{DataSet, Entry, SampleKind, Source, UsualPartition, locate};
use crate::{Dataset, Error, Result, Samples};

/// What files of arrays are called.
const PATTERN: &str = "*.safetensors";
const LAYOUT: &str = "one *.safetensors with `train/x`, `train/y` and `train/client`, see docs/own-data.md";

/// Pictures as arrays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ImageArrays {
    /// All classes there are; those that occur where it is left out.
    pub classes: Option<ClassNames>,
    /// The SHA-256 of the file, which makes it part of what an experiment is. Filled in when it is first read; another file is refused then.
    pub sha256: Option<String>,
}

/// Rows of numbers as arrays.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct VectorArrays {
    /// All classes there are; those that occur where it is left out.
    pub classes: Option<ClassNames>,
    /// What becomes of the features before a model sees them.
    pub scale: Scale,
    /// The SHA-256 of the file, which makes it part of what an experiment is. Filled in when it is first read; another file is refused then.
    pub sha256: Option<String>,
}

/// Sequences of tokens as arrays, of which the next is predicted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TokenArrays {
    /// How many tokens there are, padding included; what the file says, or one more than the largest, where it is left out.
    #[schemars(range(min = 2, max = 256))]
    pub vocabulary: Option<NonZeroU16>,
    /// The SHA-256 of the file, which makes it part of what an experiment is. Filled in when it is first read; another file is refused then.
    pub sha256: Option<String>,
}

/// What is expected of a file.
#[derive(Clone, Copy, Debug)]
pub struct Expected<'a> {
    /// What its samples are.
    pub kind: SampleKind,
    /// All classes there are, where that is known.
    pub classes: Option<&'a ClassNames>,
    /// How many tokens there are, where that is known.
    pub vocabulary: Option<NonZeroU16>,
    /// The SHA-256 of all its bytes, where that is known.
    pub sha256: Option<&'a str>,
}

impl DataSet for ImageArrays {
    const IS_ARRAYS: bool = true;
    const ENTRY: Entry = entry(
        "image-arrays",
        "your own pictures as arrays, from a program: [N, H, W] or [N, H, W, C] of bytes",
        SampleKind::Images,
    );

    fn load(&self, path: &Path) -> Result<Dataset> {
        let Self { classes, sha256 } = self;
        let kind = Self::ENTRY.kind;
        load(path, &Expected { kind, classes: classes.as_ref(), vocabulary: None, sha256: sha256.as_deref() })
    }

    fn description(&self) -> String {
        "pictures with their classes, as arrays in a `.safetensors` file".into()
    }

    fn classes(&self) -> Option<&ClassNames> {
        self.classes.as_ref()
    }

    fn alike(&self, example: &Dataset) -> Self {
        Self { classes: ClassNames::of(example), sha256: None }
    }

    fn sha256_mut(&mut self) -> Option<&mut Option<String>> {
        Some(&mut self.sha256)
    }
}

impl DataSet for VectorArrays {
    const IS_ARRAYS: bool = true;
    const ENTRY: Entry =
        entry("vector-arrays", "your own numbers as arrays, from a program: [N, D] of floats", SampleKind::Numbers);

    fn load(&self, path: &Path) -> Result<Dataset> {
        let Self { classes, sha256, .. } = self;
        let kind = Self::ENTRY.kind;
        load(path, &Expected { kind, classes: classes.as_ref(), vocabulary: None, sha256: sha256.as_deref() })
    }

    fn description(&self) -> String {
        "rows of numbers with their classes, as arrays in a `.safetensors` file".into()
    }

    fn classes(&self) -> Option<&ClassNames> {
        self.classes.as_ref()
    }

    fn alike(&self, example: &Dataset) -> Self {
        Self { classes: ClassNames::of(example), sha256: None, ..self.clone() }
    }

    fn scale(&self) -> Option<&Scale> {
        Some(&self.scale)
    }

    fn scale_mut(&mut self) -> Option<&mut Scale> {
        Some(&mut self.scale)
    }

    fn sha256_mut(&mut self) -> Option<&mut Option<String>> {
        Some(&mut self.sha256)
    }
}

impl DataSet for TokenArrays {
    const IS_ARRAYS: bool = true;
    const ENTRY: Entry =
        entry("token-arrays", "your own sequences of tokens as arrays, from a program: [N, T] of integers", SampleKind::Text);

    fn load(&self, path: &Path) -> Result<Dataset> {
        let Self { vocabulary, sha256 } = self;
        load(path, &Expected { kind: Self::ENTRY.kind, classes: None, vocabulary: *vocabulary, sha256: sha256.as_deref() })
    }

    fn description(&self) -> String {
        "sequences of tokens, of which the next is predicted, as arrays in a `.safetensors` file".into()
    }

    /// A token is a byte.
    fn validate(&self) -> Result<()> {
        match self.vocabulary {
            Some(size) if !(2..=256).contains(&size.get()) => {
                let problem = format!("`data.source.vocabulary` is `{size}`");
                Err(Error::unmeetable(problem, "give a whole number from 2 to 256"))
            }
            _ => Ok(()),
        }
    }

    fn alike(&self, example: &Dataset) -> Self {
        let Samples::Sequences(sequences) = &example.samples else { return Self { sha256: None, ..self.clone() } };
        let vocabulary = u16::try_from(sequences.vocabulary).ok().and_then(NonZeroU16::new);
        Self { vocabulary, sha256: None }
    }

    fn sha256_mut(&mut self) -> Option<&mut Option<String>> {
        Some(&mut self.sha256)
    }
}

const fn entry(name: &'static str, about: &'static str, kind: SampleKind) -> Entry {
    let (licence, citation) = ("your own", "your own");
    Entry { name, about, kind, partition: UsualPartition::NATURAL, places: &[""], layout: LAYOUT, licence, citation }
}

/// The file at a path, or the only one of a folder.
fn file_at(path: &Path) -> Result<PathBuf> {
    let mut files = locate::files(path, &[""], &[PATTERN])?;
    match (files.pop(), files.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => {
            let problem = format!("`{}` holds {} files of arrays", path.display(), others + 1);
            Err(Error::unmeetable(problem, "give the path of the one that is meant"))
        }
    }
}

fn load(path: &Path, expected: &Expected<'_>) -> Result<Dataset> {
    let file = file_at(path)?;
    let (input, length) = file::open(&file)?;
    read(input, length, &file, expected)
}

/// The data set that reads a kind of samples.
fn source_of(kind: SampleKind) -> Source {
    match kind {
        SampleKind::Images => Source::ImageArrays(ImageArrays::default()),
        SampleKind::Numbers => Source::VectorArrays(VectorArrays::default()),
        SampleKind::Text => Source::TokenArrays(TokenArrays::default()),
    }
}

impl Source {
    /// The data set that a file of arrays holds; its header is read.
    pub fn of_arrays(path: &Path) -> Result<Self> {
        let file = file_at(path)?;
        let (input, length) = file::open(&file)?;
        Ok(source_of(file::kind(input, length, &file)?))
    }

    /// The data set that reads what [`write()`] makes of samples like these.
    pub fn of_arrays_like(samples: &Samples) -> Self {
        source_of(match samples {
            Samples::Images(_) => SampleKind::Images,
            Samples::Vectors(_) => SampleKind::Numbers,
            Samples::Sequences(_) => SampleKind::Text,
        })
    }

    /// The same data set, which from now on is the file at a path and no other. Changes nothing where it is already said which file is meant, where there is none,
    /// and for all data sets but arrays.
    pub fn pinned(&self, path: &Path) -> Result<Self> {
        let mut pinned = self.clone();
        if let Some(sha256 @ None) = pinned.sha256_mut() {
            *sha256 = file_at(path).ok().map(|file| sha256_of(&file)).transpose()?;
        }
        Ok(pinned)
    }
}
