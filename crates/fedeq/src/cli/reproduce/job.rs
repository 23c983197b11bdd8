//! Carrying out an experiment.
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::Arguments;
use crate::cli::cells::{Attempt, Cells, Next, conclude, finished, require_devices};
use crate::cli::failure::{Failure, Outcome};
use crate::cli::output::{print, print_json, tell};
use crate::cli::table::{Align, Table};
use fedeq_report::reproduce::{
    ExperimentCell, Results, ScaleName, Spec, TextTable, cells, legend, measure, publish, text_tables,
};
use fedeq_run::experiment::{Device, Experiment, Override};
use fedeq_run::run::RunFolder;
use fedeq_run::sweep::SweepCell;

/// An experiment at a scale, and where it goes.
pub(super) struct Job<'a> {
    pub(super) arguments: &'a Arguments,
    pub(super) spec: Spec,
    pub(super) scale: ScaleName,
    pub(super) overrides: Vec<Override>,
    pub(super) cells: Vec<ExperimentCell>,
    pub(super) seeds: u64,
    /// Where the results go.
    pub(super) out: PathBuf,
    /// Where the runs go.
    pub(super) runs: PathBuf,
}

/// Why no further cell is begun.
enum End {
    AllDone,
    OutOfBudget,
}

impl Job<'_> {
    /// Every run: all cells with the first seed, then all with the second, so that what is there at any time is as broad as can be.
    pub(super) fn all_runs(&self) -> Vec<(&ExperimentCell, SweepCell)> {
        let with_seed = |seed| self.cells.iter().map(move |cell| (cell, cell.run(seed, &self.runs)));
        (0..self.seeds).flat_map(with_seed).collect()
    }

    pub(super) fn load(&self) -> fedeq_core::Result<Results> {
        let all = cells(&self.spec, self.scale, &self.overrides)?;
        Results::load(&self.out, &self.spec.name, self.scale, &all)
    }

    /// Runs everything that is not done yet, and shows what is there.
    pub(super) fn carry_out(&self) -> Outcome<()> {
        self.check_ahead().map_err(Failure::refused)?;
        let mut results = self.load().map_err(Failure::refused)?;
        let mut failed = 0;
        let ended = self.run_all(&mut results, &mut failed);
        // Whatever ended it, what was measured is shown.
        publish(&self.spec, &self.overrides, &self.out).map_err(Failure::during_work)?;
        let end = ended?;
        self.show(&results)?;
        self.conclude(&end, failed)
    }

    /// Refuses what can be refused before anything is trained: one cell of every data set is prepared, and on a GPU, which cannot do everything, one of every
    /// network and way of training.
    fn check_ahead(&self) -> fedeq_core::Result<()> {
        let runs = self.all_runs();
        let ahead = || runs.iter().map(|(_, run)| run);
        require_devices(ahead().filter(|run| !matches!(finished(run), Ok(Some(_)))))?;
        let mut seen: Vec<&Experiment> = Vec::new();
        for experiment in ahead().filter(|run| !run.folder.exists()).map(|run| &run.experiment) {
            if !seen.iter().any(|known| is_checked_by(experiment, known)) {
                experiment.prepare()?;
                seen.push(experiment);
            }
        }
        Ok(())
    }

    fn run_all(&self, results: &mut Results, failed: &mut usize) -> Outcome<End> {
        fs::create_dir_all(&self.out).map_err(Failure::io(&self.out, "create it"))?;
        let (of, runs): (Vec<&ExperimentCell>, Vec<SweepCell>) = self.all_runs().into_iter().unzip();
        let (start, is_out_of_budget) = (Instant::now(), AtomicBool::new(false));
        let label = |index: usize| format!("run {} of {}", index + 1, runs.len());
        let begins = |index: usize| {
            if self.is_out_of_budget(start) && finished(&runs[index]).map_err(Failure::refused)?.is_none() {
                is_out_of_budget.store(true, Ordering::Relaxed);
                return Ok(Next::End);
            }
            self.announce(&label(index), of[index], &runs[index]);
            Ok(Next::Begin)
        };
        let ends = |index: usize, attempt: Attempt| match attempt {
            Ok(_) => self.keep(of[index], &runs[index], results).map_err(Failure::during_work),
            Err(_) => {
                *failed += 1;
                Ok(())
            }
        };
        let (run_args, jobs) = (&self.arguments.run_args, &self.arguments.jobs);
        Cells { cells: &runs, run_args, jobs, label: &label }.carry_out(begins, ends)?;
        Ok(if is_out_of_budget.into_inner() { End::OutOfBudget } else { End::AllDone })
    }

    fn is_out_of_budget(&self, start: Instant) -> bool {
        let budget = self.arguments.budget.map(|minutes| Duration::from_secs_f64(60.0 * minutes));
        budget.is_some_and(|budget| start.elapsed() >= budget)
    }

    fn announce(&self, label: &str, cell: &ExperimentCell, run: &SweepCell) {
        if !self.arguments.run_args.quiet {
            tell(&format!("{label}: {}, seed {}", cell.name, run.experiment.seed));
        }
    }

    /// Takes what a finished run measured into the results.
    fn keep(&self, cell: &ExperimentCell, run: &SweepCell, results: &mut Results) -> fedeq_core::Result<()> {
        let folder = RunFolder::open(&run.folder)?;
        if let Some(measured) = measure(&self.spec, &folder)? {
            results.add(cell, measured);
            results.save(&self.out)?;
        }
        if self.arguments.discard_models { folder.discard_models() } else { Ok(()) }
    }

    fn show(&self, results: &Results) -> Outcome<()> {
        if self.arguments.run_args.json {
            return print_json(results);
        }
        let tables = text_tables(&self.spec, results).map_err(Failure::during_work)?;
        let text: String = tables.iter().map(text_of).collect();
        let legend: String =
            legend(&self.spec, results).map_err(Failure::during_work)?.iter().map(|line| format!("{line}\n")).collect();
        print(&format!("{text}{legend}\n{}\n", self.out.join("README.md").display()))
    }

    fn conclude(&self, end: &End, failed: usize) -> Outcome<()> {
        if matches!(end, End::OutOfBudget) {
            tell("the budget is spent; the same command again continues from here");
        }
        conclude(failed, "run")
    }
}

/// Whether what may be refused of an experiment is refused of another one too.
fn is_checked_by(experiment: &Experiment, other: &Experiment) -> bool {
    let is_cpu = matches!(experiment.engine.place(), Ok(Device::Cpu));
    let is_alike = || experiment.model == other.model && experiment.training == other.training;
    experiment.data.source == other.data.source && (is_cpu || is_alike())
}

fn text_of(table: &TextTable) -> String {
    let align = |(index, name): (usize, &'_ String)| (name.clone(), if index == 0 { Align::Left } else { Align::Right });
    let columns: Vec<(String, Align)> = table.heading.iter().enumerate().map(align).collect();
    let mut shown = Table::new(&columns.iter().map(|(name, align)| (name.as_str(), *align)).collect::<Vec<_>>());
    table.rows.iter().for_each(|row| shown.row(row.clone()));
    format!("{}\n\n{}\n", table.title, shown.text())
}
