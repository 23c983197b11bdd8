//! CIFAR-10 and CIFAR-100 in the publisher's binary version.
use super::records::{Layout, Records};
use super::{Entry, locate};
use crate::{Dataset, Error, Place, Result, Scaling};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

const CITATION: &str = "Krizhevsky (2009), Learning Multiple Layers of Features from Tiny Images";
const LICENCE: &str = "no formal licence; cite the report";

/// What the catalog says of CIFAR-10.
pub(super) const ENTRY_10: Entry = Entry {
    name: "cifar10",
    about: "60,000 colour photographs of 32x32, 10 classes; 50,000 for training",
    places: &["", "cifar-10-batches-bin"],
    layout: "data_batch_1.bin .. data_batch_5.bin and test_batch.bin (the binary version); batches.meta.txt may be absent",
    licence: LICENCE,
    citation: CITATION,
};

/// What the catalog says of CIFAR-100.
pub(super) const ENTRY_100: Entry = Entry {
    name: "cifar100",
    about: "60,000 colour photographs of 32x32, 100 classes; 50,000 for training",
    places: &["", "cifar-100-binary"],
    layout: "train.bin and test.bin (the binary version); fine_label_names.txt may be absent",
    licence: LICENCE,
    citation: CITATION,
};

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
    pub fn layout(self) -> Layout {
        let (label_bytes, classes) = match self {
            Self::Ten => (1, 10),
            Self::Hundred => (2, 100),
        };
        Layout { label_bytes, classes, shape: [32, 32, 3], white: 255 }
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
            Self::Ten => &ENTRY_10,
            Self::Hundred => &ENTRY_100,
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
