//! What is written down as it happens.
use std::ops::ControlFlow;

use fedeq_core::{Evaluation, Event, Observer, Quality, Result, Round};

use super::folder::RunFolder;
use super::gate::Gate;
use super::journal::Journal;
use super::table;
use super::tensorboard::EventFile;
use super::timing::{Timing, peak_memory};

/// Writes rounds, evaluations, timings, the table and TensorBoard's files.
pub(super) struct Recorder<'a> {
    /// Knows how long the run was paused, which is no time of its work.
    gate: &'a Gate,
    rounds: Journal,
    evaluations: Journal,
    timings: Journal,
    table: Journal,
    events: EventFile,
    timing: Timing,
    /// The round that an evaluation follows.
    last: Round,
}

impl<'a> Recorder<'a> {
    /// Goes on after so many rounds. The journals have been cut back already.
    pub(super) fn open(folder: &RunFolder, after: u64, gate: &'a Gate) -> Result<Self> {
        let mut table = Journal::open(folder.table_file())?;
        if table.is_empty()? {
            table.line(table::HEADING)?;
        }
        Ok(Self {
            gate,
            rounds: Journal::open(folder.rounds_file())?,
            evaluations: Journal::open(folder.evaluations_file())?,
            timings: Journal::open(folder.timings_file())?,
            table,
            events: EventFile::create(&folder.tensorboard(), after)?,
            timing: Timing::default(),
            last: Round::default(),
        })
    }

    fn evaluation(&mut self, evaluation: &Evaluation) -> Result<()> {
        self.evaluations.json(evaluation)?;
        self.table.line(&table::row(evaluation, &self.last))?;
        self.events.scalars(evaluation.round, &scalars_of_evaluation(evaluation))
    }
}

impl<T: ?Sized> Observer<T> for Recorder<'_> {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, seconds } => {
                self.timing = Timing::of_round(round.round + 1, seconds);
                self.timing.train -= self.gate.take_waited();
                self.rounds.json(round)?;
                self.events.scalars(round.round + 1, &scalars_of_round(round))?;
                self.last = (*round).clone();
            }
            Event::Evaluation { evaluation, seconds } => {
                self.timing.evaluate = seconds - self.gate.take_waited();
                self.evaluation(evaluation)?;
            }
            Event::Settled { .. } => {
                self.timing.peak_memory = peak_memory();
                self.timings.json(&self.timing)?;
                self.events.scalars(self.timing.round, &scalars_of_timing(&self.timing))?;
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn scalars_of_round(round: &Round) -> Vec<(&'static str, f64)> {
    let mut scalars = vec![("train/loss", round.loss), ("train/gap", round.gap)];
    scalars.extend(round.rho.map(|rho| ("train/rho", rho)));
    if let Some([steps, residual, unconverged]) = round.solves.means() {
        scalars.extend([("solver/steps", steps), ("solver/residual", residual), ("solver/unconverged", unconverged)]);
        scalars.extend(round.solves.warm_share().map(|share| ("solver/warm", share)));
    }
    if let Some(last) = round.arrivals.last() {
        let sum: u64 = round.arrivals.iter().map(|arrival| arrival.staleness).sum();
        scalars.push(("asynchronous/time", last.time as f64));
        scalars.push(("asynchronous/staleness", sum as f64 / round.arrivals.len() as f64));
    }
    scalars.extend([("traffic/up", round.traffic.up as f64), ("traffic/down", round.traffic.down as f64)]);
    scalars
}

fn scalars_of_evaluation(evaluation: &Evaluation) -> Vec<(&'static str, f64)> {
    let mut scalars: Vec<(&str, f64)> = LOCAL.into_iter().zip(qualities(&evaluation.local)).collect();
    if let Some(shared) = &evaluation.shared {
        scalars.extend(SHARED.into_iter().zip(qualities(shared)));
    }
    scalars.extend(evaluation.validation.as_ref().map(|quality| ("validation/accuracy", quality.mean)));
    scalars.extend([("consensus/gap", evaluation.gap), ("consensus/dual_norm", evaluation.dual_norm)]);
    if let Some(theory) = &evaluation.theory {
        scalars.push(("consensus/lagrangian", theory.lagrangian));
        scalars.push(("consensus/stationarity", theory.stationarity));
        scalars.push(("consensus/head_gradient", theory.head_gradient));
    }
    if let Some((found, shares)) = evaluation.fixed_points.as_ref().and_then(|found| Some((found, found.shares()?))) {
        scalars.extend(FIXED_POINTS.into_iter().zip(shares));
        scalars.push(("fixed_points/distance", found.distance));
        scalars.extend(found.mean_radius().map(|mean| ("fixed_points/spectral_radius", mean)));
        scalars.push(("fixed_points/spectral_radius_largest", found.largest_radius));
    }
    scalars
}

const FIXED_POINTS: [&str; 4] =
    ["fixed_points/several", "fixed_points/answers_differ", "fixed_points/unsettled", "fixed_points/unstable"];

const LOCAL: [&str; 6] =
    ["local/accuracy", "local/accuracy_weighted", "local/worst_decile", "local/deviation", "local/loss", "local/loss_weighted"];

const SHARED: [&str; 6] = [
    "shared/accuracy",
    "shared/accuracy_weighted",
    "shared/worst_decile",
    "shared/deviation",
    "shared/loss",
    "shared/loss_weighted",
];

fn qualities(quality: &Quality) -> [f64; 6] {
    [quality.mean, quality.weighted, quality.worst_decile, quality.deviation, quality.mean_loss, quality.loss]
}

fn scalars_of_timing(timing: &Timing) -> Vec<(&'static str, f64)> {
    let Timing { train, solve, backward, update, server, communicate, evaluate, peak_memory, .. } = timing;
    let mut scalars = vec![
        ("seconds/train", *train),
        ("seconds/solve", *solve),
        ("seconds/backward", *backward),
        ("seconds/update", *update),
        ("seconds/server", *server),
        ("seconds/communicate", *communicate),
        ("seconds/evaluate", *evaluate),
    ];
    scalars.extend(peak_memory.map(|bytes| ("memory/peak", bytes as f64)));
    scalars
}
