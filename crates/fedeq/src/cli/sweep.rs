//! `fedeq sweep`.
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use fedeq_core::{View, write_atomically};

use super::cells::{Attempt, Cells, End, JobsArgs, Next, conclude, finished, require_devices};
use super::compare::percents;
use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::place::settle;
use super::settings::{ExperimentArgs, RunArgs};
use super::table::{Align, Table};
use super::view::VIEWS;
use fedeq_run::experiment::Override;
use fedeq_run::number::{bytes, count};
use fedeq_run::sweep::{CellOutcome, GridPoint, Seeds, SweepAxis, SweepCell, SweepGrid, cells, csv_of, points};

/// Carries out an experiment over a grid of settings and several seeds.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..3 --out sweeps/methods
  fedeq sweep experiment.toml --grid method.rho=0.01,0.1 --grid training.learning_rate=0.05,0.1 --out sweeps/rho
  fedeq sweep --grid 'method={ name = \"fedeq\", rho = 0.1 },fedrep' --out sweeps/both
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..3 --out sweeps/gpu --device cuda --jobs 3
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..10 --out sweeps/long --time-budget 55m
  fedeq compare sweeps/methods               the same runs, with significance

The same command again continues where it was stopped: finished cells are skipped, half-finished ones resumed. The folder \
may have been copied from another machine, and the data may lie elsewhere (`--data`).")]
pub(super) struct Arguments {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// A setting and the values it takes in turn; several make a grid, in any order. Where one means nothing (`method.rho` with
    /// `method=fedrep`), the cell is carried out once, without it
    #[arg(long, value_name = "KEY=VALUE,VALUE")]
    grid: Vec<String>,
    /// The seeds of every cell: `0,1,2`, or `0..3` for the same (without the end), or `0..=2` [default: the seed of the experiment]
    #[arg(long, value_name = "N,N")]
    seeds: Option<String>,
    /// The folder of the sweep, which may already exist
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    jobs: JobsArgs,
    #[command(flatten)]
    run_args: RunArgs,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let limit = arguments.jobs.limit(false)?;
    let axes = arguments.axes().map_err(Failure::refused)?;
    let SweepGrid { cells, notes } = arguments.grid(&axes)?;
    if !arguments.run_args.quiet {
        notes.iter().for_each(|note| tell(note));
    }
    check_ahead(&cells).map_err(Failure::refused)?;
    let mut done: BTreeMap<usize, CellOutcome> = BTreeMap::new();
    let keep = |index: usize, result: Attempt| {
        done.insert(index, CellOutcome { cell: cells[index].clone(), result });
        let path = arguments.out.join("sweep.csv");
        write_atomically(&path, csv_of(&axes, &outcomes(&done)).as_bytes()).map_err(Failure::during_work)
    };
    let label = |index: usize| format!("cell {} of {}", index + 1, cells.len());
    let begins = |index: usize| {
        arguments.announce(&label(index), &cells[index]);
        Ok(Next::Begin)
    };
    let (run_args, jobs) = (&arguments.run_args, &arguments.jobs);
    let all = Cells { cells: &cells, run_args, jobs, limit: &limit, rates: None, label: &label };
    let end = all.carry_out(begins, keep)?;
    arguments.show(&axes, &points(&outcomes(&done)), end)
}

/// What became of cells, in their order whichever ended first.
fn outcomes(done: &BTreeMap<usize, CellOutcome>) -> Vec<CellOutcome> {
    done.values().cloned().collect()
}

/// Refuses what can be refused before anything is trained: one cell of every combination is prepared.
fn check_ahead(cells: &[SweepCell]) -> fedeq_core::Result<()> {
    require_devices(cells.iter().filter(|cell| !matches!(finished(cell), Ok(Some(_)))))?;
    let first = cells.chunk_by(|a, b| a.values == b.values).filter_map(|alike| alike.first());
    first.filter(|cell| !cell.folder.exists()).try_for_each(|cell| cell.experiment.prepare().map(|_| ()))
}

impl Arguments {
    fn axes(&self) -> fedeq_core::Result<Vec<SweepAxis>> {
        self.grid.iter().map(|text| text.parse()).collect()
    }

    fn grid(&self, axes: &[SweepAxis]) -> Outcome<SweepGrid> {
        let overrides = self.experiment.overrides_with(&self.run_args)?;
        let seeds = self.seeds(axes, &overrides)?;
        let mut grid = cells(self.experiment.file(), &overrides, axes, &seeds, &self.out).map_err(Failure::refused)?;
        for cell in &mut grid.cells {
            self.run_args.set_workers(&mut cell.experiment);
            settle(&mut cell.experiment, &overrides);
        }
        Ok(grid)
    }

    /// The seeds that are asked for, in one way only.
    fn seeds(&self, axes: &[SweepAxis], overrides: &[Override]) -> Outcome<Vec<u64>> {
        let Some(text) = &self.seeds else { return Ok(Vec::new()) };
        let is_set = overrides.iter().any(|wish| wish.path == ["seed"]) || axes.iter().any(|axis| axis.key == "seed");
        if is_set {
            let problem = format!("`--seeds {text}` is given, and `seed` is set as well");
            return Err(Failure::request(problem, "leave one of them out"));
        }
        text.parse().map(|Seeds(seeds)| seeds).map_err(Failure::refused)
    }

    fn announce(&self, label: &str, cell: &SweepCell) {
        if !self.run_args.quiet {
            let values = if cell.values.is_empty() { String::new() } else { format!("{}, ", cell.values.join(", ")) };
            tell(&format!("{label}: {values}seed {}", cell.experiment.seed));
        }
    }

    fn show(&self, axes: &[SweepAxis], points: &[GridPoint], end: End) -> Outcome<()> {
        if self.run_args.json {
            let keys: Vec<&str> = axes.iter().map(|axis| axis.key.as_str()).collect();
            print_json(&serde_json::json!({ "axes": keys, "points": points }))?;
        } else {
            let (table, folder) = (table_of(axes, points), self.out.display());
            let note = format!(
                "accuracy on test samples, mean over clients, standard deviation over seeds; {VIEWS}; worst tenth: of the clients, by local"
            );
            print(&format!(
                "{table}\n{note}\nall cells: {}\nwho is best: fedeq compare {folder}\n",
                self.out.join("sweep.csv").display()
            ))?;
        }
        conclude(end, points.iter().map(|point| point.failed).sum(), "cell")
    }
}

fn table_of(axes: &[SweepAxis], points: &[GridPoint]) -> String {
    let mut columns: Vec<(&str, Align)> = axes.iter().map(|axis| (axis.key.as_str(), Align::Left)).collect();
    let measured = ["seeds", "local %", "shared %", "worst tenth %", "sent", "seconds"];
    columns.extend(measured.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    points.iter().for_each(|point| table.row(cells_of(point)));
    table.text()
}

fn cells_of(point: &GridPoint) -> Vec<String> {
    let failed = if point.failed == 0 { String::new() } else { format!(" ({} failed)", count(point.failed)) };
    let mut cells = point.values.clone();
    cells.push(format!("{}{failed}", count(point.seeds.len())));
    match &point.measures {
        Some(measures) => cells.extend([
            percents(&measures.local.mean),
            percents(&measures.quality(View::Shared).mean),
            percents(&measures.local.worst_decile),
            bytes(measures.bytes.mean as u64),
            format!("{:.1}", measures.seconds.mean),
        ]),
        None => cells.extend(["-"; 5].map(str::to_owned)),
    }
    cells
}
