//! What is ahead: time and disk.
use fedeq_core::Result;

use super::cell::ExperimentCell;
use super::results::{CellResult, Machine, Measured, Results};
use fedeq_run::experiment::EngineSettings;
use fedeq_run::forecast::{Basis, Forecast, Forecaster};
use fedeq_run::number::{bytes, counted, duration};
use fedeq_run::run::{Disk, RunFolder, Timing};
use fedeq_run::statistics::Sample;
use fedeq_run::sweep;

/// What the runs that are not done yet will take.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Runs that are done.
    pub done: usize,
    /// Runs that are not.
    pub ahead: usize,
    /// Seconds that these take.
    pub seconds: f64,
    /// Bytes of their folders, once they are finished.
    pub disk: u64,
    /// Bytes of the largest checkpoint among them.
    pub checkpoint: u64,
    /// Whether seconds are the least that is possible, since kernels and no rounds were measured.
    pub is_least: bool,
    /// Data sets that are not available.
    pub missing: Vec<String>,
}

/// What one seed of a cell takes: by other seeds that this machine ran, else by what is measured or recorded.
pub fn expected(cell: &ExperimentCell, results: &Results, forecaster: &mut Forecaster) -> Result<Forecast> {
    let forecast = forecaster.forecast(&cell.experiment)?;
    let known = results.cells.get(&cell.name).and_then(|result| measured_here(result, &cell.experiment.engine));
    Ok(match known {
        Some(seconds) => Forecast { seconds, basis: Basis::OtherSeeds, ..forecast },
        None => forecast,
    })
}

fn measured_here(result: &CellResult, engine: &EngineSettings) -> Option<f64> {
    let here = Machine::here(engine);
    let runs = || result.runs.iter().filter(|run| run.machine == here);
    let seconds = Sample::of(runs().filter_map(Measured::machine_seconds));
    (seconds.count > 0).then_some(seconds.mean)
}

impl Estimate {
    /// Adds a run that is done.
    pub fn add_done(&mut self) {
        self.done += 1;
    }

    /// Adds a run that is ahead: what is left of it, if it has begun, or what is expected of its cell. `keeps_models` says whether its folder holds them once it is finished.
    pub fn add(&mut self, run: &sweep::SweepCell, expected: &Forecast, keeps_models: bool) {
        self.ahead += 1;
        let folder = RunFolder::open(&run.folder).ok();
        self.seconds += folder.and_then(|folder| seconds_left(&folder, run.experiment.plan.rounds)).unwrap_or(expected.seconds);
        let Disk { finished, checkpoint, .. } = expected.disk;
        self.disk += if keeps_models { finished } else { finished.saturating_sub(checkpoint) };
        self.checkpoint = self.checkpoint.max(checkpoint);
        self.is_least |= expected.basis.is_least();
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
        let about = if self.is_least { "at least" } else { "about" };
        let known = format!("{about} {}, about {} of disk", duration(self.seconds), bytes(self.disk));
        let checkpoint = format!("; a checkpoint of a run under way takes up to {}", bytes(self.checkpoint));
        let missing = match &self.missing[..] {
            [] => String::new(),
            missing => format!(
                "\nnot available: {}; samples of the same shape stood in, and how many a client holds is a guess where clients are people (`fedeq data get` fetches)",
                missing.join(", ")
            ),
        };
        format!("{} done, {ahead} ahead: {known}{checkpoint}{missing}", self.done)
    }
}

/// From the rounds that are over.
fn seconds_left(folder: &RunFolder, rounds: u64) -> Option<f64> {
    let timings = folder.timings().ok()?;
    let over = timings.len() as f64;
    let seconds: f64 = timings.iter().map(Timing::seconds).sum();
    (over > 0.0).then(|| seconds / over * (rounds as f64 - over).max(0.0))
}
