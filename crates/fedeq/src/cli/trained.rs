//! Which finished run a person means.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::settings::{relocate, require_use};
use fedeq_run::experiment::{Device, Experiment};
use fedeq_run::run::{RunFolder, Trained};

/// A finished run, and where its data is now.
#[derive(Args, Debug)]
pub(super) struct FinishedRunArgs {
    /// The folder of a finished run
    #[arg(value_name = "RUN", add = super::completions::runs())]
    folder: PathBuf,
    /// The path of your own data, or the folder that data sets are kept in [default: where the run found it]
    #[arg(long, value_name = "PATH")]
    data: Option<PathBuf>,
}

impl FinishedRunArgs {
    /// Opens it. Where its models are only looked at, no GPU is needed, whatever it was computed on.
    pub(super) fn open(&self) -> Outcome<Trained> {
        let folder = self.folder()?;
        Trained::open(&folder, |experiment| relocate(experiment, self.data.as_deref())).map_err(Failure::refused)
    }

    /// Opens it to be computed on the device that is named, or on the one of the run, which must be there.
    pub(super) fn open_on(&self, device: Option<Device>) -> Outcome<Trained> {
        let folder = self.folder()?;
        let adapt = |experiment: &mut Experiment| {
            device.into_iter().for_each(|device| experiment.engine.set_device(device));
            relocate(experiment, self.data.as_deref());
        };
        let mut experiment = folder.experiment().map_err(Failure::refused)?;
        adapt(&mut experiment);
        experiment.engine.gpu().map_err(Failure::refused)?;
        Trained::open(&folder, adapt).map_err(Failure::refused)
    }

    fn folder(&self) -> Outcome<RunFolder> {
        let folder = RunFolder::open(&self.folder).map_err(Failure::refused)?;
        require_use(&folder.experiment().map_err(Failure::refused)?, self.data.as_deref())?;
        Ok(folder)
    }
}
