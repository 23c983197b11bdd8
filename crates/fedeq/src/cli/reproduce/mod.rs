//! `fedeq reproduce`.
//!
//! # Layout
//! - this file: what a person may ask for
//! - `job`: carrying it out
//! - `forecast`: what would run
//! - `state`: what goes with it to another machine
mod forecast;
mod job;
mod state;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fedeq_core::Error;

use super::cells::JobsArgs;
use super::failure::{Failure, Outcome};
use super::output::print;
use super::settings::settle;
use super::settings::{RunArgs, parsed};
use super::table::{Align, Table};
use fedeq_report::reproduce::{ExperimentCell, NAMES, Pattern, ScaleName, Spec, cells, find};
use fedeq_run::experiment::Override;
use fedeq_run::limit::TimeLimit;
use fedeq_run::number::parse_bytes;
use fedeq_run::portable::PortableFolder;
use job::Job;

/// Reproduces a table or figure of the paper, or one of our own.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq reproduce --list                             what there is
  fedeq reproduce fig-rho --scale small              needs nothing but this program, a few minutes
  fedeq reproduce table-1 --dry-run                  what would run, how long, how much disk
  fedeq reproduce table-1 --data data --only 'fedeq-*' --seeds 3
  fedeq reproduce table-1 --scale full --data data --device cuda --jobs 2
  fedeq reproduce table-1 --scale full --data data --time-budget 55m --state table-1.tar.gz

Each cell is an ordinary run below `runs/reproduce`; the same command again skips finished ones and those that are in the results already, and resumes half-finished ones. \
With `--state` the runs lie in one folder or archive that can be copied to another machine and continued there. \
Results, tables, figures and a README are written to `experiments/NAME`, whatever part of the cells was run.")]
pub(super) struct Arguments {
    /// Which one, such as `table-1` or `fig-rho`
    #[arg(value_name = "NAME", required_unless_present = "list", add = super::completions::experiments())]
    name: Option<String>,
    /// Name all experiments
    #[arg(long)]
    list: bool,
    /// `full` is the paper's effort, `small` tells the same story on two cores in minutes
    #[arg(long, value_enum, default_value_t = ScaleArgument::Small)]
    scale: ScaleArgument,
    /// Seeds of every cell: 0 and so on [default: what the experiment says]
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroU64>,
    /// Only cells whose name fits; `*` and `?` stand for any letters. May be given several times
    #[arg(long, visible_alias = "cells", value_name = "CELL")]
    only: Vec<String>,
    /// Run nothing; say what would run, about how long it takes on this machine and how much disk
    #[arg(long)]
    dry_run: bool,
    /// Before a dry run's forecast, carry out two rounds of each network and method on the device and record how fast they were, in `--state` if it is given
    #[arg(long, requires = "dry_run")]
    measure: bool,
    /// Run cells also where the results have them already
    #[arg(long)]
    again: bool,
    /// Remove the models of finished cells and keep what was measured; with `--state` that is done unless `--keep-models` is given
    #[arg(long)]
    discard_models: bool,
    /// Keep the models of finished cells in the state
    #[arg(long, requires = "state", conflicts_with = "discard_models")]
    keep_models: bool,
    /// One folder, or an archive that ends in `.tar.gz`, for all that is needed to continue on another machine: results, runs under way, and how fast this one is
    #[arg(long, value_name = "PATH", conflicts_with = "runs")]
    state: Option<PathBuf>,
    /// Keep no checkpoint larger than this (`16MB`, `2GB`) in the state: a cell that has a larger one and would not end in time is not begun
    #[arg(long, value_name = "SIZE", requires = "state", requires = "time_budget")]
    largest_checkpoint: Option<String>,
    /// A setting that goes over the experiment's; the results then are no longer those of the experiment, so say where to put them
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "out")]
    set: Vec<String>,
    /// The folder of the results [default: experiments/NAME, or experiments/NAME-cuda on a GPU]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The folder of the runs [default: runs/reproduce/NAME/SCALE]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    #[command(flatten)]
    jobs: JobsArgs,
    #[command(flatten)]
    run_args: RunArgs,
}

/// More seeds than this are a slip.
const MOST_SEEDS: u64 = 10_000;

