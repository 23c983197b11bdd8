//! Federated EMNIST: hand-written characters by their writers, in LEAF's JSON.
//!
//! A user of the file is a writer: `x` holds one row of 28x28 numbers a picture, 1.0 for paper and 0.0 for ink, and `y` its class.
//! Here ink is 255 and paper 0. LEAF never splits a writer among files, so a writer who appears twice is an error: the folder
//! holds two versions of the data.
#[cfg(feature = "fetch")]
use super::Source;
use super::json::Each;
use super::leaf::{self, Users};
use super::roster::Roster;
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Offer, Recipe, Ways};
use crate::{Dataset, Error, Images, Labels, Owners, Result, Samples, Scaling};
use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::Read;
use std::path::Path;

const REMEDY: &str = "make the file again with LEAF's `preprocess.sh`, or download it again";
const SIDE: usize = 28;
const PIXELS: usize = SIDE * SIDE;
const CLASSES: u16 = 62;

/// Federated EMNIST; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Femnist {}

impl DataSet for Femnist {
    const ENTRY: Entry = Entry {
        name: "femnist",
        about: "hand-written characters of 28x28 by writer, 62 classes; not split, so split within each writer",
        kind: SampleKind::Images,
        partition: UsualPartition { owners: Some(100), ..UsualPartition::NATURAL },
        places: &["", "all_data", "data/all_data", "femnist", "femnist/data/all_data"],
        layout: "all_data_*.json as LEAF's `preprocess.sh` leaves them in femnist/data/all_data",
        licence: "derives from NIST Special Database 19; LEAF's code is under BSD-2-Clause",
        citation: "Caldas et al. (2018), LEAF: A Benchmark for Federated Settings; Cohen et al. (2017), EMNIST",
    };

    fn load(&self, folder: &Path) -> Result<Dataset> {
        load(folder)
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::owned_pictures(Self::ENTRY.name, [SIDE, SIDE, 1], CLASSES, [stand_in::SAMPLES_AN_OWNER, 0]))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::Femnist(Self {}),
            folder: "femnist/data/all_data",
            names: &[("all_data", ".json")],
            ways: Ways::Prepared {
                reason: "NIST publishes scanned forms (Special Database 19), which LEAF's scripts turn into pictures by writer",
                steps: &[
                    "git clone https://github.com/TalwalkarLab/leaf && cd leaf/data/femnist",
                    "./preprocess.sh -s niid --sf 1.0 -k 0 -t sample    # fetches by_class.zip and by_write.zip from NIST",
                    "fedeq data get femnist --from data/all_data",
                ],
            },
        }))
    }
}

/// Reads every `all_data*.json` in order of the names.
pub fn load(folder: &Path) -> Result<Dataset> {
    let mut writers = Writers::default();
    for file in locate::files(folder, Femnist::ENTRY.places, &["all_data*.json"])? {
        writers = writers.read(locate::open(&file)?, &file)?;
    }
    writers.into_dataset()
}

/// The class names in LEAF's order: digits, capitals, small letters.
pub fn class_names() -> Vec<String> {
    ('0'..='9').chain('A'..='Z').chain('a'..='z').map(String::from).collect()
}

/// Pictures gathered from one file after the other.
#[derive(Clone, Debug, Default)]
pub struct Writers {
    names: Roster,
    pixels: Vec<u8>,
    classes: Vec<u16>,
    owners: Vec<u32>,
}

impl Writers {
    /// Reads one file; its text is never held in memory.
    pub fn read(mut self, input: impl Read, file: &Path) -> Result<Self> {
        leaf::read(input, file, &mut self, REMEDY)?;
        Ok(self)
    }

    /// Everything that was read, writers in the order of the files.
    pub fn into_dataset(mut self) -> Result<Dataset> {
        if self.classes.is_empty() {
            return Err(Error::unmeetable("no picture was read", REMEDY));
        }
        self.pixels.shrink_to_fit();
        let images = Images { shape: [SIDE, SIDE, 1], pixels: self.pixels, white: 255, scaling: Scaling::identity(1) };
        Ok(Dataset {
            name: Femnist::ENTRY.name.into(),
            samples: Samples::Images(images),
            labels: Labels::Classes { names: class_names(), values: self.classes },
            owners: Some(Owners { names: self.names.into_names(), of: self.owners }),
            test_start: None,
        })
    }
}

impl Users for Writers {
    fn begin(&mut self, name: &str) -> Result<(), String> {
        self.names.number_new(name).map(|_| ()).ok_or_else(|| format!("writer `{name}` was read before"))
    }

    fn field<'de, A: MapAccess<'de>>(&mut self, key: &str, writer: &mut A, sample: &mut Option<u64>) -> Result<(), A::Error> {
        match key {
            "x" => writer.next_value_seed(Each::new(sample, |picture: Picture| {
                self.pixels.extend_from_slice(&picture.0);
                Ok(())
            })),
            "y" => writer.next_value_seed(Each::new(sample, |class: u64| {
                self.classes.push(checked_class(class)?);
                Ok(())
            })),
            _ => writer.next_value::<IgnoredAny>().map(|_| ()),
        }
    }

    fn end(&mut self) -> Result<u64, String> {
        let before = self.owners.len();
        let (pictures, classes) = (self.pixels.len() / PIXELS - before, self.classes.len() - before);
        if pictures != classes {
            return Err(format!("`x` has {pictures} pictures but `y` has {classes} classes"));
        }
        if pictures == 0 {
            return Err("the writer has no pictures".into());
        }
        self.owners.resize(before + pictures, self.names.len() as u32 - 1);
        Ok(pictures as u64)
    }
}

fn checked_class(class: u64) -> Result<u16, String> {
    u16::try_from(class).ok().filter(|&class| class < CLASSES).ok_or_else(|| format!("label `{class}` is not below {CLASSES}"))
}

/// One picture, ink up.
struct Picture([u8; PIXELS]);

impl<'de> Deserialize<'de> for Picture {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(PictureVisitor)
    }
}

struct PictureVisitor;

impl<'de> Visitor<'de> for PictureVisitor {
    type Value = Picture;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PIXELS} pixels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut row: A) -> Result<Picture, A::Error> {
        let mut pixels = [0; PIXELS];
        for (at, pixel) in pixels.iter_mut().enumerate() {
            let paper: f64 = row.next_element()?.ok_or_else(|| A::Error::invalid_length(at, &self))?;
            if !(0.0..=1.0).contains(&paper) {
                return Err(A::Error::custom(format!("pixel `{paper}` is not between 0 and 1")));
            }
            *pixel = ((1.0 - paper) * 255.0).round() as u8;
        }
        match row.next_element::<IgnoredAny>()? {
            Some(_) => Err(A::Error::custom(format!("the picture has more than {PIXELS} pixels"))),
            None => Ok(Picture(pixels)),
        }
    }
}
