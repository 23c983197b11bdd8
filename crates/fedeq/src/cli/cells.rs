//! Carrying out the cells of a grid: what sweeps and reproductions have in common.
use super::failure::{Failure, Outcome};
use super::output::tell;
use super::place::relocate;
use super::settings::{Conduct, carry_out};
use crate::memory::forget_peak;
use fedeq_run::experiment::Experiment;
use fedeq_run::number::counted;
use fedeq_run::run::{Run, RunFolder, Summary, Which};
use fedeq_run::sweep::SweepCell;

/// Carries out a cell, goes on with one that was begun, or reads one that is finished.
///
/// A cell that fails is a value, so that others can go on; one that cannot begin or is interrupted is a failure.
pub(super) fn attempt(cell: &SweepCell, conduct: &Conduct) -> Outcome<Result<Summary, String>> {
    match summary(cell, conduct) {
        Ok(summary) => Ok(Ok(summary)),
        Err(Failure::Told { problem, code: 1, .. }) => {
            tell(&format!("this cell failed: {problem}"));
            Ok(Err(problem))
        }
        Err(Failure::Told { problem, code: 130, .. }) => {
            Err(Failure::Told { problem, hint: "the same command again goes on from here".into(), code: 130 })
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

fn summary(cell: &SweepCell, conduct: &Conduct) -> Outcome<Summary> {
    if let Some(summary) = finished(cell).map_err(Failure::refused)? {
        if !conduct.quiet {
            tell("finished already");
        }
        return Ok(summary);
    }
    let run = ready(cell, conduct).map_err(Failure::refused)?;
    forget_peak();
    carry_out(&run, conduct.quiet)
}

/// What came out of a cell, if it is finished.
pub(super) fn finished(cell: &SweepCell) -> fedeq_core::Result<Option<Summary>> {
    RunFolder::open(&cell.folder).map_or(Ok(None), |folder| folder.summary())
}

fn ready(cell: &SweepCell, conduct: &Conduct) -> fedeq_core::Result<Run> {
    match RunFolder::open(&cell.folder) {
        Ok(folder) => Run::resume(&folder, Which::Latest, |experiment| adapt(experiment, cell, conduct)),
        // A folder that a killed process has just begun to make is taken; one that holds anything else is left alone.
        Err(_) => Run::create(&cell.experiment, &cell.folder),
    }
}

fn adapt(experiment: &mut Experiment, cell: &SweepCell, conduct: &Conduct) {
    experiment.engine = cell.experiment.engine.clone();
    relocate(experiment, conduct.data.as_deref());
}
