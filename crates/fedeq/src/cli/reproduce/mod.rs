//! `fedeq reproduce`.
//!
//! # Layout
//! - this file: what a person may ask for
//! - `reproduction`: one of the experiments, its cells and where its results are
//! - `job`: carrying out all of them, as one queue
//! - `forecast`: what would run
//! - `state`: what goes with it to another machine
mod forecast;
mod job;
mod reproduction;
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
use reproduction::Reproduction;

/// Reproduces tables and figures of the paper, or experiments beyond it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq reproduce --list                             what there is
  fedeq reproduce fig-rho --scale small              needs nothing but this program, a few minutes
  fedeq reproduce table-1 --dry-run                  what would run, how long, how much disk
  fedeq reproduce table-1 --data data --only 'fedeq-*' --seeds 3
  fedeq reproduce table-1 --scale full --data data --device cuda --jobs 2
  fedeq reproduce table-1 --scale full --data data --time-budget 55m --state table-1.tar.gz
  fedeq reproduce table-1 table-2 --scale full --data data --only 'table-1/fedeq-*' --only 'table-2/*' --state state
  fedeq reproduce table-1 table-2 --scale full --state state --publish

Each cell is an ordinary run below `runs/reproduce`; the same command again skips finished ones and those that are in the results already, and resumes half-finished ones. \
Several experiments are one queue: all cells of all of them with the first seed, FeDEQ's and those of its nearest rivals first, then with the second. \
A cell that the device cannot compute is named and left out. \
With `--state` the runs lie in one folder or archive that can be copied to another machine and continued there. \
Results, tables, figures and a README are written to `experiments/NAME`, whatever part of the cells was run.")]
pub(super) struct ReproduceCommand {
    /// Which experiments, such as `table-1` or `fig-rho`; several are carried out as one queue, in this order
    #[arg(value_name = "NAME", required_unless_present = "list", add = super::completions::experiments())]
    names: Vec<String>,
    /// Name all experiments
    #[arg(long)]
    list: bool,
    /// `full` is the paper's size, `small` a reduced version (fewer clients and rounds) that takes minutes on two cores
    #[arg(long, value_enum, default_value_t = ScaleArgument::Small)]
    scale: ScaleArgument,
    /// Seeds of every cell: 0 and so on [default: what the experiment says]
    #[arg(long, value_name = "N")]
    seeds: Option<NonZeroU64>,
    /// Only cells whose name matches, alone or after the name of the experiment as in `table-1/fedeq-*`; `*` and `?` are wildcards. May be repeated
    #[arg(long, visible_alias = "cells", value_name = "CELL")]
    only: Vec<String>,
    /// Run nothing; show what would run, about how long it takes on this machine and how much disk space
    #[arg(long)]
    dry_run: bool,
    /// Before a dry run's forecast, carry out two rounds of each network and method on the device and record how fast they were, in `--state` if it is given
    #[arg(long, requires = "dry_run")]
    measure: bool,
    /// Run nothing; write tables, figures and README from the results that there are, those of `--state` among them. Needs neither data nor GPU
    #[arg(long, conflicts_with_all = ["dry_run", "again", "time_budget"])]
    publish: bool,
    /// Run cells again that the results already have
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
    /// Override a setting of the experiment; the results are then no longer those of the experiment, so say where to put them
    #[arg(long = "set", value_name = "KEY=VALUE", requires = "out")]
    set: Vec<String>,
    /// The folder of the results, in which several experiments have a folder each [default: experiments/NAME, or experiments/NAME-cuda on a GPU]
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

pub(super) fn run(arguments: &ReproduceCommand) -> Outcome<()> {
    if arguments.list {
        return list();
    }
    arguments.run_args.agrees(&parsed(&arguments.set)?)?;
    let limit = arguments.jobs.limit(arguments.state.as_deref().is_some_and(PortableFolder::is_archive))?;
    let job = arguments.job(limit).map_err(Failure::refused)?;
    match (arguments.dry_run, arguments.publish) {
        (true, _) => job.describe(),
        (_, true) => job.publish_only(),
        _ => job.carry_out(),
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

impl ReproduceCommand {
    fn job(&self, limit: TimeLimit) -> fedeq_core::Result<Job<'_>> {
        self.check_amounts()?;
        let largest_checkpoint = self.largest_checkpoint.as_deref().map(size).transpose()?;
        let mut overrides = self.set.iter().map(|text| text.parse()).collect::<fedeq_core::Result<Vec<Override>>>()?;
        overrides.extend(self.run_args.device_override());
        let mut wanted = self.wanted(&overrides)?;
        self.place(&mut wanted, &overrides)?;
        let state = self.open_state()?;
        let experiments = wanted.into_iter().map(|wanted| self.reproduction(wanted, state.as_ref())).collect();
        Ok(Job { arguments: self, overrides, experiments, limit, largest_checkpoint, state })
    }

    /// The experiments with the cells that are wanted of them; those of which none is are left out.
    fn wanted(&self, overrides: &[Override]) -> fedeq_core::Result<Vec<CellSelection>> {
        let mut found = Vec::new();
        for (place, name) in self.names.iter().enumerate() {
            if self.names[..place].contains(name) {
                return Err(Error::invalid(format!("`{name}` is named twice"), "name each experiment once"));
            }
            let spec = find(name)?;
            let all = cells(&spec, self.scale.into(), overrides)?;
            found.push(CellSelection::new(spec, all, &self.only));
        }
        let unused = |only: &&String| !found.iter().any(|wanted| wanted.all.iter().any(|cell| wanted.is_named(cell, only)));
        if let Some(only) = self.only.iter().find(unused) {
            let names: Vec<&str> = found.iter().flat_map(|wanted| &wanted.all).map(|cell| cell.name.as_str()).collect();
            let problem = format!("no cell of `{}` is named like `{only}`", self.names.join("` or `"));
            return Err(Error::invalid(problem, format!("there are {}", names.join(", "))));
        }
        found.retain(|wanted| !wanted.cells.is_empty());
        Ok(found)
    }

    fn reproduction(&self, wanted: CellSelection, state: Option<&PortableFolder>) -> Reproduction {
        let CellSelection { spec, all, mut cells } = wanted;
        cells.iter_mut().for_each(|cell| self.run_args.set_workers(&mut cell.experiment));
        let scale = ScaleName::from(self.scale);
        let below = Path::new(&spec.name).join(scale.to_string());
        let runs = self.runs.clone().map(|runs| if self.names.len() > 1 { runs.join(&below) } else { runs });
        let usual_runs =
            || state.map_or_else(|| Path::new("runs/reproduce").into(), |state| state.path().join("runs")).join(&below);
        let shown = self.shown_as(&spec.name);
        let out = match &self.out {
            None => Path::new("experiments").join(&shown),
            Some(out) if self.names.len() > 1 => out.join(&shown),
            Some(out) => out.clone(),
        };
        Reproduction {
            seeds: self.seeds.map(NonZeroU64::get),
            runs: runs.unwrap_or_else(usual_runs),
            state_results: state.map(|state| state.path().join("results").join(self.kept_as(&shown))),
            out,
            spec,
            scale,
            all,
            cells,
        }
    }

    /// What goes to other machines; who runs nothing makes none, unless there is something to record.
    fn open_state(&self) -> fedeq_core::Result<Option<PortableFolder>> {
        match &self.state {
            Some(path) if self.publish || (self.dry_run && !self.measure) => PortableFolder::open_if_there(path),
            Some(path) => PortableFolder::open(path).map(Some),
            None => Ok(None),
        }
    }

    /// The usual folder of an experiment's results. What another device computes is no part of the results of the CPU, and does not replace them.
    fn shown_as(&self, name: &str) -> String {
        let kind = self.run_args.device().ok().flatten().map(|device| device.to_string());
        let kind = kind.as_deref().and_then(|device| device.split(':').next()).filter(|kind| *kind != "cpu");
        kind.map_or_else(|| name.to_owned(), |kind| format!("{name}-{kind}"))
    }

    /// Where the state has the results of an experiment: by the name of the folder in which they are shown, so that other settings have other ones.
    fn kept_as(&self, shown: &str) -> PathBuf {
        let folder = self.out.as_ref().and_then(|out| out.file_name()).map(Path::new);
        match folder {
            None => shown.into(),
            Some(folder) if self.names.len() > 1 => folder.join(shown),
            Some(folder) => folder.into(),
        }
    }

    fn check_amounts(&self) -> fedeq_core::Result<()> {
        if let Some(seeds) = self.seeds.filter(|seeds| seeds.get() > MOST_SEEDS) {
            return Err(Error::invalid(format!("`--seeds` is `{seeds}`"), "give at most 10,000"));
        }
        Ok(())
    }

    /// Says where the cells that need data find it; a place that none of them needs is refused.
    fn place(&self, wanted: &mut [CellSelection], overrides: &[Override]) -> fedeq_core::Result<()> {
        let cells = wanted.iter_mut().flat_map(|wanted| &mut wanted.cells);
        let mut needy: Vec<&mut ExperimentCell> = cells.filter(|cell| cell.needs_data()).collect();
        if let Some(place) = self.run_args.data.as_ref().filter(|_| needy.is_empty()) {
            let names = self.names.join("` and `");
            let problem = format!("`--data {}` is given, and these cells of `{names}` need no data", place.display());
            return Err(Error::invalid(problem, "leave it out: what they learn from is part of the program"));
        }
        needy.iter_mut().for_each(|cell| match &self.run_args.data {
            Some(place) => cell.experiment.data.folder.clone_from(place),
            None => settle(&mut cell.experiment, overrides),
        });
        Ok(())
    }
}

/// An experiment, all its cells, and those of them that are wanted.
struct CellSelection {
    spec: Spec,
    all: Vec<ExperimentCell>,
    cells: Vec<ExperimentCell>,
}

impl CellSelection {
    /// The cells that are named, all if none is; those of the methods that the experiment names first before others.
    fn new(spec: Spec, all: Vec<ExperimentCell>, only: &[String]) -> Self {
        let mut wanted = Self { spec, all, cells: Vec::new() };
        let is_wanted = |cell: &&ExperimentCell| only.is_empty() || only.iter().any(|only| wanted.is_named(cell, only));
        let mut cells: Vec<ExperimentCell> = wanted.all.iter().filter(is_wanted).cloned().collect();
        cells.sort_by_key(|cell| wanted.spec.rank(cell.experiment.method.name()));
        wanted.cells = cells;
        wanted
    }

    /// Whether a cell's name, or its name after that of the experiment, is like this.
    fn is_named(&self, cell: &ExperimentCell, like: &str) -> bool {
        let Ok(pattern) = like.parse::<Pattern>();
        pattern.matches(&cell.name) || pattern.matches(&format!("{}/{}", self.spec.name, cell.name))
    }
}
