//! `fedeq reproduce`.
use std::fs;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use fedeq_core::Error;

use super::cells::{attempt, finished};
use super::failure::{Failure, Outcome};
use super::output::{print, print_json, tell};
use super::settings::Conduct;
use super::table::{Align, Table};
use crate::experiment::Override;
use crate::number::{counted, duration};
use crate::reproduce::{
    Cell, Estimate, Metric, NAMES, Pattern, Results, ScaleName, Spec, cells, find, measure, publish, text_tables,
};
use crate::run::RunFolder;
use crate::sweep;

/// Reproduces a table or figure of the paper, or one of our own.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  fedeq reproduce --list                             what there is
  fedeq reproduce fig-rho --scale small              needs nothing but this program, a few minutes
  fedeq reproduce table-1 --dry-run                  what would run, how long, how much disk
  fedeq reproduce table-1 --data data --only 'fedeq-*' --seeds 3
  fedeq reproduce table-1 --scale full --data data --budget 600 --discard-models

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
    /// Run nothing; say what would run, how long it takes and how much disk, as far as that is known
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
    /// The folder of the results [default: experiments/NAME]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// The folder of the runs [default: runs/reproduce/NAME/SCALE]
    #[arg(long, value_name = "DIR")]
    runs: Option<PathBuf>,
    #[command(flatten)]
    conduct: Conduct,
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

/// An experiment at a scale, and where it goes.
struct Job<'a> {
    arguments: &'a Arguments,
    spec: Spec,
    scale: ScaleName,
    wishes: Vec<Override>,
    cells: Vec<Cell>,
    seeds: u64,
    /// Where the results go.
    out: PathBuf,
    /// Where the runs go.
    runs: PathBuf,
}

