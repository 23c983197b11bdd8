//! The UCI hand-written digits: 1,797 pictures of 8x8, part of the program so that it runs with no download.
use super::Entry;
use super::records::{Layout, Records};
use crate::{Dataset, Result, Scaling};
use std::path::Path;

/// What the catalog says.
pub(super) const ENTRY: Entry = Entry {
    name: "digits",
    about: "1,797 hand-written digits of 8x8, 10 classes; built in, nothing to download",
    places: &[],
    layout: "part of the program",
    licence: "CC BY 4.0",
    citation: "Alpaydin and Kaynak (1998), Optical Recognition of Handwritten Digits, UCI Machine Learning Repository",
};

/// How `assets/digits.bin` is laid out; see `assets/DIGITS.md` for where it comes from.
pub const LAYOUT: Layout = Layout { label_bytes: 1, classes: 10, shape: [8, 8, 1], white: 16 };

static ASSET: &[u8] = include_bytes!("../../assets/digits.bin");

/// The digits, in scikit-learn's order and not split into training and test.
pub fn load() -> Result<Dataset> {
    let records = Records::new(LAYOUT).read(ASSET, Path::new("digits.bin"))?;
    let names = (0..LAYOUT.classes).map(|digit| digit.to_string()).collect();
    Ok(records.into_dataset(ENTRY.name, names, Scaling::identity(1), None))
}
