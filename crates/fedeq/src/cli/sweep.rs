//! `fedeq sweep`.
use std::collections::BTreeMap;
use std::path::PathBuf;

use clap::Args;
use fedeq_core::{Error, View, write_atomically};

use super::cells::{Attempt, Cells, End, JobsArgs, Next, conclude, finished, require_devices};
use super::compare::VIEWS;
use super::completions;
use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::search::Search;
use super::settings::settle;
use super::settings::{ExperimentArgs, RunArgs};
use super::table::{Align, Table};
use fedeq_report::comparison::percents;
use fedeq_run::experiment::Override;
use fedeq_run::number::{bytes, count, counted};
use fedeq_run::sweep::{
    CellOutcome, GridFile, GridPoint, Halving, MOST_POINTS, SearchAxis, Seeds, SweepAxis, SweepCell, SweepGrid, cells, csv_of,
    draw, points,
};

/// Carries out an experiment over a grid of settings and several seeds.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..3 --out sweeps/methods
  fedeq sweep experiment.toml --grid method.rho=0.01,0.1 --grid training.learning_rate=0.05,0.1 --out sweeps/rho
  fedeq sweep --grid method=fedeq,fedrep --with model=deq-resnet-xs,resnet-xs --out sweeps/pairs
  fedeq sweep --grid-file grid.toml --out sweeps/file
  fedeq sweep --grid 'method={ name = \"fedeq\", rho = 0.1 },fedrep' --out sweeps/both
  fedeq sweep --grid training.learning_rate=log:0.001..0.5 --random 20 --out sweeps/rates
  fedeq sweep --grid training.learning_rate=log:0.001..0.5 --halving 3 --budget 600 --out sweeps/halving
  fedeq sweep --grid method=fedeq,fedrep --with model=deq-resnet-xs,resnet-xs --grid training.learning_rate=log:0.01..0.5 --random 20 --out sweeps/both-rates
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..3 --out sweeps/gpu --device cuda --jobs 3
  fedeq sweep --grid method=fedeq,fedrep --seeds 0..10 --out sweeps/long --time-budget 55m
  fedeq compare sweeps/methods               the same runs, with significance

The same command again continues where it was stopped: finished cells are skipped, half-finished ones resumed. The folder \
may have been copied from another machine, and the data may lie elsewhere (`--data`).")]
pub(super) struct SweepCommand {
    #[command(flatten)]
    experiment: ExperimentArgs,
    /// A setting and the values it takes in turn; several make a grid, in any order. Where one means nothing (`method.rho` with
    /// `method=fedrep`), the cell is carried out once, without it. In a search also a range to draw from: `0.1..0.9`, or
    /// `log:0.001..0.1` to draw magnitudes alike
    #[arg(long, value_name = "KEY=VALUE,VALUE", add = completions::axes())]
    grid: Vec<String>,
    /// A setting that changes together with one of the grid, and has as many values; where several have as many, name it:
    /// `--with method:model=..`
    #[arg(long, value_name = "KEY=VALUE,VALUE", add = completions::axes_with())]
    with: Vec<String>,
    /// The grid as a file: `seeds = "0..3"`, lists of values below `[grid]` (in a search also ranges), and of those that change together below `[[together]]`
    #[arg(long, value_name = "GRID.toml")]
    grid_file: Option<PathBuf>,
    /// Draw this many points at random from the grid instead of taking all
    #[arg(long, value_name = "N", conflicts_with = "budget", value_parser = clap::value_parser!(u64).range(1..=MOST_POINTS as u64))]
    random: Option<u64>,
    /// Successive halving: train all points for a few rounds, keep the best 1/N, train these further, and so on; points are drawn at random
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "3", value_parser = clap::value_parser!(u64).range(2..=100))]
    halving: Option<u64>,
    /// Draw as many points as can be trained with a budget of this many rounds, over all runs together
    #[arg(long, value_name = "ROUNDS")]
    budget: Option<u64>,
    /// The seed from which the points of a search are drawn
    #[arg(long, value_name = "N", default_value_t = 0)]
    search_seed: u64,
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

