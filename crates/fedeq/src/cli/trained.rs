//! Which finished run a person means.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::place::{relocate, require_use};
use fedeq_run::run::{RunFolder, Trained};

/// A finished run, and where its data is now.
#[derive(Args, Debug)]
pub(super) struct FinishedRunArgs {
    /// The folder of a finished run
    #[arg(value_name = "RUN")]
    folder: PathBuf,
    /// The path of your own data, or the folder that data sets are kept in [default: where the run found it]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

impl FinishedRunArgs {
    /// Opens it.
    pub(super) fn open(&self) -> Outcome<Trained> {
        let folder = RunFolder::open(&self.folder).map_err(Failure::refused)?;
        require_use(&folder.experiment().map_err(Failure::refused)?, self.data.as_deref())?;
        Trained::open(&folder, |experiment| relocate(experiment, self.data.as_deref())).map_err(Failure::refused)
    }
}
