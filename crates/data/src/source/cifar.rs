//! CIFAR-10 and CIFAR-100 in the publisher's binary version.
use super::records::{RecordLayout, Records};
use super::training::batch;
use super::{DataSet, Entry, SampleKind, UsualPartition, UsualTraining, locate, stand_in};
#[cfg(feature = "fetch")]
use crate::fetch::{Archive, Fingerprint, Member, Offer};
use crate::{Dataset, Error, Place, Result, Scaling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const CITATION: &str = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images";
const LICENCE: &str = "no formal licence; cite the report";

/// CIFAR-10; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cifar10 {}

impl DataSet for Cifar10 {
    const ENTRY: Entry = Entry {
        name: "cifar10",
        about: "60,000 colour photographs of 32x32, 10 classes; 50,000 for training",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["", "cifar-10-batches-bin"],
        layout: "data_batch_1.bin .. data_batch_5.bin and test_batch.bin (the binary version); batches.meta.txt may be absent",
        licence: LICENCE,
        citation: CITATION,
    };

    fn training() -> UsualTraining {
        TRAINING
    }

    fn load(&self, folder: &Path) -> Result<Dataset> {
        Cifar::Ten.load(folder)
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::pictures(Self::ENTRY.name, [32, 32, 3], 10, 60_000, 50_000))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Archive(archive_10()))
    }
}

/// What the run scripts have for both.
const TRAINING: UsualTraining =
    UsualTraining { batch: batch(20), equilibrium: "deq-resnet-m", explicit: "resnet-34", ..UsualTraining::IMAGES };

/// CIFAR-100; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cifar100 {}

impl DataSet for Cifar100 {
    const ENTRY: Entry = Entry {
        name: "cifar100",
        about: "60,000 colour photographs of 32x32, 100 classes; 50,000 for training",
        kind: SampleKind::Images,
        partition: UsualPartition::BY_LABEL,
        places: &["", "cifar-100-binary"],
        layout: "train.bin and test.bin (the binary version); fine_label_names.txt may be absent",
        licence: LICENCE,
        citation: CITATION,
    };

    /// The methods that FeDEQ is compared with learn it at a larger rate.
    fn training() -> UsualTraining {
        UsualTraining { rate: 0.05, ..TRAINING }
    }

    fn load(&self, folder: &Path) -> Result<Dataset> {
        Cifar::Hundred.load(folder)
    }

    fn stand_in(&self) -> Option<Dataset> {
        Some(stand_in::pictures(Self::ENTRY.name, [32, 32, 3], 100, 60_000, 50_000))
    }

    #[cfg(feature = "fetch")]
    fn offer() -> Option<Offer> {
        Some(Offer::Archive(archive_100()))
    }
}

/// Far more than any file of class names needs.
const MOST_NAME_BYTES: u64 = 64 * 1024;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cifar {
    /// Ten classes.
    Ten,
    /// A hundred classes, each in one of twenty groups; the class is the fine label.
    Hundred,
}

impl Cifar {
    /// How its records are laid out.
    pub fn layout(self) -> RecordLayout {
        let (label_bytes, classes) = match self {
            Self::Ten => (1, 10),
            Self::Hundred => (2, 100),
        };
        RecordLayout { label_bytes, classes, shape: [32, 32, 3], white: 255 }
    }

    /// Reads the training files and then the test file from `folder`, or from the publisher's folder in it.
    pub fn load(self, folder: &Path) -> Result<Dataset> {
        let (training, test) = self.files();
        let folder = locate::folder_with(folder, self.entry().places, training[0])?;
        let mut records = Records::new(self.layout());
        for file in training {
            records = read_file(records, &folder.join(file))?;
        }
        let test_start = records.len();
        let records = read_file(records, &folder.join(test))?;
        Ok(records.into_dataset(self.entry().name, self.class_names(&folder)?, self.scaling(), Some(test_start)))
    }

    fn entry(self) -> &'static Entry {
        match self {
            Self::Ten => &Cifar10::ENTRY,
            Self::Hundred => &Cifar100::ENTRY,
        }
    }

    /// The training files and the test file.
    fn files(self) -> (&'static [&'static str], &'static str) {
        match self {
            Self::Ten => (
                &["data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin", "data_batch_5.bin"],
                "test_batch.bin",
            ),
            Self::Hundred => (&["train.bin"], "test.bin"),
        }
    }

    /// The mean and deviation FedRep uses, whose partition the paper follows.
    fn scaling(self) -> Scaling {
        let (mean, deviation) = match self {
            Self::Ten => ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
            Self::Hundred => ([0.507, 0.487, 0.441], [0.267, 0.256, 0.276]),
        };
        Scaling { mean: mean.to_vec(), deviation: deviation.to_vec() }
    }

    /// The publisher's names, from the file beside the records where it is there.
    fn class_names(self, folder: &Path) -> Result<Vec<String>> {
        let (file, built_in) = match self {
            Self::Ten => ("batches.meta.txt", include_str!("class_names/cifar10.txt")),
            Self::Hundred => ("fine_label_names.txt", include_str!("class_names/cifar100.txt")),
        };
        let file = folder.join(file);
        match File::open(&file) {
            Ok(input) => self.read_class_names(input, &file),
            Err(error) if error.kind() == ErrorKind::NotFound => self.read_class_names(built_in.as_bytes(), &file),
            Err(error) => Err(Error::io(&file, "open it")(error)),
        }
    }

    /// Reads class names, one a line; there must be as many as there are classes.
    pub fn read_class_names(self, input: impl Read, file: &Path) -> Result<Vec<String>> {
        let mut text = String::new();
        input.take(MOST_NAME_BYTES).read_to_string(&mut text).map_err(Error::io(file, "read it as UTF-8 text"))?;
        let names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        let classes = usize::from(self.layout().classes);
        if names.len() != classes {
            let problem = format!("holds `{}` class names, not {classes}", names.len());
            return Err(Error::malformed(file, Place::Whole, problem, "remove the file to use the built-in names"));
        }
        Ok(names)
    }
}

fn read_file(records: Records, path: &Path) -> Result<Records> {
    records.read(locate::open(path)?, path)
}

/// The length and SHA-256 of the archives are those that independent projects publish for the same addresses (GoMLX, Julia's MLDatasets, torchvision-ruby);
/// those of the members were computed from bit-exact copies and agree with what torchvision-ruby publishes of them.
#[cfg(feature = "fetch")]
fn archive_10() -> Archive {
    const BATCH: u64 = 30_730_000;
    let member = |file, sha256| member("cifar-10-batches-bin", file, BATCH, sha256);
    Archive {
        address: "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz".into(),
        fingerprint: Fingerprint::new(170_052_171, "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
        members: vec![
            member("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            member("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            member("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            member("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            member("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
            member("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
        ],
    }
}

#[cfg(feature = "fetch")]
fn archive_100() -> Archive {
    let member = |file, bytes, sha256| member("cifar-100-binary", file, bytes, sha256);
    Archive {
        address: "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz".into(),
        fingerprint: Fingerprint::new(168_513_733, "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec"),
        members: vec![
            member("train.bin", 153_700_000, "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),
            member("test.bin", 30_740_000, "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
        ],
    }
}

#[cfg(feature = "fetch")]
fn member(folder: &str, file: &str, bytes: u64, sha256: &str) -> Member {
    Member { path: format!("{folder}/{file}"), fingerprint: Fingerprint::new(bytes, sha256) }
}
