//! The UCI hand-written digits: 1,797 pictures of 8x8, part of the program so that it runs with no download.
use super::records::{RecordLayout, Records};
use super::{DataSet, Entry, SampleKind, UsualPartition, UsualTraining};
use crate::{Dataset, Result, Scaling};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The digits; there is nothing to choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Digits {}

impl DataSet for Digits {
    const ENTRY: Entry = Entry {
        name: "digits",
        about: "1,797 hand-written digits of 8x8, 10 classes; built in, nothing to download",
        kind: SampleKind::Images,
        partition: UsualPartition { clients: 30, labels: 2, ..UsualPartition::BY_LABEL },
        places: &[],
        layout: "part of the program",
        licence: "CC BY 4.0",
        citation: "Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository",
    };

    /// Small, and for a first trial.
    fn training() -> UsualTraining {
        UsualTraining {
            rounds: 60,
            fraction: 0.2,
            evaluate_every: 5,
            rate: 0.05,
            fedeq_rate: 0.05,
            equilibrium: "deq-resnet-xs",
            explicit: "resnet-xs",
            ..UsualTraining::IMAGES
        }
    }

    fn load(&self, _: &Path) -> Result<Dataset> {
        load()
    }
}

/// How `assets/digits.bin` is laid out; see `assets/DIGITS.md` for where it comes from.
pub const LAYOUT: RecordLayout = RecordLayout { label_bytes: 1, classes: 10, shape: [8, 8, 1], white: 16 };

static ASSET: &[u8] = include_bytes!("../../assets/digits.bin");

/// The digits, in scikit-learn's order and not split into training and test.
pub fn load() -> Result<Dataset> {
    let records = Records::new(LAYOUT).read(ASSET, Path::new("digits.bin"))?;
    let names = (0..LAYOUT.classes).map(|digit| digit.to_string()).collect();
    Ok(records.into_dataset(Digits::ENTRY.name, names, Scaling::identity(1), None))
}