fn size(text: &str) -> fedeq_core::Result<u64> {
    let malformed = || {
        Error::invalid(format!("`{text}` is no size"), "write thousands of bytes and upwards, such as `500kB`, `16MB` or `2GB`")
    };
    parse_bytes(text).ok_or_else(malformed)
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ScaleArgument {
    Small,
    Full,
}

impl From<ScaleArgument> for ScaleName {
    fn from(scale: ScaleArgument) -> Self {
        match scale {
            ScaleArgument::Small => Self::Small,
            ScaleArgument::Full => Self::Full,
        }
    }
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    match &arguments.name {
        Some(name) if !arguments.list => {
            arguments.run_args.agrees(&parsed(&arguments.set)?)?;
            let limit = arguments.jobs.limit(arguments.state.as_deref().is_some_and(PortableFolder::is_archive))?;
            let job = arguments.job(name, limit).map_err(Failure::refused)?;
            if arguments.dry_run { job.describe() } else { job.carry_out() }
        }
        _ => list(),
    }
}

fn list() -> Outcome<()> {
    let mut table = Table::new(&[("name", Align::Left), ("what it shows", Align::Left), ("where from", Align::Left)]);
    for name in NAMES {
        let spec = find(name).map_err(Failure::refused)?;
        table.row([(*name).to_owned(), spec.title, spec.source]);
    }
    print(&table.text())
}

impl Arguments {
    fn job(&self, name: &str, limit: TimeLimit) -> fedeq_core::Result<Job<'_>> {
        self.check_amounts()?;
        let largest_checkpoint = self.largest_checkpoint.as_deref().map(size).transpose()?;
        let spec = find(name)?;
        let scale = ScaleName::from(self.scale);
        let mut overrides = self.set.iter().map(|text| text.parse()).collect::<fedeq_core::Result<Vec<Override>>>()?;
        overrides.extend(self.run_args.device_override());
        let mut cells = cells(&spec, scale, &overrides)?;
        self.keep_wanted(&spec, &mut cells)?;
        self.place(&spec, &mut cells, &overrides)?;
        cells.iter_mut().for_each(|cell| self.run_args.set_workers(&mut cell.experiment));
        let state = self.open_state()?;
        let below = Path::new(name).join(scale.to_string());
        let runs = state.as_ref().map_or_else(|| Path::new("runs/reproduce").into(), |state| state.path().join("runs"));
        Ok(Job {
            arguments: self,
            seeds: self.seeds.map_or_else(|| spec.seeds(scale), |seeds| Ok(seeds.get()))?,
            out: self.out.clone().unwrap_or_else(|| self.usual_folder(name)),
            runs: self.runs.clone().unwrap_or_else(|| runs.join(below)),
            limit,
            largest_checkpoint,
            state,
            spec,
            scale,
            overrides,
            cells,
        })
    }

    /// What goes to other machines; a dry run makes none, unless it has something to record.
    fn open_state(&self) -> fedeq_core::Result<Option<PortableFolder>> {
        match &self.state {
            Some(path) if self.dry_run && !self.measure => PortableFolder::open_if_there(path),
            Some(path) => PortableFolder::open(path).map(Some),
            None => Ok(None),
        }
    }

    /// What another device computes is no part of the results of the CPU, and does not replace them.
    fn usual_folder(&self, name: &str) -> PathBuf {
        let kind = self.run_args.device().ok().flatten().map(|device| device.to_string());
        let kind = kind.as_deref().and_then(|device| device.split(':').next()).filter(|kind| *kind != "cpu");
        Path::new("experiments").join(kind.map_or_else(|| name.to_owned(), |kind| format!("{name}-{kind}")))
    }

    fn check_amounts(&self) -> fedeq_core::Result<()> {
        if let Some(seeds) = self.seeds.filter(|seeds| seeds.get() > MOST_SEEDS) {
            return Err(Error::invalid(format!("`--seeds` is `{seeds}`"), "give at most 10,000"));
        }
        Ok(())
    }

    /// Says where the cells that need data find it; a place that none of them needs is refused.
    fn place(&self, spec: &Spec, cells: &mut [ExperimentCell], overrides: &[Override]) -> fedeq_core::Result<()> {
        let mut needy: Vec<&mut ExperimentCell> = cells.iter_mut().filter(|cell| cell.needs_data()).collect();
        if let Some(place) = self.run_args.data.as_ref().filter(|_| needy.is_empty()) {
            let problem = format!("`--data {}` is given, and these cells of `{}` need no data", place.display(), spec.name);
            return Err(Error::invalid(problem, "leave it out: what they learn from is part of the program"));
        }
        needy.iter_mut().for_each(|cell| match &self.run_args.data {
            Some(place) => cell.experiment.data.folder.clone_from(place),
            None => settle(&mut cell.experiment, overrides),
        });
        Ok(())
    }

    fn keep_wanted(&self, spec: &Spec, cells: &mut Vec<ExperimentCell>) -> fedeq_core::Result<()> {
        let Ok(patterns) = self.only.iter().map(|text| text.parse()).collect::<Result<Vec<Pattern>, _>>();
        let names: Vec<String> = cells.iter().map(|cell| cell.name.clone()).collect();
        cells.retain(|cell| patterns.is_empty() || patterns.iter().any(|pattern| pattern.matches(&cell.name)));
        if cells.is_empty() {
            let problem = format!("no cell of `{}` is named like `{}`", spec.name, self.only.join("` or `"));
            return Err(Error::invalid(problem, format!("there are {}", names.join(", "))));
        }
        Ok(())
    }
}
