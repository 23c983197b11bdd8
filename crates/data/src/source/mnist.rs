//! MNIST and Fashion-MNIST, as their publishers lay them out: four IDX files, compressed by gzip or not.
use super::{DataSet, Entry, SampleKind, UsualPartition, idx, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Fingerprint, Member, Offer, Recipe, Ways};
#[cfg(feature = "fetch")]
use crate::source::Source;
use crate::{Dataset, Error, Images, Labels, Place, Result, Samples, Scaling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

const LAYOUT: &str =
    "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each plain or as .gz";
const SIDE: usize = 28;
const CLASSES: u8 = 10;
/// What the publishers' files may be called.
#[cfg(feature = "fetch")]
const NAMES: &[(&str, &str)] = &[("", "-ubyte.gz"), ("", "-ubyte")];

/// MNIST; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mnist {}

impl DataSet for Mnist {
    const ENTRY: Entry = Entry {
        name: "mnist",
        about: "70,000 hand-written digits of 28x28, 10 classes; 60,000 for training",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["mnist", "MNIST/raw", ""],
        layout: LAYOUT,
        licence: "CC BY-SA 3.0",
        citation: "LeCun, Bottou, Bengio and Haffner (1998), Gradient-based learning applied to document recognition",
    };

    fn load(&self, folder: &Path) -> Result<Dataset> {
        let names = (0..CLASSES).map(|digit| digit.to_string()).collect();
        load(&Self::ENTRY, folder, names, [0.1307, 0.3081])
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::pictures(Self::ENTRY.name, [SIDE, SIDE, 1], CLASSES.into(), 70_000, 60_000))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::Mnist(Self {}),
            folder: "mnist",
            names: NAMES,
            ways: Ways::Download { address: "https://storage.googleapis.com/cvdf-datasets/mnist/", files: mnist_files() },
        }))
    }
}

/// Fashion-MNIST; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FashionMnist {}

impl DataSet for FashionMnist {
    const ENTRY: Entry = Entry {
        name: "fashion-mnist",
        about: "70,000 pictures of clothes of 28x28, 10 classes; 60,000 for training",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["fashion-mnist", "FashionMNIST/raw", ""],
        layout: LAYOUT,
        licence: "MIT",
        citation: "Xiao, Rasul and Vollgraf (2017), Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms",
    };

    fn load(&self, folder: &Path) -> Result<Dataset> {
        const NAMES: [&str; CLASSES as usize] =
            ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"];
        load(&Self::ENTRY, folder, NAMES.map(str::to_owned).to_vec(), [0.286, 0.353])
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::pictures(Self::ENTRY.name, [SIDE, SIDE, 1], CLASSES.into(), 70_000, 60_000))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Recipe(Recipe {
            source: Source::FashionMnist(Self {}),
            folder: "fashion-mnist",
            names: NAMES,
            ways: Ways::Download { address: FASHION, files: fashion_files() },
        }))
    }
}

/// In the authors' own repository.
#[cfg(feature = "fetch")]
const FASHION: &str = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/";

/// Lengths and SHA-256 that independent projects publish of the four files (torchvision-ruby, the TensorFlow bindings of Haskell, several others alike); their MD5s are those
/// of torchvision.
#[cfg(feature = "fetch")]
fn mnist_files() -> Vec<Member> {
    let file = |name, bytes, sha256| published("mnist", name, bytes, sha256);
    vec![
        file("train-images-idx3", 9_912_422, "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
        file("train-labels-idx1", 28_881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
        file("t10k-images-idx3", 1_648_877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
        file("t10k-labels-idx1", 4_542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"),
    ]
}

/// The same of the files whose MD5s the authors publish (torchvision, Julia's Flux, several others alike).
#[cfg(feature = "fetch")]
fn fashion_files() -> Vec<Member> {
    let file = |name, bytes, sha256| published("fashion-mnist", name, bytes, sha256);
    vec![
        file("train-images-idx3", 26_421_880, "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
        file("train-labels-idx1", 29_515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
        file("t10k-images-idx3", 4_422_102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
        file("t10k-labels-idx1", 5_148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"),
    ]
}

#[cfg(feature = "fetch")]
fn published(folder: &str, name: &str, bytes: u64, sha256: &str) -> Member {
    Member { path: format!("{folder}/{name}-ubyte.gz"), fingerprint: Fingerprint::new(bytes, sha256) }
}

/// Training pictures, then test pictures.
fn load(entry: &Entry, folder: &Path, names: Vec<String>, [mean, deviation]: [f32; 2]) -> Result<Dataset> {
    let first = "train-images-idx3-ubyte";
    let packed = format!("{first}.gz");
    let folder = locate::folder_with(folder, entry.places, first).or_else(|error| {
        let packed = locate::folder_with(folder, entry.places, &packed);
        packed.map_err(|_| error)
    })?;
    let (mut pixels, mut values) = half(&folder, "train")?;
    let test_start = values.len();
    let (test_pixels, test_values) = half(&folder, "t10k")?;
    pixels.extend(test_pixels);
    values.extend(test_values);
    let scaling = Scaling { mean: vec![mean], deviation: vec![deviation] };
    Ok(Dataset {
        name: entry.name.into(),
        samples: Samples::Images(Images { shape: [SIDE, SIDE, 1], pixels, white: u8::MAX, scaling }),
        labels: Labels::Classes { names, values },
        owners: None,
        test_start: Some(test_start),
    })
}

/// The pictures and the classes of one half of the data set.
fn half(folder: &Path, which: &str) -> Result<(Vec<u8>, Vec<u16>)> {
    let [pictures, classes] = ["images-idx3", "labels-idx1"].map(|kind| format!("{which}-{kind}-ubyte"));
    let wrong = |file: &str, place: Place, problem: String| {
        Error::malformed(&folder.join(file), place, problem, "download the publisher's four files again")
    };
    let images = idx::load(folder, &pictures, 3)?;
    if images.sizes[1..] != [SIDE, SIDE] || images.sizes[0] == 0 {
        return Err(wrong(
            &pictures,
            Place::Byte(4),
            format!("its sizes are `{:?}`, not any number of {SIDE}x{SIDE}", images.sizes),
        ));
    }
    let labels = idx::load(folder, &classes, 1)?;
    if labels.sizes[0] != images.sizes[0] {
        return Err(wrong(
            &classes,
            Place::Byte(4),
            format!("it has `{}` classes for {} pictures", labels.sizes[0], images.sizes[0]),
        ));
    }
    if let Some(at) = labels.values.iter().position(|&class| class >= CLASSES) {
        return Err(wrong(&classes, Place::Record(at as u64), format!("label `{}` is not below {CLASSES}", labels.values[at])));
    }
    Ok((images.values, labels.values.into_iter().map(u16::from).collect()))
}
