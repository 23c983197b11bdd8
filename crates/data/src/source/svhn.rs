//! SVHN, the cropped digits, in the publisher's MATLAB files.
use super::mat::{self, MatArray, MatNumbers, MatValue};
use super::{DataSet, Entry, SampleKind, UsualPartition, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Fingerprint, Member, Offer, Recipe, Ways};
#[cfg(feature = "fetch")]
use crate::source::Source;
use crate::{Dataset, Error, Images, Labels, Place, Result, Samples, Scaling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

const SHAPE: [usize; 3] = [32, 32, 3];
const CLASSES: u32 = 10;
const REMEDY: &str = "download the publisher's file again";

/// Which part of SVHN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Svhn {
    /// Whether the 531,131 easier digits of `extra_32x32.mat` are for training too.
    pub extra: bool,
}

impl DataSet for Svhn {
    const ENTRY: Entry = Entry {
        name: "svhn",
        about: "99,289 house numbers of 32x32 in colour, 10 classes; 73,257 for training, and 531,131 more if asked for",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["svhn", ""],
        layout: "train_32x32.mat and test_32x32.mat (format 2: cropped digits), and extra_32x32.mat if asked for",
        licence: "for non-commercial use only",
        citation: "Netzer et al. (2011), Reading digits in natural images with unsupervised feature learning",
    };

    fn load(&self, folder: &Path) -> Result<Dataset> {
        let folder = locate::folder_with(folder, Self::ENTRY.places, "train_32x32.mat")?;
        let (mut pixels, mut values) = read(&folder.join("train_32x32.mat"))?;
        if self.extra {
            let (more, classes) = read(&folder.join("extra_32x32.mat"))?;
            pixels.extend(more);
            values.extend(classes);
        }
        let test_start = values.len();
        let (test, classes) = read(&folder.join("test_32x32.mat"))?;
        pixels.extend(test);
        values.extend(classes);
        let scaling = Scaling { mean: vec![0.4377, 0.4438, 0.4728], deviation: vec![0.198, 0.201, 0.197] };
        Ok(Dataset {
            name: Self::ENTRY.name.into(),
            samples: Samples::Images(Images { shape: SHAPE, pixels, white: u8::MAX, scaling }),
            labels: Labels::Classes { names: (0..CLASSES).map(|digit| digit.to_string()).collect(), values },
            owners: None,
            test_start: Some(test_start),
        })
    }

    fn stand_in(&self) -> Option<Dataset> {
        let training = if self.extra { 73_257 + 531_131 } else { 73_257 };
        Some(stand_in::pictures(Self::ENTRY.name, SHAPE, CLASSES as u16, training + 26_032, training))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::Svhn(Self::default()),
            folder: "svhn",
            names: &[("", "_32x32.mat")],
            ways: Ways::Download { address: "http://ufldl.stanford.edu/housenumbers/", files: published() },
        }))
    }
}

/// Lengths and SHA-256 that torchvision and other projects publish of the publisher's files. `extra_32x32.mat`, 1.3 GB, is for who wants it to put beside them.
#[cfg(feature = "fetch")]
fn published() -> Vec<Member> {
    let file =
        |name, bytes, sha256| Member { path: format!("svhn/{name}_32x32.mat"), fingerprint: Fingerprint::new(bytes, sha256) };
    vec![
        file("train", 182_040_794, "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        file("test", 64_275_384, "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    ]
}

/// The pictures of a file, pixel by pixel, and their classes.
fn read(file: &Path) -> Result<(Vec<u8>, Vec<u16>)> {
    let mut all = mat::read(locate::open(file)?, file)?;
    let wrong = |place: Place, problem: String| Error::malformed(file, place, problem, REMEDY);
    let Some(MatValue::Array(MatArray { sizes, numbers: MatNumbers::Bytes(columns) })) = all.remove("X") else {
        return Err(wrong(Place::Whole, "it has no `X` of bytes".into()));
    };
    let Some(MatValue::Array(MatArray { numbers: labels, .. })) = all.remove("y") else {
        return Err(wrong(Place::Whole, "it has no `y` of numbers".into()));
    };
    // A single picture has no fourth size.
    let count = sizes.get(3).copied().unwrap_or(1);
    if sizes.get(..3) != Some(&SHAPE) || sizes.len() > 4 || count != labels.len() || count == 0 {
        let problem = format!("`X` has the sizes `{sizes:?}`, and `y` has `{}` classes", labels.len());
        return Err(wrong(Place::Whole, problem));
    }
    let class = |at: usize| match labels.whole(at) {
        Some(class @ 1..=CLASSES) => Ok((class % CLASSES) as u16),
        _ => Err(wrong(Place::Record(at as u64), "its class is not from 1 to 10".into())),
    };
    let classes = (0..count).map(class).collect::<Result<Vec<_>>>()?;
    Ok((channels_last(&columns), classes))
}

/// From columns (row changes fastest, then column, then channel) to pixels.
fn channels_last(columns: &[u8]) -> Vec<u8> {
    let [height, width, channels] = SHAPE;
    let mut pixels = vec![0; columns.len()];
    let each = height * width * channels;
    for (picture, pixels) in columns.chunks_exact(each).zip(pixels.chunks_exact_mut(each)) {
        for (at, pixel) in pixels.chunks_exact_mut(channels).enumerate() {
            let (row, column) = (at / width, at % width);
            for (channel, value) in pixel.iter_mut().enumerate() {
                *value = picture[(channel * width + column) * height + row];
            }
        }
    }
    pixels
}
