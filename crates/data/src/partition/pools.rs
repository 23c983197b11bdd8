//! The samples there are to give out: one pool, or two where the publisher keeps a test set apart.
use super::split::Split;
use crate::{Dataset, Error, Result};

/// Indices into a data set, ascending.
pub(super) struct Pools {
    /// What clients train on, and what their own test samples are cut from where `test` is `None`.
    pub(super) train: Vec<u32>,
    /// The publisher's test set, to be dealt by the same plan.
    pub(super) test: Option<Vec<u32>>,
}

impl Pools {
    /// The pools that `split` asks for: a test fraction asked for by name overrides the publisher's test set.
    pub(super) fn of(dataset: &Dataset, split: &Split) -> Result<Self> {
        let samples = u32::try_from(dataset.len()).map_err(|_| too_large(dataset))?;
        let published = dataset.test_start.filter(|&start| start < dataset.len() && split.test.is_none());
        Ok(match published {
            Some(start) => Self { train: (0..start as u32).collect(), test: Some((start as u32..samples).collect()) },
            None => Self { train: (0..samples).collect(), test: None },
        })
    }
}

fn too_large(dataset: &Dataset) -> Error {
    let problem = format!("`{}` holds `{}` samples, more than the {} that can be counted", dataset.name, dataset.len(), u32::MAX);
    Error::unmeetable(problem, "divide the data set into smaller ones")
}