impl Arguments {
    fn job(&self, name: &str) -> fedeq_core::Result<Job<'_>> {
        let spec = find(name)?;
        let scale = ScaleName::from(self.scale);
        let wishes = self.set.iter().map(|text| text.parse()).collect::<fedeq_core::Result<Vec<Override>>>()?;
        let mut cells = cells(&spec, scale, &self.all_wishes(&wishes))?;
        self.keep_wanted(&spec, &mut cells)?;
        cells
            .iter_mut()
            .for_each(|cell| cell.experiment.engine.workers = self.conduct.workers.or(cell.experiment.engine.workers));
        Ok(Job {
            arguments: self,
            seeds: self.seeds.map_or_else(|| spec.seeds(scale), |seeds| Ok(seeds.get()))?,
            out: self.out.clone().unwrap_or_else(|| Path::new("experiments").join(name)),
            runs: self.runs.clone().unwrap_or_else(|| Path::new("runs/reproduce").join(name).join(scale.to_string())),
            spec,
            scale,
            wishes,
            cells,
        })
    }

    fn all_wishes(&self, wishes: &[Override]) -> Vec<Override> {
        let folder = self.conduct.data.iter().map(|path| Override::new("data.folder", path.display().to_string()));
        wishes.iter().cloned().chain(folder).collect()
    }

    fn keep_wanted(&self, spec: &Spec, cells: &mut Vec<Cell>) -> fedeq_core::Result<()> {
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

/// Why no further cell is begun.
enum End {
    AllDone,
    OutOfBudget,
}

impl Job<'_> {
    /// Every run: all cells with the first seed, then all with the second, so that what is there at any time is as broad as can be.
    fn all_runs(&self) -> Vec<(&Cell, sweep::Cell)> {
        let with_seed = |seed| self.cells.iter().map(move |cell| (cell, cell.run(seed, &self.runs)));
        (0..self.seeds).flat_map(with_seed).collect()
    }

    fn load(&self) -> fedeq_core::Result<Results> {
        let all = cells(&self.spec, self.scale, &self.wishes)?;
        Results::load(&self.out, &self.spec.name, self.scale, &all)
    }

    /// What would run.
    fn describe(&self) -> Outcome<()> {
        let results = self.load().map_err(Failure::refused)?;
        let runs = self.all_runs();
        let mut total = Estimate::default();
        runs.iter().for_each(|(cell, run)| total.add(&results, &cell.name, run));
        let columns = ["cell", "method", "data", "model", "rounds", "state", "a seed"];
        let mut table = Table::new(&columns.map(|name| (name, Align::Left)));
        for cell in &self.cells {
            let experiment = &cell.experiment;
            let names = [experiment.method.name(), experiment.data.source.name(), experiment.model.name()].map(str::to_owned);
            let seconds = results.sample(&cell.name, Metric::Seconds).map_or("unknown".into(), |seconds| duration(seconds.mean));
            let row =
                [vec![cell.name.clone()], names.to_vec(), vec![experiment.plan.rounds.to_string(), self.state(cell), seconds]];
            table.row(row.concat());
        }
        let seeds = counted(self.seeds as usize, "seed");
        print(&format!("{}\n{}, {seeds}: {}\n", table.text(), counted(self.cells.len(), "cell"), total.text()))
    }

    fn state(&self, cell: &Cell) -> String {
        let is_done = |seed: &u64| matches!(finished(&cell.run(*seed, &self.runs)), Ok(Some(_)));
        let done = (0..self.seeds).filter(is_done).count();
        let has_begun = (0..self.seeds).any(|seed| cell.run(seed, &self.runs).folder.exists());
        match done {
            done if done as u64 == self.seeds => "done".into(),
            0 if has_begun => "begun".into(),
            0 => "not run".into(),
            done => format!("{done} of {}", self.seeds),
        }
    }

    fn carry_out(&self) -> Outcome<()> {
        self.check_ahead().map_err(Failure::refused)?;
        let mut results = self.load().map_err(Failure::refused)?;
        let mut failed = 0;
        let ended = self.run_all(&mut results, &mut failed);
        // Whatever ended it, what was measured is shown.
        publish(&self.spec, &self.wishes, &self.out).map_err(Failure::during_work)?;
        let end = ended?;
        self.show(&results)?;
        self.conclude(&end, failed)
    }

    /// Refuses what can be refused before anything is trained: one cell of every data set is prepared.
    fn check_ahead(&self) -> fedeq_core::Result<()> {
        let mut seen = Vec::new();
        for (_, run) in self.all_runs().iter().filter(|(_, run)| !run.folder.exists()) {
            if !seen.contains(&&run.experiment.data.source) {
                run.experiment.prepare()?;
                seen.push(&run.experiment.data.source);
            }
        }
        Ok(())
    }

    fn run_all(&self, results: &mut Results, failed: &mut usize) -> Outcome<End> {
        fs::create_dir_all(&self.out).map_err(Failure::io(&self.out, "create it"))?;
        let (runs, start) = (self.all_runs(), Instant::now());
        for (index, (cell, run)) in runs.iter().enumerate() {
            if self.is_out_of_budget(start) && finished(run).map_err(Failure::refused)?.is_none() {
                return Ok(End::OutOfBudget);
            }
            self.announce(index, runs.len(), cell, run);
            match attempt(run, &self.arguments.conduct)? {
                Ok(_) => self.keep(cell, run, results).map_err(Failure::during_work)?,
                Err(_) => *failed += 1,
            }
        }
        Ok(End::AllDone)
    }

    fn is_out_of_budget(&self, start: Instant) -> bool {
        let budget = self.arguments.budget.map(|minutes| Duration::from_secs_f64(60.0 * minutes.clamp(0.0, 1e6)));
        budget.is_some_and(|budget| start.elapsed() >= budget)
    }

    fn announce(&self, index: usize, total: usize, cell: &Cell, run: &sweep::Cell) {
        if !self.arguments.conduct.quiet {
            tell(&format!("run {} of {total}: {}, seed {}", index + 1, cell.name, run.experiment.seed));
        }
    }

    /// Takes what a finished run measured into the results.
    fn keep(&self, cell: &Cell, run: &sweep::Cell, results: &mut Results) -> fedeq_core::Result<()> {
        let folder = RunFolder::open(&run.folder)?;
        if let Some(measured) = measure(&self.spec, &folder)? {
            results.add(cell, measured);
            results.save(&self.out)?;
        }
        if self.arguments.discard_models { folder.discard_models() } else { Ok(()) }
    }

    fn show(&self, results: &Results) -> Outcome<()> {
        if self.arguments.conduct.json {
            return print_json(results);
        }
        let mut text = String::new();
        for table in text_tables(&self.spec, results).map_err(Failure::during_work)? {
            let align = |(index, name): (usize, &String)| (name.clone(), if index == 0 { Align::Left } else { Align::Right });
            let columns: Vec<(String, Align)> = table.heading.iter().enumerate().map(align).collect();
            let mut shown = Table::new(&columns.iter().map(|(name, align)| (name.as_str(), *align)).collect::<Vec<_>>());
            table.rows.into_iter().for_each(|row| shown.row(row));
            text += &format!("{}\n\n{}\n", table.title, shown.text());
        }
        print(&format!("{text}{}\n", self.out.join("README.md").display()))
    }

    fn conclude(&self, end: &End, failed: usize) -> Outcome<()> {
        if matches!(end, End::OutOfBudget) {
            tell("the budget is spent; the same command again goes on from here");
        }
        match failed {
            0 => Ok(()),
            failed => Err(Failure::Told {
                problem: format!("{} failed", counted(failed, "run")),
                hint: "the same command again tries them once more from their last checkpoints".into(),
                code: 1,
            }),
        }
    }
}
