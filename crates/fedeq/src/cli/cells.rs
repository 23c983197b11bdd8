//! Carrying out the cells of a grid: what sweeps and reproductions have in common.
use super::failure::{Failure, Outcome};
use super::output::tell;
use super::place::relocate;
use super::settings::{RunArgs, carry_out};
use crate::memory::forget_peak;
use fedeq_run::experiment::Experiment;
use fedeq_run::number::counted;
use fedeq_run::run::{Run, RunFolder, Summary, Which};
use fedeq_run::sweep::SweepCell;

/// Carries out a cell, continues one that was begun, or reads one that is finished.
///
/// A cell that fails is a value, so that others can continue; one that cannot begin or is interrupted is a failure.
pub(super) fn attempt(cell: &SweepCell, run_args: &RunArgs) -> Outcome<Result<Summary, String>> {
    match summary(cell, run_args) {
        Ok(summary) => Ok(Ok(summary)),
        Err(Failure::Told { problem, code: 1, .. }) => {
            tell(&format!("this cell failed: {problem}"));
            Ok(Err(problem))
        }
        Err(Failure::Told { problem, code: 130, .. }) => {
            Err(Failure::Told { problem, hint: "the same command again continues from here".into(), code: 130 })
        }
        Err(other) => Err(other),
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

fn summary(cell: &SweepCell, run_args: &RunArgs) -> Outcome<Summary> {
    if let Some(summary) = finished(cell).map_err(Failure::refused)? {
        if !run_args.quiet {
            tell("already finished");
        }
        return Ok(summary);
    }
    let run = ready(cell, run_args).map_err(Failure::refused)?;
    forget_peak();
    carry_out(&run, run_args.quiet)
}

/// What came out of a cell, if it is finished.
pub(super) fn finished(cell: &SweepCell) -> fedeq_core::Result<Option<Summary>> {
    RunFolder::open(&cell.folder).map_or(Ok(None), |folder| folder.summary())
}

fn ready(cell: &SweepCell, run_args: &RunArgs) -> fedeq_core::Result<Run> {
    match RunFolder::open(&cell.folder) {
        Ok(folder) => Run::resume(&folder, Which::Latest, |experiment| adapt(experiment, cell, run_args)),
        // A folder that a killed process has just begun to make is taken; one that holds anything else is left alone.
        Err(_) => Run::create(&cell.experiment, &cell.folder),
    }
}

fn adapt(experiment: &mut Experiment, cell: &SweepCell, run_args: &RunArgs) {
    experiment.engine = cell.experiment.engine.clone();
    relocate(experiment, run_args.data.as_deref());
}
