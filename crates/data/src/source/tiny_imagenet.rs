//! Tiny ImageNet, as its publisher lays it out.
use super::image_folder::{Channels, ImageFolder};
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Offer, Recipe, Ways};
#[cfg(feature = "fetch")]
use crate::source::Source;
use crate::{Dataset, Error, Images, Labels, Place, Result, Samples, Scaling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

const SHAPE: [usize; 3] = [64, 64, 3];
const REMEDY: &str = "unpack the publisher's `tiny-imagenet-200.zip` again";

/// Tiny ImageNet; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TinyImageNet {}

impl DataSet for TinyImageNet {
    const ENTRY: Entry = Entry {
        name: "tiny-imagenet",
        about: "110,000 colour photographs of 64x64, 200 classes; 100,000 for training",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["tiny-imagenet-200", ""],
        layout: "wnids.txt, train/<wnid>/images/*.JPEG, val/images/*.JPEG and val/val_annotations.txt; words.txt may be absent",
        licence: "for non-commercial research only",
        citation: "Le and Yang (2015), Tiny ImageNet visual recognition challenge",
    };

    /// The publisher's validation pictures are the test set: those of its own test set have no public classes.
    fn load(&self, folder: &Path) -> Result<Dataset> {
        let folder = locate::folder_with(folder, Self::ENTRY.places, "wnids.txt")?;
        let classes = Classes::of(&folder)?;
        let (mut pictures, mut values) = (Vec::new(), Vec::new());
        for (class, id) in classes.ids.iter().enumerate() {
            let inside = folder.join("train").join(id).join("images");
            let found = locate::children(&inside)?;
            if found.is_empty() {
                return Err(Error::malformed(&inside, Place::Whole, "there are no pictures in it", REMEDY));
            }
            values.resize(values.len() + found.len(), class as u16);
            pictures.extend(found);
        }
        let test_start = values.len();
        for (picture, class) in classes.of_validation(&folder)? {
            pictures.push(picture);
            values.push(class);
        }
        let reader = ImageFolder { channels: Some(Channels::Colour), ..ImageFolder::default() };
        let (shape, pixels) = reader.decode_all(&pictures)?;
        if shape != SHAPE {
            let problem = format!("is `{}x{}`, not 64x64", shape[0], shape[1]);
            return Err(Error::malformed(&pictures[0], Place::Whole, problem, REMEDY));
        }
        let scaling = Scaling { mean: vec![0.4802, 0.4481, 0.3975], deviation: vec![0.277, 0.2691, 0.2821] };
        Ok(Dataset {
            name: Self::ENTRY.name.into(),
            samples: Samples::Images(Images { shape, pixels, white: u8::MAX, scaling }),
            labels: Labels::Classes { names: classes.names(&folder)?, values },
            owners: None,
            test_start: Some(test_start),
        })
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::pictures(Self::ENTRY.name, SHAPE, 200, 110_000, 100_000))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::TinyImagenet(Self {}),
            folder: "tiny-imagenet-200",
            names: &[("wnids", ".txt")],
            ways: Ways::Unpacked {
                reason: "its publisher offers a ZIP archive of 120,000 pictures and no checksums",
                steps: &[
                    "curl -LO http://cs231n.stanford.edu/tiny-imagenet-200.zip",
                    "unzip -q tiny-imagenet-200.zip -d data",
                    "fedeq data inspect tiny-imagenet",
                ],
            },
        }))
    }
}

/// The classes by WordNet's numbers, in the order of the publisher's list.
struct Classes {
    ids: Vec<String>,
    number: BTreeMap<String, u16>,
}

impl Classes {
    fn of(folder: &Path) -> Result<Self> {
        let file = folder.join("wnids.txt");
        let (mut ids, mut number) = (Vec::new(), BTreeMap::new());
        for (at, line) in lines(&file)?.into_iter().enumerate() {
            let place = Place::Line(at as u64 + 1);
            let is_one = line.strip_prefix('n').is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()));
            let class = u16::try_from(at).ok().filter(|_| is_one);
            let class = class
                .ok_or_else(|| Error::malformed(&file, place.clone(), format!("`{line}` is no number of WordNet"), REMEDY))?;
            if number.insert(line.clone(), class).is_some() {
                return Err(Error::malformed(&file, place, format!("`{line}` stands there twice"), REMEDY));
            }
            ids.push(line);
        }
        match ids.is_empty() {
            true => Err(Error::malformed(&file, Place::Whole, "it names no class", REMEDY)),
            false => Ok(Self { ids, number }),
        }
    }

    /// What people call them: the first word of each in `words.txt`, or the number where that is not there.
    fn names(&self, folder: &Path) -> Result<Vec<String>> {
        let file = folder.join("words.txt");
        let lines = if file.is_file() { lines(&file)? } else { Vec::new() };
        let words: BTreeMap<&str, &str> = lines.iter().filter_map(|line| line.split_once('\t')).collect();
        let name = |id: &String| {
            let word = words.get(id.as_str()).and_then(|words| words.split(',').next()).map(str::trim);
            // Two classes may have the same first word.
            word.filter(|word| !word.is_empty()).map_or_else(|| id.clone(), |word| format!("{word} ({id})"))
        };
        Ok(self.ids.iter().map(name).collect())
    }

    /// The validation pictures and their classes, in the order of the publisher's list.
    fn of_validation(&self, folder: &Path) -> Result<Vec<(PathBuf, u16)>> {
        let file = folder.join("val").join("val_annotations.txt");
        let mut all = Vec::new();
        for (at, line) in lines(&file)?.into_iter().enumerate() {
            let wrong = |problem: String| Error::malformed(&file, Place::Line(at as u64 + 1), problem, REMEDY);
            let mut columns = line.split('\t');
            let (Some(name), Some(id)) = (columns.next(), columns.next()) else {
                return Err(wrong("it is not a file and its class, with a tab between them".into()));
            };
            if name.is_empty() || name.contains(['/', '\\']) || name.starts_with('.') {
                return Err(wrong(format!("`{name}` is no file of `val/images`")));
            }
            let class = *self.number.get(id).ok_or_else(|| wrong(format!("class `{id}` is not in `wnids.txt`")))?;
            all.push((folder.join("val").join("images").join(name), class));
        }
        Ok(all)
    }
}

/// The lines of a text file that are not empty.
fn lines(file: &Path) -> Result<Vec<String>> {
    let text = fs::read_to_string(file).map_err(Error::io(file, "read it as UTF-8 text"))?;
    Ok(text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty()).collect())
}
