//! Carrying out the cells of a grid, one after the other or side by side: what sweeps and reproductions have in common.
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use clap::Args;

use super::failure::{Failure, Outcome};
use super::output::tell;
use super::progress::{labelled, observer, outcome};
use super::settings::{RunArgs, carry_out_observed, is_interrupted, much_disk};
use crate::memory::forget_peak;
use fedeq_run::experiment::Experiment;
use fedeq_run::forecast::Rates;
use fedeq_run::limit::{RunClock, TimeLimit};
use fedeq_run::number::counted;
use fedeq_run::run::{Run, RunFolder, RunSummary, Share, SimulationObserver, Which};
use fedeq_run::sweep::SweepCell;

/// How many runs are carried out side by side, and how long that may take.
#[derive(Args, Debug)]
pub(super) struct JobsArgs {
    /// How many runs are carried out at the same time; they share the cores, or a GPU and its memory. Results do not depend on it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=MOST_JOBS))]
    jobs: u16,
    /// End before this much time has passed (`90s`, `25m`, `2h`, `1h30m`): runs under way keep a checkpoint, and the same command continues them. The exit code is then 3
    #[arg(long, value_name = "TIME")]
    time_budget: Option<String>,
}

/// More runs side by side than this are a slip.
const MOST_JOBS: i64 = 256;

impl JobsArgs {
    /// Runs side by side.
    pub(super) fn jobs(&self) -> u16 {
        self.jobs
    }

    /// The limit that was asked for, from now on; what is kept is packed into an archive in the end, or is not.
    pub(super) fn limit(&self, is_packed: bool) -> Outcome<TimeLimit> {
        let budget = self.time_budget.as_deref().map(str::parse).transpose().map_err(Failure::refused)?;
        Ok(TimeLimit::new(budget, is_packed))
    }
}

/// What became of a cell: what came out, or why it failed.
pub(super) type Attempt = Result<RunSummary, String>;

/// How work on a cell ended.
enum Attempted {
    /// It came to an end, or failed.
    Ended(Box<Attempt>),
    /// It was stopped after the round that was asked for.
    FarEnough,
    /// The time did not suffice.
    OutOfTime,
}

/// Cells to be carried out, and whom they tell.
pub(super) struct Cells<'a> {
    pub(super) cells: &'a [SweepCell],
    pub(super) run_args: &'a RunArgs,
    pub(super) jobs: &'a JobsArgs,
    /// When all must have ended.
    pub(super) limit: &'a TimeLimit,
    /// Where it is recorded how fast rounds were.
    pub(super) rates: Option<&'a Mutex<Rates>>,
    /// The round after which a run is stopped, to be continued perhaps; all of them if left out.
    pub(super) until: Option<u64>,
    /// What a cell is called by its place.
    pub(super) label: &'a (dyn Fn(usize) -> String + Sync),
}

/// Whether to begin a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// Yes.
    Begin,
    /// Yes, without any checkpoint: what does not end in time is begun again elsewhere.
    BeginUnkept,
    /// It is done already.
    Done,
    /// Not now: it would not end in time, and others may.
    Later,
}

/// How it ended; of two ends the greater is that of both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    /// Every cell was carried out, or tried.
    AllDone,
    /// The time is over; the same command again continues.
    TimeIsOver,
}

/// What threads tell each other that carry out cells side by side.
#[derive(Default)]
struct Signals {
    /// The cell that is taken next.
    next: AtomicUsize,
    /// A run was stopped for want of time: what is left is too little for another one's checkpoint.
    is_late: AtomicBool,
    /// All are to stop, because of the failure.
    is_over: AtomicBool,
    failure: Mutex<Option<Failure>>,
}

impl Signals {
    /// Stops all. What went wrong first is what there is to tell; others are stopped because of it.
    fn stop(&self, failure: Failure) {
        let _ = self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.is_over.store(true, Ordering::Relaxed);
    }
}

