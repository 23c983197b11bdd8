//! What is ahead: time and disk, as far as that is known.
use crate::number::{bytes, counted, duration};
use crate::run::{RunFolder, Timing};
use crate::sweep;

use super::metric::Metric;
use super::results::Results;

/// What the runs that are not done yet will take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    /// Runs that are done.
    pub done: usize,
    /// Runs that are not.
    pub ahead: usize,
    /// Seconds of those of which it is known.
    pub seconds: f64,
    /// Bytes of run folders, of those of which it is known.
    pub disk: u64,
    /// Runs of which nothing is known, since no seed of their cell was ever run.
    pub unknown: usize,
}

impl Estimate {
    /// Adds a run: from its own rounds if it has begun, else from other seeds of its cell.
    pub fn add(&mut self, results: &Results, name: &str, cell: &sweep::Cell) {
        let folder = RunFolder::open(&cell.folder).ok();
        if folder.as_ref().is_some_and(|folder| matches!(folder.summary(), Ok(Some(_)))) {
            self.done += 1;
            return;
        }
        self.ahead += 1;
        let begun = folder.and_then(|folder| seconds_left(&folder, cell.experiment.plan.rounds));
        let known = results.sample(name, Metric::Seconds).map(|seconds| seconds.mean);
        match begun.or(known) {
            Some(seconds) => self.seconds += seconds,
            None => self.unknown += 1,
        }
        self.disk += results.cells.get(name).and_then(|result| result.runs.first()).map_or(0, |run| run.disk);
    }

    /// In words.
    pub fn text(&self) -> String {
        let ahead = counted(self.ahead, "run");
        let time = match (self.unknown, self.ahead) {
            (_, 0) => "nothing to do".into(),
            (0, _) => format!("about {}, about {} of disk", duration(self.seconds), bytes(self.disk)),
            (unknown, all) if unknown == all => "time and disk unknown: none of them was ever run here".into(),
            (unknown, _) => {
                let known = format!("about {} and {}", duration(self.seconds), bytes(self.disk));
                format!("{known} for those that were run before, unknown for {unknown}")
            }
        };
        format!("{} done, {ahead} ahead: {time}", self.done)
    }
}

/// From the rounds that are over.
fn seconds_left(folder: &RunFolder, rounds: u64) -> Option<f64> {
    let timings = folder.timings().ok()?;
    let over = timings.len() as f64;
    let seconds: f64 = timings.iter().map(Timing::seconds).sum();
    (over > 0.0).then(|| seconds / over * (rounds as f64 - over).max(0.0))
}
