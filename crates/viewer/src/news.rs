//! What is sent of a run to somebody who has been told some of it: everything at first, later what was added.
use std::collections::BTreeMap;

use fedeq_run::run::{Activity, Timing};
use serde::Serialize;

use super::columns::ColumnSlice;
use super::curves::Curves;
use super::run_view::RunView;

/// The most points a journal that a page of one run is told.
const MOST: usize = 2_000;
/// The most that all runs of a page are told together, and the fewest that one is.
const ALL: usize = 24_000;
const FEWEST: usize = 60;

/// How many points a journal are told of each of so many runs: as many as can be told apart.
pub fn points_each(runs: usize) -> usize {
    (ALL / runs.max(1)).clamp(FEWEST, MOST)
}

/// How much of a run somebody has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cursor {
    begun: bool,
    edition: u64,
    /// Every so many points one was told.
    stride: usize,
    rounds: Told,
    evaluations: Told,
    timings: Told,
}

/// How much of a journal somebody has been told.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Told {
    kept: usize,
    seen: u64,
}

/// What has been added to a run since, or all of it.
#[derive(Clone, Debug, Serialize)]
pub struct News {
    /// The run.
    pub run: String,
    /// Whether this replaces everything told before.
    anew: bool,
    rounds: ColumnSlice,
    evaluations: ColumnSlice,
    timings: ColumnSlice,
    /// The last points of curves that are too long to be told point by point; they hold until there are others.
    tail: TailNews,
    totals: Timing,
    activity: Option<Activity>,
    /// Every setting but the seed, when everything is told anew.
    #[serde(skip_serializing_if = "Option::is_none")]
    settings: Option<BTreeMap<String, String>>,
    /// Whether anything was added.
    #[serde(skip)]
    has_grown: bool,
}

/// Where the curves end, each where that is not among the points that were told.
#[derive(Clone, Debug, Serialize)]
struct TailNews {
    rounds: ColumnSlice,
    evaluations: ColumnSlice,
    timings: ColumnSlice,
}

impl News {
    /// What is new about a run for somebody who has been told so much, with at most so many points a journal; moves the cursor.
    pub fn of(run: &str, view: &RunView, points: usize, cursor: &mut Cursor) -> Self {
        let now = Cursor::at(view, points);
        let anew = !cursor.begun || (cursor.edition, cursor.stride) != (now.edition, now.stride);
        let told = if anew { Cursor::default() } else { *cursor };
        *cursor = now;
        let (stride, Curves { rounds, evaluations, timings, totals, .. }) = (now.stride, &view.curves);
        Self {
            run: run.to_owned(),
            anew,
            rounds: rounds.from(told.rounds.kept, stride),
            evaluations: evaluations.from(told.evaluations.kept, stride),
            timings: timings.from(told.timings.kept, stride),
            tail: TailNews { rounds: rounds.tail(stride), evaluations: evaluations.tail(stride), timings: timings.tail(stride) },
            totals: totals.clone(),
            activity: view.activity.clone(),
            settings: view.info.as_ref().filter(|_| anew).map(|info| info.settings.clone()),
            has_grown: anew || told != now,
        }
    }

    /// Who is at work, less the beat that only tells that somebody is.
    pub fn activity(&self) -> Option<Activity> {
        self.activity.clone().map(|activity| Activity { beat: 0, ..activity })
    }

    /// Whether there is nothing in it but who is at work.
    pub fn is_empty(&self) -> bool {
        !self.has_grown
    }
}

impl Cursor {
    fn at(view: &RunView, points: usize) -> Self {
        let Curves { rounds, evaluations, timings, .. } = &view.curves;
        let told = |(kept, seen)| Told { kept, seen };
        let [rounds, evaluations, timings] = [rounds.extent(), evaluations.extent(), timings.extent()].map(told);
        let most = rounds.kept.max(evaluations.kept).max(timings.kept);
        // Powers of two, so that a curve that grows is seldom told anew.
        let stride = most.div_ceil(points).next_power_of_two();
        Self { begun: true, edition: view.edition(), stride, rounds, evaluations, timings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_runs_are_told_with_fewer_points_each() {
        assert_eq!([1, 12, 200, 1000].map(points_each), [2000, 2000, 120, 60]);
    }
}
