//! EMNIST by writer, in the publisher's MATLAB files: of all forms in which it is published, the one that says who wrote what.
use super::mat::{self, MatArray, MatNumbers, MatValue};
use super::roster::Roster;
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Offer, Recipe, Ways};
#[cfg(feature = "fetch")]
use crate::source::Source;
use crate::{Dataset, Error, Images, Labels, Owners, Place, Result, Samples, Scaling, named};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::Path;

const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const REMEDY: &str = "download the publisher's MATLAB files again";

/// Which part of EMNIST.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Emnist {
    /// One of the publisher's six.
    pub split: EmnistSplit,
}

named! {
    /// The publisher's splits.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
    pub enum EmnistSplit {
        /// 814,255 characters in 62 classes.
        #[default]
        ByClass = "byclass",
        /// 814,255 characters in 47 classes: small letters that look like their capitals are one with them.
        ByMerge = "bymerge",
        /// 131,600 characters in the same 47 classes, each as often.
        Balanced = "balanced",
        /// 145,600 letters in 26 classes.
        Letters = "letters",
        /// 280,000 digits.
        Digits = "digits",
        /// 70,000 digits, prepared like MNIST.
        Mnist = "mnist",
    }
}

/// About so many people wrote it.
const WRITERS: usize = 3_600;

impl EmnistSplit {
    /// How many classes it has, and how many characters for training and for testing.
    fn sizes(self) -> (u16, [usize; 2]) {
        match self {
            Self::ByClass => (62, [697_932, 116_323]),
            Self::ByMerge => (47, [697_932, 116_323]),
            Self::Balanced => (47, [112_800, 18_800]),
            Self::Letters => (26, [124_800, 20_800]),
            Self::Digits => (10, [240_000, 40_000]),
            Self::Mnist => (10, [60_000, 10_000]),
        }
    }
}

impl DataSet for Emnist {
    const ENTRY: Entry = Entry {
        name: "emnist",
        about: "up to 814,255 hand-written characters of 28x28 by about 3,600 writers, in 62 classes or fewer, by the publisher's split",
        kind: SampleKind::Images,
        partition: UsualPartition { owners: Some(100), ..UsualPartition::NATURAL },
        places: &["emnist/matlab", "emnist", "matlab", ""],
        layout: "emnist-byclass.mat, -bymerge, -balanced, -letters, -digits or -mnist, by the split (the MATLAB version, which says who wrote what)",
        licence: "public domain (NIST)",
        citation: "Cohen, Afshar, Tapson and van Schaik (2017), EMNIST: an extension of MNIST to handwritten letters",
    };

    fn load(&self, folder: &Path) -> Result<Dataset> {
        let name = format!("emnist-{}.mat", self.split.name());
        let file = locate::folder_with(folder, Self::ENTRY.places, &name)?.join(name);
        let mut all = mat::read(locate::open(&file)?, &file)?;
        let Some(MatValue::Struct(mut parts)) = all.remove("dataset") else {
            return Err(wrong(&file, Place::Whole, "it has no struct `dataset`"));
        };
        let classes = Mapping::of(&file, parts.remove("mapping"))?;
        let mut writers = Characters::default();
        let test_start = writers.add(&file, "train", parts.remove("train"), &classes)?;
        writers.add(&file, "test", parts.remove("test"), &classes)?;
        Ok(Dataset {
            name: Self::ENTRY.name.into(),
            samples: Samples::Images(Images {
                shape: [SIDE, SIDE, 1],
                pixels: writers.pixels,
                white: u8::MAX,
                scaling: Scaling::identity(1),
            }),
            labels: Labels::Classes { names: classes.names, values: writers.classes },
            owners: Some(Owners { names: writers.names.into_names(), of: writers.owners }),
            test_start: Some(test_start),
        })
    }

    fn stand_in(&self) -> Option<Dataset> {
        let (classes, characters) = self.split.sizes();
        let a_writer = characters.map(|all| all / WRITERS);
        Some(stand_in::owned_pictures(Self::ENTRY.name, [SIDE, SIDE, 1], classes, a_writer))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::Emnist(Self::default()),
            folder: "emnist/matlab",
            names: &[("emnist-", ".mat")],
            ways: Ways::Prepared {
                reason: "its publisher offers one archive of all splits and no checksums",
                steps: &[
                    "curl -LO https://biometrics.nist.gov/cs_links/EMNIST/matlab.zip",
                    "unzip matlab.zip",
                    "fedeq data get emnist --from matlab",
                ],
            },
        }))
    }
}

