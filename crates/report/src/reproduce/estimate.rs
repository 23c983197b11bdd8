//! What is ahead: time and disk.
use fedeq_core::Result;

use super::cell::ExperimentCell;
use super::metric::Metric;
use super::results::{CellResult, Machine, Results};
use fedeq_run::experiment::EngineSettings;
use fedeq_run::forecast::{Forecast, Forecaster};
use fedeq_run::number::{bytes, counted, duration};
use fedeq_run::run::{RunFolder, Timing};
use fedeq_run::statistics::Sample;
use fedeq_run::sweep;

/// What the runs that are not done yet will take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Runs that are done.
    pub done: usize,
    /// Runs that are not.
    pub ahead: usize,
    /// Seconds that these take, as far as it is known.
    pub seconds: f64,
    /// Runs of which nobody knows how long they take.
    pub unknown: usize,
    /// Bytes of their folders, once they are finished.
    pub disk: u64,
    /// Data sets that are not available.
    pub missing: Vec<String>,
}

/// What one seed of a cell takes: by other seeds that this machine ran, else by a batch that is measured.
pub fn expected(cell: &ExperimentCell, results: &Results, forecaster: &mut Forecaster) -> Result<Forecast> {
    match results.cells.get(&cell.name).and_then(|result| measured_here(result, &cell.experiment.engine)) {
        Some(known) => Ok(known),
        None => forecaster.forecast(&cell.experiment),
    }
}

fn measured_here(result: &CellResult, engine: &EngineSettings) -> Option<Forecast> {
    let here = Machine::here(engine);
    let runs = || result.runs.iter().filter(|run| run.machine == here);
    let seconds = Sample::of(runs().filter_map(|run| run.metrics.get(&Metric::Seconds).copied()));
    let disk = runs().map(|run| run.disk).max()?;
    (seconds.count > 0).then_some(Forecast { seconds: Some(seconds.mean), disk, is_stand_in: false })
}

impl Estimate {
    /// Adds a run: what is left of it, if it has begun, or what is expected of its cell.
    pub fn add(&mut self, run: &sweep::SweepCell, expected: &Forecast) {
        let folder = RunFolder::open(&run.folder).ok();
        if folder.as_ref().is_some_and(|folder| matches!(folder.summary(), Ok(Some(_)))) {
            self.done += 1;
            return;
        }
        self.ahead += 1;
        let begun = folder.and_then(|folder| seconds_left(&folder, run.experiment.plan.rounds));
        match begun.or(expected.seconds) {
            Some(seconds) => self.seconds += seconds,
            None => self.unknown += 1,
        }
        self.disk += expected.disk;
        let name = run.experiment.data.source.name().to_owned();
        if expected.is_stand_in && !self.missing.contains(&name) {
            self.missing.push(name);
        }
    }

    /// In words.
    pub fn text(&self) -> String {
        let ahead = counted(self.ahead, "run");
        if self.ahead == 0 {
            return format!("{} done, {ahead} ahead: nothing to do", self.done);
        }
        let time = match self.unknown {
            0 => format!("about {}", duration(self.seconds)),
            unknown if unknown == self.ahead => "for an unknown time (a first run on this GPU will tell)".into(),
            unknown => format!("about {} and an unknown time for {unknown} of them", duration(self.seconds)),
        };
        let known = format!("{time}, about {} of disk", bytes(self.disk));
        let missing = match &self.missing[..] {
            [] => String::new(),
            missing => format!(
                "\nnot available: {}; samples of the same shape stood in, and how many a client holds is a guess where clients are people (`fedeq data get` fetches)",
                missing.join(", ")
            ),
        };
        format!("{} done, {ahead} ahead: {known}{missing}", self.done)
    }
}

/// From the rounds that are over.
fn seconds_left(folder: &RunFolder, rounds: u64) -> Option<f64> {
    let timings = folder.timings().ok()?;
    let over = timings.len() as f64;
    let seconds: f64 = timings.iter().map(Timing::seconds).sum();
    (over > 0.0).then(|| seconds / over * (rounds as f64 - over).max(0.0))
}
