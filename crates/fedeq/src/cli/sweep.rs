//! `fedeq sweep`.
use std::fs;
use std::path::PathBuf;

use clap::Args;
use fedeq_core::{Error, write_atomically};

use super::compare::percents;
use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::settings::{Conduct, Wish, carry_out};
use super::table::{Align, Table};
use crate::experiment::Experiment;
use crate::memory::forget_peak;
use crate::number::{bytes, count, counted};
use crate::run::{Run, RunFolder, Summary, Which};
use crate::sweep::{Axis, Cell, Outcome as Cells, Point, cells, csv_of, points};

/// Carries out an experiment over a grid of settings and several seeds.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq sweep --grid method=fedeq,fedrep --seeds 0,1,2 --out sweeps/methods
  fedeq sweep experiment.toml --grid method.rho=0.01,0.1 --grid training.learning_rate=0.05,0.1 --out sweeps/rho
  fedeq compare sweeps/methods               the same runs, with significance

The same command again goes on where it was stopped: finished cells are skipped, half-finished ones resumed.")]
pub(super) struct Arguments {
    #[command(flatten)]
    wish: Wish,
    /// A setting and the values it takes in turn; several make a grid
    #[arg(long, value_name = "KEY=VALUE,VALUE")]
    grid: Vec<String>,
    /// The seeds of every cell [default: the seed of the experiment]
    #[arg(long, value_name = "N,N", value_delimiter = ',')]
    seeds: Vec<u64>,
    /// The folder of the sweep, which may be there already
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    #[command(flatten)]
    conduct: Conduct,
}

pub(super) fn run(arguments: &Arguments) -> Outcome<()> {
    let axes = arguments.axes().map_err(Failure::refused)?;
    let cells = arguments.cells(&axes).map_err(Failure::refused)?;
    check_ahead(&cells).map_err(Failure::refused)?;
    let mut done: Vec<Cells> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        arguments.announce(index, cells.len(), cell);
        done.push(arguments.outcome(cell)?);
        let path = arguments.out.join("sweep.csv");
        write_atomically(&path, csv_of(&axes, &done).as_bytes()).map_err(Failure::during_work)?;
    }
    arguments.show(&axes, &points(&done))
}

/// Refuses what can be refused before anything is trained: one cell of every combination is prepared.
fn check_ahead(cells: &[Cell]) -> fedeq_core::Result<()> {
    let first = cells.chunk_by(|a, b| a.values == b.values).filter_map(|alike| alike.first());
    first.filter(|cell| !cell.folder.exists()).try_for_each(|cell| cell.experiment.prepare().map(|_| ()))
}

impl Arguments {
    fn axes(&self) -> fedeq_core::Result<Vec<Axis>> {
        self.grid.iter().map(|text| text.parse()).collect()
    }

    fn cells(&self, axes: &[Axis]) -> fedeq_core::Result<Vec<Cell>> {
        let mut cells = cells(self.wish.file(), &self.wish.overrides(&self.conduct)?, axes, &self.seeds, &self.out)?;
        for cell in &mut cells {
            cell.experiment.engine.workers = self.conduct.workers.or(cell.experiment.engine.workers);
        }
        Ok(cells)
    }

    fn announce(&self, index: usize, total: usize, cell: &Cell) {
        if !self.conduct.quiet {
            let values = if cell.values.is_empty() { String::new() } else { format!("{}, ", cell.values.join(", ")) };
            tell(&format!("cell {} of {total}: {values}seed {}", index + 1, cell.experiment.seed));
        }
    }

    /// A cell that fails does not end the sweep; one that cannot begin or is interrupted does.
    fn outcome(&self, cell: &Cell) -> Outcome<Cells> {
        let result = match self.summary(cell) {
            Ok(summary) => Ok(summary),
            Err(Failure::Told { problem, code: 1, .. }) => {
                tell(&format!("this cell failed: {problem}"));
                Err(problem)
            }
            Err(Failure::Told { problem, code: 130, .. }) => {
                return Err(Failure::Told { problem, hint: "the same command again goes on from here".into(), code: 130 });
            }
            Err(other) => return Err(other),
        };
        Ok(Cells { cell: cell.clone(), result })
    }

    fn summary(&self, cell: &Cell) -> Outcome<Summary> {
        if let Some(summary) = finished(cell).map_err(Failure::refused)? {
            if !self.conduct.quiet {
                tell("finished already");
            }
            return Ok(summary);
        }
        let run = self.ready(cell).map_err(Failure::refused)?;
        forget_peak();
        carry_out(&run, self.conduct.quiet)
    }

    fn ready(&self, cell: &Cell) -> fedeq_core::Result<Run> {
        match RunFolder::open(&cell.folder) {
            Ok(folder) => Run::resume(&folder, Which::Latest, |experiment| self.adapt(experiment, cell)),
            Err(_) => {
                remove_unborn(cell)?;
                Run::create(&cell.experiment, &cell.folder)
            }
        }
    }

    fn adapt(&self, experiment: &mut Experiment, cell: &Cell) {
        experiment.engine = cell.experiment.engine.clone();
        experiment.data.folder = self.conduct.data.clone().unwrap_or_else(|| experiment.data.folder.clone());
    }

    fn show(&self, axes: &[Axis], points: &[Point]) -> Outcome<()> {
        if self.conduct.json {
            let keys: Vec<&str> = axes.iter().map(|axis| axis.key.as_str()).collect();
            print_json(&serde_json::json!({ "axes": keys, "points": points }))?;
        } else {
            print(&format!("{}\nall cells: {}\n", table_of(axes, points), self.out.join("sweep.csv").display()))?;
        }
        match points.iter().map(|point| point.failed).sum() {
            0 => Ok(()),
            failed => Err(Failure::Told {
                problem: format!("{} failed", counted(failed, "cell")),
                hint: "the same command again tries them once more from their last checkpoints".into(),
                code: 1,
            }),
        }
    }
}

fn finished(cell: &Cell) -> fedeq_core::Result<Option<Summary>> {
    RunFolder::open(&cell.folder).map_or(Ok(None), |folder| folder.summary())
}

/// A process that was killed while it made a run's folder leaves one without an experiment, which is no run yet.
fn remove_unborn(cell: &Cell) -> fedeq_core::Result<()> {
    match fs::remove_dir_all(&cell.folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(Error::io(&cell.folder, "remove it")(error)),
        _ => Ok(()),
    }
}

fn table_of(axes: &[Axis], points: &[Point]) -> String {
    let mut columns: Vec<(&str, Align)> = axes.iter().map(|axis| (axis.key.as_str(), Align::Left)).collect();
    let measured = ["seeds", "accuracy %", "worst tenth %", "sent", "seconds"];
    columns.extend(measured.map(|name| (name, Align::Right)));
    let mut table = Table::new(&columns);
    points.iter().for_each(|point| table.row(cells_of(point)));
    table.text()
}

fn cells_of(point: &Point) -> Vec<String> {
    let failed = if point.failed == 0 { String::new() } else { format!(" ({} failed)", count(point.failed)) };
    let mut cells = point.values.clone();
    cells.push(format!("{}{failed}", count(point.seeds.len())));
    match &point.measures {
        Some(measures) => cells.extend([
            percents(&measures.accuracy),
            percents(&measures.worst_decile),
            bytes(measures.bytes.mean as u64),
            format!("{:.1}", measures.seconds.mean),
        ]),
        None => cells.extend(["-", "-", "-", "-"].map(str::to_owned)),
    }
    cells
}