impl Cells<'_> {
    /// Carries out all cells, as many side by side as there are jobs. `begins` is asked before each; `ends` takes what became of it, one at a time.
    ///
    /// A cell that fails is a value, so that others can continue; one that cannot begin or is interrupted ends them all. When the time is over, no cell begins, and
    /// those under way are stopped between rounds.
    pub(super) fn carry_out(
        &self,
        begins: impl Fn(usize) -> Outcome<Next> + Sync,
        ends: impl FnMut(usize, Attempt) -> Outcome<()> + Send,
    ) -> Outcome<End> {
        let share = self.share()?;
        let (ends, signals) = (Mutex::new(ends), Signals::default());
        let one = |index: usize| {
            if self.is_too_late(index, &signals) {
                return Ok(End::TimeIsOver);
            }
            let is_kept = match begins(index)? {
                Next::Begin => true,
                Next::BeginUnkept => false,
                Next::Done => return Ok(End::AllDone),
                Next::Later => return Ok(End::TimeIsOver),
            };
            match self.attempt(index, is_kept, share.as_ref(), &signals.is_over)? {
                Attempted::Ended(attempt) => (ends.lock().unwrap_or_else(PoisonError::into_inner))(index, *attempt)?,
                Attempted::FarEnough => {}
                Attempted::OutOfTime => {
                    signals.is_late.store(true, Ordering::Relaxed);
                    return Ok(End::TimeIsOver);
                }
            }
            Ok(End::AllDone)
        };
        let end = self.side_by_side(&|| self.take_turns(&signals, &one));
        signals.failure.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(end), Err)
    }

    /// Whether there is no time to carry out a cell; what is finished takes none.
    fn is_too_late(&self, index: usize, signals: &Signals) -> bool {
        let is_time = signals.is_late.load(Ordering::Relaxed) || self.limit.is_over();
        is_time && !matches!(finished(&self.cells[index]), Ok(Some(_)))
    }

    /// Takes one cell after the other, until none is left or all are to stop.
    fn take_turns(&self, signals: &Signals, one: &(dyn Fn(usize) -> Outcome<End> + Sync)) -> End {
        let mut end = End::AllDone;
        while !signals.is_over.load(Ordering::Relaxed) {
            let index = signals.next.fetch_add(1, Ordering::Relaxed);
            if index >= self.cells.len() {
                break;
            }
            match one(index) {
                Ok(ended) => end = end.max(ended),
                Err(failure) => signals.stop(failure),
            }
        }
        end
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

    /// The same work on a thread for each job; the end of all.
    fn side_by_side(&self, work: &(dyn Fn() -> End + Sync)) -> End {
        if self.jobs() < 2 {
            return work();
        }
        thread::scope(|scope| {
            let threads: Vec<_> = (0..self.jobs()).map(|_| scope.spawn(work)).collect();
            let ends = threads.into_iter().map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
            ends.max().unwrap_or(End::AllDone)
        })
    }

    /// Carries out a cell, continues one that was begun, or reads one that is finished; nothing comes of one that is stopped before its end.
    fn attempt(&self, index: usize, is_kept: bool, share: Option<&Share>, is_over: &AtomicBool) -> Outcome<Attempted> {
        let which = share.map_or_else(|| "this cell".into(), |_| (self.label)(index));
        let clock = RunClock::new(self.limit).until(self.until);
        match self.summary(index, is_kept, share, is_over, &clock) {
            Ok(Some(summary)) => Ok(Attempted::Ended(Box::new(Ok(summary)))),
            Ok(None) => Ok(Attempted::OutOfTime),
            Err(Failure::Told { problem, code: 1, .. }) => {
                tell(&format!("{which} failed: {problem}"));
                Ok(Attempted::Ended(Box::new(Err(problem))))
            }
            Err(Failure::Told { code: 130, .. }) if clock.has_reached() && !is_interrupted() => Ok(Attempted::FarEnough),
            Err(Failure::Told { problem, code: 130, .. }) => {
                if clock.is_over() && !is_interrupted() && !is_over.load(Ordering::Relaxed) {
                    let stopped = if is_kept {
                        problem
                    } else {
                        format!("stopped after {}, of which nothing is kept", counted(clock.rounds() as usize, "round"))
                    };
                    self.say(index, &format!("{stopped}, the time is over"));
                    if clock.rounds() == 0 {
                        tell(&format!("{which}: no round ended in time, so it made no progress"));
                    }
                    return Ok(Attempted::OutOfTime);
                }
                Err(Failure::Told { problem, hint: "the same command again continues from here".into(), code: 130 })
            }
            Err(other) => Err(other),
        }
    }

    /// What came of a cell; nothing if there is no time to keep it beside those under way.
    fn summary(
        &self,
        index: usize,
        is_kept: bool,
        share: Option<&Share>,
        is_over: &AtomicBool,
        clock: &RunClock<'_>,
    ) -> Outcome<Option<RunSummary>> {
        let cell = &self.cells[index];
        if let Some(summary) = finished(cell).map_err(Failure::refused)? {
            self.say(index, "already finished");
            return Ok(Some(summary));
        }
        let run = ready(cell).map_err(Failure::refused)?;
        let run = match share {
            Some(share) => run.with_share(share).map_err(Failure::refused)?,
            None => run,
        };
        let (run, checkpoint) = if is_kept {
            let checkpoint = run.start().disk.checkpoint;
            (run, checkpoint)
        } else {
            (run.without_checkpoints(), 0)
        };
        if !self.limit.has_time_to_write(checkpoint) {
            self.say(index, "not begun: writing its checkpoint would take the time of those under way");
            return Ok(None);
        }
        self.warn_of_disk(index, &run, share);
        let is_stopped = || is_interrupted() || is_over.load(Ordering::Relaxed) || clock.is_over();
        let observer = clock.observer(self.observer(index, &run, share), checkpoint);
        let summary = carry_out_observed(&run, Box::new(observer), &is_stopped);
        self.note_rate(&run);
        let summary = summary?;
        if share.is_some() {
            self.say(index, &outcome(&summary));
        }
        Ok(Some(summary))
    }

    /// Who watches: as a run alone is watched, or with the name of the run before each line.
    fn observer(&self, index: usize, run: &Run, share: Option<&Share>) -> Box<SimulationObserver<'static>> {
        if share.is_some() {
            return labelled((self.label)(index));
        }
        forget_peak();
        if let Some(remark) = run.prepared().remark().filter(|_| !self.run_args.quiet) {
            tell(&remark);
        }
        observer(self.run_args.quiet, run.start())
    }

    /// Says how much disk a run takes, if that is much, to who is told so by no observer: who wants to hear nothing, and who carries out several at once.
    fn warn_of_disk(&self, index: usize, run: &Run, share: Option<&Share>) {
        let is_told = !self.run_args.quiet && share.is_none();
        if let Some(warning) = much_disk(run.start().disk).filter(|_| !is_told) {
            tell(&format!("{}: {warning}", (self.label)(index)));
        }
    }

    /// Records how fast its rounds were; a run whose timings cannot be read teaches nothing.
    fn note_rate(&self, run: &Run) {
        if let (Some(rates), Ok(timings)) = (self.rates, run.folder().timings()) {
            let mut rates = rates.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = rates.note(run.prepared(), &timings, self.jobs());
        }
    }

    fn say(&self, index: usize, text: &str) {
        match (self.run_args.quiet, self.jobs() < 2) {
            (true, _) => {}
            (false, true) => tell(text),
            (false, false) => tell(&format!("{}: {text}", (self.label)(index))),
        }
    }
}

/// The end of it all: a failure if any of them failed, or if the time did not suffice.
pub(super) fn conclude(end: End, failed: usize, what: &str) -> Outcome<()> {
    match (failed, end) {
        (0, End::AllDone) => Ok(()),
        (0, End::TimeIsOver) => Err(Failure::OutOfTime),
        (failed, _) => Err(Failure::Told {
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

fn ready(cell: &SweepCell) -> fedeq_core::Result<Run> {
    match RunFolder::open(&cell.folder) {
        Ok(folder) => Run::resume(&folder, Which::Latest, None, |experiment| adapt(experiment, cell)),
        // A folder that a killed process has just begun to make is taken; one that holds anything else is left alone.
        Err(_) => Run::create(&cell.experiment, &cell.folder),
    }
}

/// How it is computed and where its data lies is what the cell says now: the run may have begun on another machine.
fn adapt(experiment: &mut Experiment, cell: &SweepCell) {
    experiment.engine = cell.experiment.engine.clone();
    experiment.data.folder.clone_from(&cell.experiment.data.folder);
}
