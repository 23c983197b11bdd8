//! Which finished run a person means.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use crate::run::{RunFolder, Trained};

/// A finished run, and where its data is now.
#[derive(Args, Debug)]
pub(super) struct Chosen {
    /// The folder of a finished run
    #[arg(value_name = "RUN")]
    folder: PathBuf,
    /// The folder that data sets are kept in, or the path of your own data [default: where the run found it]
    #[arg(long, value_name = "DIR", env = "FEDEQ_DATA")]
    data: Option<PathBuf>,
}

impl Chosen {
    /// Opens it.
    pub(super) fn open(&self) -> Outcome<Trained> {
        let folder = RunFolder::open(&self.folder).map_err(Failure::refused)?;
        let adapt = |experiment: &mut crate::experiment::Experiment| {
            if let Some(data) = &self.data {
                experiment.data.folder.clone_from(data);
            }
        };
        Trained::open(&folder, adapt).map_err(Failure::refused)
    }
}