/// What there is to carry out.
struct Planned {
    axes: Vec<SweepAxis>,
    cells: Vec<SweepCell>,
    halving: Option<Halving>,
}

pub(super) fn run(arguments: &SweepCommand) -> Outcome<()> {
    let limit = arguments.jobs.limit(false)?;
    let Planned { axes, mut cells, halving } = arguments.planned()?;
    check_ahead(&cells).map_err(Failure::refused)?;
    let (run_args, jobs) = (&arguments.run_args, &arguments.jobs);
    if let Some(halving) = &halving {
        let search = Search { axes: &axes, cells: &cells, halving, out: &arguments.out, quiet: run_args.quiet };
        let (kept, end) = search.narrow_down(|runs, round| {
            let label = |index: usize| format!("run {} of {}", index + 1, runs.len());
            let all = Cells { cells: runs, run_args, jobs, limit: &limit, rates: None, until: Some(round), label: &label };
            let begins = |index: usize| {
                arguments.announce(&label(index), &runs[index]);
                Ok(Next::Begin)
            };
            all.carry_out(begins, |_, _| Ok(()))
        })?;
        if end == End::TimeIsOver {
            return conclude(end, 0, "cell");
        }
        let mut place = 0;
        cells.retain(|_| {
            place += 1;
            kept.contains(&(place - 1))
        });
    }
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
    let all = Cells { cells: &cells, run_args, jobs, limit: &limit, rates: None, until: None, label: &label };
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

impl SweepCommand {
    fn planned(&self) -> Outcome<Planned> {
        let overrides = self.experiment.overrides_with(&self.run_args)?;
        let file = self.grid_file.as_deref().map(GridFile::read).transpose().map_err(Failure::refused)?.unwrap_or_default();
        let search = self.axes(file.axes).map_err(Failure::refused)?;
        if !self.is_search() {
            let axes = self.lists(&search).map_err(Failure::refused)?;
            let seeds = self.seeds(&axes, &overrides, file.seeds)?;
            return Ok(Planned { cells: self.cells(&overrides, &axes, &seeds)?, axes, halving: None });
        }
        let seeds = self.seeds(&[], &overrides, file.seeds)?;
        let (points, halving) = self.extent(&overrides, seeds.len().max(1) as u64)?;
        let axes = draw(&search, points, self.search_seed).map_err(Failure::refused)?;
        if axes.iter().any(|axis| axis.key == "seed" || axis.key.starts_with("plan.rounds") || axis.key == "plan.evaluate_every")
        {
            return Err(Failure::request(
                "a search over `seed`, `plan.rounds` or `plan.evaluate_every` compares runs that are not comparable",
                "leave it out; `--seeds` gives every point several",
            ));
        }
        let drawn = axes.first().map_or(0, |axis| axis.values.len());
        if drawn < points {
            tell(&format!("there are {} in all, fewer than the {} asked for", counted(drawn, "point"), count(points)));
        }
        let cells = self.cells(&overrides, &axes, &seeds)?;
        // Points that miss a setting may have become the same.
        let halving = match (halving, self.halving) {
            (Some(_), Some(keep)) => {
                Some(self.halving_of(&overrides, keep, cells.chunk_by(|a, b| a.values == b.values).count())?)
            }
            _ => None,
        };
        Ok(Planned { axes, cells, halving })
    }

    /// How many points are drawn, and how far they are trained.
    fn extent(&self, overrides: &[Override], seeds: u64) -> Outcome<(usize, Option<Halving>)> {
        let plan = self.experiment.read(overrides)?.plan;
        let (rounds, every) = (plan.rounds, plan.evaluate_every);
        let points = self.random.map(|points| points as usize);
        match (points, self.budget.map(|budget| budget / seeds), self.halving) {
            (Some(points), _, None) => Ok((points, None)),
            (Some(points), _, Some(keep)) => {
                Ok((points, Some(Halving::new(points, keep, rounds, every).map_err(Failure::refused)?)))
            }
            (None, Some(budget), Some(keep)) => {
                let halving = Halving::within(budget, keep, rounds, every).map_err(Failure::refused)?;
                Ok((halving.rungs.first().map_or(1, |(_, points)| *points), Some(halving)))
            }
            (None, Some(budget), None) if budget >= rounds => Ok((((budget / rounds) as usize).min(MOST_POINTS), None)),
            (None, Some(budget), None) => Err(Failure::request(
                format!("a budget of `{budget}` rounds a seed is less than the `{rounds}` of one run"),
                "give a larger one, or set fewer `plan.rounds`",
            )),
            (None, None, _) => Err(Failure::request(
                "`--halving` does not say how many points there are",
                "give `--random N` or `--budget ROUNDS` as well",
            )),
        }
    }

    fn halving_of(&self, overrides: &[Override], keep: u64, points: usize) -> Outcome<Halving> {
        let plan = self.experiment.read(overrides)?.plan;
        Halving::new(points, keep, plan.rounds, plan.evaluate_every).map_err(Failure::refused)
    }

    fn is_search(&self) -> bool {
        self.random.is_some() || self.halving.is_some() || self.budget.is_some()
    }

    /// All axes: those of the file, those of the grid, and those that go with either.
    fn axes(&self, from_file: Vec<SearchAxis>) -> fedeq_core::Result<Vec<SearchAxis>> {
        let mut axes = from_file;
        for text in &self.grid {
            axes.push(match text.parse::<SearchAxis>() {
                // What is no range may still be a list, of paths with two points in them.
                Err(_) if !self.is_search() => text.parse::<SweepAxis>()?.into(),
                axis => axis?,
            });
        }
        for text in &self.with {
            let lists: Vec<SweepAxis> = axes.iter().filter_map(SearchAxis::list).collect();
            axes.push(SweepAxis::going_with(text, &lists)?.into());
        }
        Ok(axes)
    }

    /// The same for a grid, which takes no ranges.
    fn lists(&self, axes: &[SearchAxis]) -> fedeq_core::Result<Vec<SweepAxis>> {
        let list = |axis: &SearchAxis| {
            axis.list().ok_or_else(|| {
                Error::invalid(
                    format!("`{axis}` is a range, from which only a search draws"),
                    "list values, `key=value,value`, or give `--random N`, `--halving` or `--budget` as well",
                )
            })
        };
        axes.iter().map(list).collect()
    }

    fn cells(&self, overrides: &[Override], axes: &[SweepAxis], seeds: &[u64]) -> Outcome<Vec<SweepCell>> {
        let SweepGrid { cells: mut all, notes } =
            cells(self.experiment.file(), overrides, axes, seeds, &self.out).map_err(Failure::refused)?;
        if !self.run_args.quiet {
            notes.iter().for_each(|note| tell(note));
        }
        for cell in &mut all {
            self.run_args.set_workers(&mut cell.experiment);
            settle(&mut cell.experiment, overrides);
        }
        Ok(all)
    }

    /// The seeds that are asked for, in one way only.
    fn seeds(&self, axes: &[SweepAxis], overrides: &[Override], from_file: Option<Vec<u64>>) -> Outcome<Vec<u64>> {
        let is_set = overrides.iter().any(|setting| setting.path == ["seed"]) || axes.iter().any(|axis| axis.key == "seed");
        let said = match (&self.seeds, from_file) {
            (None, None) => return Ok(Vec::new()),
            (Some(text), Some(_)) => Err(format!("`--seeds {text}` is given, and the grid file names seeds as well")),
            (Some(text), None) if is_set => Err(format!("`--seeds {text}` is given, and `seed` is set as well")),
            (None, Some(_)) if is_set => Err("the grid file names seeds, and `seed` is set as well".to_owned()),
            (Some(text), None) => return text.parse().map(|Seeds(seeds)| seeds).map_err(Failure::refused),
            (None, Some(seeds)) => Ok(seeds),
        };
        said.map_err(|problem| Failure::request(problem, "leave one of them out"))
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
                "{table}\n{note}\nall cells: {}\ncomparison: fedeq compare {folder}\n",
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
