//! `fedeq reproduce`.
//!
//! # Layout
//! - this file: what a person may ask for
//! - `job`: carrying it out
//! - `forecast`: what would run
mod forecast;
mod job;

use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use fedeq_core::Error;

use super::cells::JobsArgs;
use super::failure::{Failure, Outcome};
use super::output::print;
use super::place::settle;
use super::settings::{RunArgs, parsed};
use super::table::{Align, Table};
use fedeq_report::reproduce::{ExperimentCell, NAMES, Pattern, ScaleName, Spec, cells, find};
use fedeq_run::experiment::Override;
use job::Job;

/// Reproduces a table or figure of the paper, or one of our own.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq reproduce --list                             what there is
  fedeq reproduce fig-rho --scale small              needs nothing but this program, a few minutes
  fedeq reproduce table-1 --dry-run                  what would run, how long, how much disk
  fedeq reproduce table-1 --data data --only 'fedeq-*' --seeds 3
  fedeq reproduce table-1 --scale full --data data --budget 600 --discard-models
  fedeq reproduce table-1 --scale full --data data --device cuda --jobs 2

Each cell is an ordinary run below `runs/reproduce`; the same command again skips finished ones and resumes half-finished ones. \
Results, tables, figures and a README are written to `experiments/NAME`, whatever part of the cells was run.")]
pub(super) struct Arguments {
    /// Which one, such as `table-1` or `fig-rho`
    #[arg(value_name = "NAME", required_unless_present = "list")]
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
    #[arg(long, value_name = "CELL")]
    only: Vec<String>,
    /// Run nothing; say what would run, about how long it takes on this machine and how much disk
    #[arg(long)]
    dry_run: bool,
    /// Begin no new cell after so many minutes
    #[arg(long, value_name = "MINUTES")]
    budget: Option<f64>,
    /// Remove the models of finished cells and keep what was measured
    #[arg(long)]
    discard_models: bool,
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
/// Two years.
const MOST_MINUTES: f64 = 1e6;

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
            let job = arguments.job(name).map_err(Failure::refused)?;
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
    fn job(&self, name: &str) -> fedeq_core::Result<Job<'_>> {
        self.check_amounts()?;
        let spec = find(name)?;
        let scale = ScaleName::from(self.scale);
        let mut overrides = self.set.iter().map(|text| text.parse()).collect::<fedeq_core::Result<Vec<Override>>>()?;
        overrides.extend(self.run_args.device_override());
        let mut cells = cells(&spec, scale, &overrides)?;
        self.keep_wanted(&spec, &mut cells)?;
        self.place(&spec, &mut cells, &overrides)?;
        cells.iter_mut().for_each(|cell| self.run_args.set_workers(&mut cell.experiment));
        Ok(Job {
            arguments: self,
            seeds: self.seeds.map_or_else(|| spec.seeds(scale), |seeds| Ok(seeds.get()))?,
            out: self.out.clone().unwrap_or_else(|| self.usual_folder(name)),
            runs: self.runs.clone().unwrap_or_else(|| Path::new("runs/reproduce").join(name).join(scale.to_string())),
            spec,
            scale,
            overrides,
            cells,
        })
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
        match self.budget.filter(|minutes| !(0.0..=MOST_MINUTES).contains(minutes)) {
            None => Ok(()),
            Some(minutes) => Err(Error::invalid(format!("`--budget` is `{minutes}`"), "give minutes, from 0 to 1,000,000")),
        }
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
