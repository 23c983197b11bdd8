//! `fedeq run`.
use std::path::{Path, PathBuf};

use clap::Args;

use super::dry_run;
use super::failure::{Failure, Outcome};
use super::output::tell;
use super::settings::{ExperimentArgs, RunArgs};
use fedeq_run::experiment::Experiment;
use fedeq_run::run::{Run, RunFolder};

/// Shown below the help.
pub(super) const EXAMPLES: &str = "\
Examples:
  fedeq run                                        FeDEQ on the built-in digits
  fedeq run --method fedrep --rounds 20            what everybody sets has a short form; `fedeq settings` lists all settings
  fedeq run --set method.rho=0.1 --dry-run         the whole experiment and what it would take, before it is run
  fedeq run experiment.toml --preset paper --out runs/first
  fedeq run --data my/pictures                     your own: a folder of pictures, a CSV file or JSON lines
  fedeq run --device cuda                          on a GPU; `fedeq devices` lists what there is
  fedeq run --set data=cifar10 --set data.partition.shards=2 --set seed=7
  fedeq run --set method.server_step=consensus --set plan.asynchronous.slowest=10      asynchronous clients
  fedeq run --set attack=sign-flip --set plan.aggregation.rule=median                  some clients lie, and how that is borne

Ctrl-C stops after the clients at work, with exit code 130; all rounds that were over are kept, and `fedeq resume` continues.";

/// Trains a federation.
#[derive(Args, Debug)]
pub(super) struct Arguments {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// The folder of the run, which must not exist yet [default: runs/<method>-<data>-<seed>]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Train nothing: show the experiment with everything filled in, its parameters, and what it would send and take in time, memory and disk
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    run_args: RunArgs,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let experiment = arguments.experiment()?;
    let usual = || RunFolder::usual_name(Path::new("runs"), &experiment);
    let out = arguments.out.clone().unwrap_or_else(usual);
    if arguments.dry_run {
        return dry_run::show(&experiment, &out, arguments.run_args.json, arguments.run_args.quiet);
    }
    let run = Run::create(&experiment, &out).map_err(Failure::refused)?;
    if !arguments.run_args.quiet {
        run.prepared().unused_gpu().iter().for_each(|gpu| tell(&format!("{gpu} is not used; `--device cuda` trains on it")));
    }
    arguments.run_args.train(&run)
}

impl Arguments {
    fn experiment(&self) -> Outcome<Experiment> {
        let mut experiment = self.experiment.read(&self.experiment.overrides_with(&self.run_args)?)?;
        self.run_args.set_workers(&mut experiment);
        Ok(experiment)
    }
}
