//! Carrying out the cells of a grid, one after the other or side by side: what sweeps and reproductions have in common.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::tell;
use super::place::relocate;
use super::progress::{labelled, outcome};
use super::settings::{RunArgs, carry_out, carry_out_observed, is_interrupted};
use crate::memory::forget_peak;
use fedeq_run::experiment::Experiment;
use fedeq_run::number::counted;
use fedeq_run::run::{Run, RunFolder, RunSummary, Share, Which};
use fedeq_run::sweep::SweepCell;

/// How many runs are carried out side by side.
#[derive(Args, Debug)]
pub(super) struct JobsArgs {
    /// Runs side by side, which share the cores or a GPU and its memory; the results are the same whatever stands here
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MOST_JOBS))]
    jobs: u16,
}

/// More runs side by side than this are a slip.
const MOST_JOBS: i64 = 256;

/// What became of a cell: what came out, or why it failed.
pub(super) type Attempt = Result<RunSummary, String>;

/// Cells to be carried out, and whom they tell.
pub(super) struct Cells<'a> {
    pub(super) cells: &'a [SweepCell],
    pub(super) run_args: &'a RunArgs,
    pub(super) jobs: &'a JobsArgs,
    /// What a cell is called by its place.
    pub(super) label: &'a (dyn Fn(usize) -> String + Sync),
}

/// Whether to begin a further cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Yes.
    Begin,
    /// No, and none after it.
    End,
}

impl Cells<'_> {
    /// Carries out all cells, as many side by side as there are jobs. `begins` is asked before each; `ends` takes what became of it, one at a time.
    ///
    /// A cell that fails is a value, so that others can continue; one that cannot begin or is interrupted ends them all.
    pub(super) fn carry_out(
        &self,
        begins: impl Fn(usize) -> Outcome<Next> + Sync,
        ends: impl FnMut(usize, Attempt) -> Outcome<()> + Send,
    ) -> Outcome<()> {
        let share = self.share()?;
        let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
        let (ends, failure) = (Mutex::new(ends), Mutex::new(None));
        let one = |index: usize| {
            if begins(index)? == Next::End {
                return Ok(Next::End);
            }
            let attempt = self.attempt(index, share.as_ref(), &is_over)?;
            let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
            ends(index, attempt).map(|()| Next::Begin)
        };
        let work_off = || {
            while !is_over.load(Ordering::Relaxed) {
                let index = next.fetch_add(1, Ordering::Relaxed);
                if index >= self.cells.len() {
                    break;
                }
                match one(index) {
                    Ok(Next::Begin) => continue,
                    Ok(Next::End) => {}
                    // What went wrong first is what there is to tell; others are stopped because of it.
                    Err(error) => drop(failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error)),
                }
                is_over.store(true, Ordering::Relaxed);
            }
        };
        self.side_by_side(&work_off);
        failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
    }

    fn jobs(&self) -> usize {
        usize::from(self.jobs.jobs).min(self.cells.len())
    }

    /// What each run gets of the machine, where several are carried out at once.
    fn share(&self) -> Outcome<Option<Share>> {
        let ahead = self.cells.iter().filter(|cell| !matches!(finished(cell), Ok(Some(_))));
        let share = (self.jobs() > 1).then(|| Share::of(self.jobs(), ahead.map(|cell| &cell.experiment.engine)));
        share.transpose().map_err(Failure::refused)
    }

    fn side_by_side(&self, work_off: &(dyn Fn() + Sync)) {
        if self.jobs() < 2 {
            return work_off();
        }
        thread::scope(|scope| (0..self.jobs()).for_each(|_| drop(scope.spawn(work_off))));
    }

    /// Carries out a cell, continues one that was begun, or reads one that is finished.
    fn attempt(&self, index: usize, share: Option<&Share>, is_over: &AtomicBool) -> Outcome<Attempt> {
        let which = share.map_or_else(|| "this cell".into(), |_| (self.label)(index));
        match self.summary(index, share, is_over) {
            Ok(summary) => Ok(Ok(summary)),
            Err(Failure::Told { problem, code: 1, .. }) => {
                tell(&format!("{which} failed: {problem}"));
                Ok(Err(problem))
            }
            Err(Failure::Told { problem, code: 130, .. }) => {
                Err(Failure::Told { problem, hint: "the same command again continues from here".into(), code: 130 })
            }
            Err(other) => Err(other),
        }
    }

    fn summary(&self, index: usize, share: Option<&Share>, is_over: &AtomicBool) -> Outcome<RunSummary> {
        let cell = &self.cells[index];
        if let Some(summary) = finished(cell).map_err(Failure::refused)? {
            self.say(index, "already finished");
            return Ok(summary);
        }
        let run = ready(cell, self.run_args).map_err(Failure::refused)?;
        let Some(share) = share else {
            forget_peak();
            return carry_out(&run, self.run_args.quiet);
        };
        let run = run.with_share(share).map_err(Failure::refused)?;
        let is_stopped = || is_interrupted() || is_over.load(Ordering::Relaxed);
        let summary = carry_out_observed(&run, labelled((self.label)(index)), &is_stopped)?;
        self.say(index, &outcome(&summary));
        Ok(summary)
    }

    fn say(&self, index: usize, text: &str) {
        match (self.run_args.quiet, self.jobs() < 2) {
            (true, _) => {}
            (false, true) => tell(text),
            (false, false) => tell(&format!("{}: {text}", (self.label)(index))),
        }
    }
}

/// The end of it all: a failure if any of them failed.
pub(super) fn conclude(failed: usize, what: &str) -> Outcome<()> {
    match failed {
        0 => Ok(()),
        failed => Err(Failure::Told {
            problem: format!("{} failed", counted(failed, what)),
            hint: "the same command again tries them once more from their last checkpoints".into(),
            code: 1,
        }),
    }
}

/// What came out of a cell, if it is finished.
pub(super) fn finished(cell: &SweepCell) -> fedeq_core::Result<Option<RunSummary>> {
    RunFolder::open(&cell.folder).map_or(Ok(None), |folder| folder.summary())
}

/// Refuses devices that are not there, each asked for once, before anything is trained.
pub(super) fn require_devices<'a>(cells: impl Iterator<Item = &'a SweepCell>) -> fedeq_core::Result<()> {
    let mut seen: Vec<&str> = Vec::new();
    for engine in cells.map(|cell| &cell.experiment.engine) {
        if !seen.contains(&engine.device.as_str()) {
            engine.gpu()?;
            seen.push(&engine.device);
        }
    }
    Ok(())
}

fn ready(cell: &SweepCell, run_args: &RunArgs) -> fedeq_core::Result<Run> {
    match RunFolder::open(&cell.folder) {
        Ok(folder) => Run::resume(&folder, Which::Latest, None, |experiment| adapt(experiment, cell, run_args)),
        // A folder that a killed process has just begun to make is taken; one that holds anything else is left alone.
        Err(_) => Run::create(&cell.experiment, &cell.folder),
    }
}

fn adapt(experiment: &mut Experiment, cell: &SweepCell, run_args: &RunArgs) {
    experiment.engine = cell.experiment.engine.clone();
    relocate(experiment, run_args.data.as_deref());
}
