//! What is written down as it happens.
use std::ops::ControlFlow;

use fedeq_core::{Evaluation, Event, Observer, Quality, Result, Round};

use super::folder::RunFolder;
use super::journal::{Journal, keep_lines};
use super::table;
use super::tensorboard::EventFile;
use super::timing::{Timing, peak_memory};

/// Writes rounds, evaluations, timings, the table and TensorBoard's files.
pub(super) struct Recorder {
    rounds: Journal,
    evaluations: Journal,
    timings: Journal,
    table: Journal,
    events: EventFile,
    timing: Timing,
}

impl Recorder {
    /// Goes on after so many rounds. The journals of rounds and evaluations have been cut back already.
    pub(super) fn open(folder: &RunFolder, after: u64) -> Result<Self> {
        keep_lines(&folder.timings_file(), |line| serde_json::from_str(line).is_ok_and(|line: Timing| line.round <= after))?;
        keep_lines(&folder.table_file(), |line| table::is_before(line, after))?;
        let mut table = Journal::open(folder.table_file())?;
        if table.is_empty()? {
            table.line(table::HEADING)?;
        }
        Ok(Self {
            rounds: Journal::open(folder.rounds_file())?,
            evaluations: Journal::open(folder.evaluations_file())?,
            timings: Journal::open(folder.timings_file())?,
            table,
            events: EventFile::create(&folder.tensorboard(), after)?,
            timing: Timing::default(),
        })
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.evaluations.json(evaluation)?;
        self.table.line(&table::row(evaluation))?;
        self.events.scalars(evaluation.round, &scalars_of_evaluation(evaluation))
    }
}

impl<T: ?Sized> Observer<T> for Recorder {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, seconds } => {
                self.timing = Timing::of_round(round.round + 1, seconds);
                self.rounds.json(round)?;
                self.events.scalars(round.round + 1, &scalars_of_round(round))?;
            }
            Event::Evaluation { evaluation, seconds } => {
                self.timing.evaluate = *seconds;
                self.evaluation(evaluation)?;
            }
            Event::Settled { .. } => {
                self.timing.peak_memory = peak_memory();
                self.timings.json(&self.timing)?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn scalars_of_round(round: &Round) -> Vec<(&'static str, f64)> {
    let mut scalars = vec![("train/loss", round.loss), ("train/gap", round.gap)];
    scalars.extend(round.rho.map(|rho| ("train/rho", rho)));
    if round.solves.samples > 0 {
        let samples = round.solves.samples as f64;
        scalars.push(("solver/steps", round.solves.steps as f64 / samples));
        scalars.push(("solver/residual", round.solves.residual / samples));
        scalars.push(("solver/unconverged", round.solves.unconverged as f64 / samples));
    }
    scalars.extend([("traffic/up", round.traffic.up as f64), ("traffic/down", round.traffic.down as f64)]);
    scalars
}

fn scalars_of_evaluation(evaluation: &Evaluation) -> Vec<(&'static str, f64)> {
    let mut scalars = qualities(&evaluation.local, ["local/accuracy", "local/worst_decile", "local/loss"]);
    if let Some(shared) = &evaluation.shared {
        scalars.extend(qualities(shared, ["shared/accuracy", "shared/worst_decile", "shared/loss"]));
    }
    scalars.extend(evaluation.validation.as_ref().map(|quality| ("validation/accuracy", quality.mean)));
    scalars.extend([("consensus/gap", evaluation.gap), ("consensus/dual_norm", evaluation.dual_norm)]);
    scalars.extend(evaluation.theory.as_ref().map(|theory| ("consensus/lagrangian", theory.lagrangian)));
    scalars
}

fn qualities(quality: &Quality, [accuracy, worst, loss]: [&'static str; 3]) -> Vec<(&'static str, f64)> {
    vec![(accuracy, quality.mean), (worst, quality.worst_decile), (loss, quality.loss)]
}