/// Which class each of the file's labels is.
struct Mapping {
    of: BTreeMap<u32, u16>,
    names: Vec<String>,
}

impl Mapping {
    /// Rows of a label and the characters it stands for.
    fn of(file: &Path, value: Option<MatValue>) -> Result<Self> {
        let Some(MatValue::Array(MatArray { sizes, numbers })) = value else {
            return Err(wrong(file, Place::Whole, "`dataset.mapping` is not there, or no numbers"));
        };
        let [rows, columns @ 2..=3] = sizes[..] else {
            return Err(wrong(file, Place::Whole, format!("`dataset.mapping` has the sizes `{sizes:?}`")));
        };
        let (mut of, mut names) = (BTreeMap::new(), Vec::new());
        for row in 0..rows {
            let code = |column: usize| numbers.whole(column * rows + row);
            let letter = |column: usize| code(column).and_then(char::from_u32).filter(char::is_ascii_graphic);
            let name: Option<String> = (1..columns).map(letter).collect();
            let (Some(label), Some(name), Ok(class)) = (code(0), name, u16::try_from(row)) else {
                return Err(wrong(file, Place::Whole, format!("row {row} of `dataset.mapping` is no label with its character")));
            };
            if of.insert(label, class).is_some() {
                return Err(wrong(file, Place::Whole, format!("`dataset.mapping` has label `{label}` twice")));
            }
            names.push(name);
        }
        Ok(Self { of, names })
    }
}

/// What was read so far.
#[derive(Default)]
struct Characters {
    names: Roster,
    pixels: Vec<u8>,
    classes: Vec<u16>,
    owners: Vec<u32>,
}

impl Characters {
    /// Adds the training or the test characters; how many there are now.
    fn add(&mut self, file: &Path, half: &str, value: Option<MatValue>, classes: &Mapping) -> Result<usize> {
        let Some(MatValue::Struct(mut fields)) = value else {
            return Err(wrong(file, Place::Whole, format!("`dataset.{half}` is not there, or no struct")));
        };
        let mut numbers = |name: &str| match fields.remove(name) {
            Some(MatValue::Array(array)) => Ok(array),
            _ => Err(wrong(file, Place::Whole, format!("`dataset.{half}.{name}` is not there, or no numbers"))),
        };
        let [images, labels, writers] = [numbers("images")?, numbers("labels")?, numbers("writers")?];
        let MatArray { sizes, numbers: MatNumbers::Bytes(columns) } = images else {
            return Err(wrong(file, Place::Whole, format!("`dataset.{half}.images` are not bytes")));
        };
        let count = labels.numbers.len();
        if sizes != [count, PIXELS] || writers.numbers.len() != count || count == 0 {
            let problem = format!(
                "`dataset.{half}` has images of sizes `{sizes:?}`, `{count}` labels and `{}` writers",
                writers.numbers.len()
            );
            return Err(wrong(file, Place::Whole, problem));
        }
        for at in 0..count {
            let label = labels.numbers.whole(at).and_then(|label| classes.of.get(&label));
            let class = label.ok_or_else(|| {
                wrong(file, Place::Record(at as u64), format!("the label in `dataset.{half}` is not in `dataset.mapping`"))
            })?;
            let writer = writers.numbers.whole(at).ok_or_else(|| {
                wrong(file, Place::Record(at as u64), format!("the writer in `dataset.{half}` is no whole number"))
            })?;
            self.classes.push(*class);
            self.owners.push(self.names.number(&format!("writer-{writer:04}")));
        }
        self.add_pictures(&columns, count);
        Ok(self.classes.len())
    }

    /// From columns of one number of every picture, themselves in columns of the picture, to pixels.
    fn add_pictures(&mut self, columns: &[u8], count: usize) {
        let start = self.pixels.len();
        self.pixels.resize(start + count * PIXELS, 0);
        let pixels = &mut self.pixels[start..];
        for (at, values) in columns.chunks_exact(count).enumerate() {
            let (row, column) = (at % SIDE, at / SIDE);
            for (picture, value) in values.iter().enumerate() {
                pixels[picture * PIXELS + row * SIDE + column] = *value;
            }
        }
    }
}

fn wrong(file: &Path, place: Place, problem: impl Into<String>) -> Error {
    Error::malformed(file, place, problem, REMEDY)
}
