//! `fedeq resume`.
use std::path::PathBuf;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::{print, tell};
use super::settings::RunArgs;
use super::settings::{relocate, require_use};
use fedeq_run::experiment::Experiment;
use fedeq_run::run::{Run, RunFolder, Which};

/// Continues a run that was stopped or killed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq resume runs/fedeq-digits-0
  fedeq resume runs/fedeq-digits-0 --previous      if the last checkpoint is damaged
  fedeq resume runs/fedeq-digits-0 --device cpu    on another device than so far

The run ends with the same bytes as one that was never stopped. On another kind of device it does not, which is why that must be said; the run is then \
compared with neither's.")]
pub(super) struct ResumeCommand {
    /// The folder of the run
    #[arg(value_name = "RUN", add = super::completions::runs())]
    folder: PathBuf,
    /// Go back to the checkpoint before the last
    #[arg(long)]
    previous: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

pub(super) fn run(arguments: &ResumeCommand) -> Outcome<()> {
    let folder = RunFolder::open(&arguments.folder).map_err(Failure::refused)?;
    if !arguments.previous && folder.is_complete() {
        return arguments.show_finished(&folder);
    }
    require_use(&folder.experiment().map_err(Failure::refused)?, arguments.run_args.data.as_deref())?;
    let which = if arguments.previous { Which::Previous } else { Which::Latest };
    let device = arguments.run_args.device()?;
    let run = Run::resume(&folder, which, device, |experiment| arguments.adapt(experiment)).map_err(Failure::refused)?;
    arguments.run_args.train(&run)
}

impl ResumeCommand {
    fn show_finished(&self, folder: &RunFolder) -> Outcome<()> {
        folder.check_finished().map_err(Failure::refused)?;
        let path = folder.path().display().to_string();
        tell(&format!("`{path}` is already finished"));
        if self.run_args.json {
            // As it was written: numbers change their last digit on the way through a reader.
            return print(&folder.summary_text().map_err(Failure::refused)?);
        }
        let summary = folder.summary().map_err(Failure::refused)?;
        summary.map_or(Ok(()), |summary| self.run_args.show(&summary, folder))
    }

    fn adapt(&self, experiment: &mut Experiment) {
        self.run_args.set_workers(experiment);
        relocate(experiment, self.run_args.data.as_deref());
    }
}
