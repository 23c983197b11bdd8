//! What curves are drawn from: rounds, evaluations and timings as columns, of which the page reads every one; what only a drill-down needs is not among them.
use std::collections::VecDeque;

use fedeq_core::{DistanceSummary, Evaluation, Result, Round};
use fedeq_run::run::{Tail, Timing};

use super::columns::Columns;
use super::evaluation_line::{EvaluationLine, QualityLine, QualityPoint};

const ROUND: [&str; 19] = [
    "round",
    "loss",
    "gap",
    "epsilon",
    "steps",
    "residual",
    "unconverged",
    "warm",
    "not_finite",
    "up",
    "down",
    "norm",
    "norm_largest",
    "distance",
    "distance_largest",
    "outliers",
    "clipped",
    "left_out",
    "bound",
];

const EVALUATION: [&str; 14] = [
    "round",
    "local",
    "local_worst",
    "local_loss",
    "shared",
    "shared_worst",
    "shared_loss",
    "gap",
    "dual_norm",
    "up",
    "down",
    "lagrangian",
    "stationarity",
    "head_gradient",
];

const TIMING: [&str; 9] =
    ["round", "spent", "train", "evaluate", "memory", "client_memory", "gpu_memory", "gpu_peak", "gpu_work"];

/// What the journals of a run say, as curves.
pub struct Curves {
    pub(crate) rounds: Columns<{ ROUND.len() }>,
    pub(crate) evaluations: Columns<{ EVALUATION.len() }>,
    pub(crate) timings: Columns<{ TIMING.len() }>,
    /// All timings together.
    pub(crate) totals: Timing,
    /// How clients fared when they were last evaluated.
    pub(crate) last: Option<LastEvaluation>,
    /// How often a curve was thinned out.
    pub(crate) thinned: u64,
    /// Seconds of the last rounds.
    last_seconds: VecDeque<f64>,
}

/// What is kept of the last evaluation.
pub(crate) struct LastEvaluation {
    pub(crate) round: u64,
    pub(crate) local: Option<QualityPoint>,
    pub(crate) shared: Option<QualityPoint>,
    /// Whether there is a shared model, told of or not.
    pub(crate) shares: bool,
    pub(crate) sent: u64,
}

impl LastEvaluation {
    pub(crate) fn of(evaluation: &Evaluation) -> Self {
        let Evaluation { round, local, shared, traffic, .. } = evaluation;
        let (local, sent, shares) = (QualityPoint::of(local), traffic.total(), shared.is_some());
        Self { round: *round, local, shared: shared.as_ref().and_then(QualityPoint::of), shares, sent }
    }

    fn of_line(line: &EvaluationLine) -> Self {
        let (local, shared) = (line.local.point(), line.shared.as_ref().and_then(QualityLine::point));
        Self { round: line.round, local, shared, shares: line.shared.is_some(), sent: line.traffic.total() }
    }
}

impl Default for Curves {
    fn default() -> Self {
        Self {
            rounds: Columns::new(ROUND),
            evaluations: Columns::new(EVALUATION),
            timings: Columns::new(TIMING),
            totals: Timing::default(),
            last: None,
            thinned: 0,
            last_seconds: VecDeque::new(),
        }
    }
}

/// The rounds by which the time that is left is estimated.
const LAST: usize = 10;

impl Curves {
    /// Reads what was added to the journals.
    pub(crate) fn go_on(&mut self, [rounds, evaluations, timings]: &mut [Tail; 3]) -> Result<()> {
        rounds.added(|round: Round| self.thinned += u64::from(self.rounds.push(of_round(&round))))?;
        evaluations.added(|line: EvaluationLine| self.evaluate(&line))?;
        timings.added(|timing: Timing| self.time(&timing))
    }

    fn evaluate(&mut self, line: &EvaluationLine) {
        let last = LastEvaluation::of_line(line);
        self.thinned += u64::from(self.evaluations.push(of_evaluation(line, &last)));
        self.last = Some(last);
    }

    fn time(&mut self, timing: &Timing) {
        self.totals.add(timing);
        self.last_seconds.push_back(timing.seconds());
        if self.last_seconds.len() > LAST {
            self.last_seconds.pop_front();
        }
        self.thinned += u64::from(self.timings.push(of_timing(timing, self.totals.train)));
    }

    /// Rounds that are over.
    pub(crate) fn round(&self) -> u64 {
        self.rounds.last_round()
    }

    /// Seconds a round in the last ones, once there are any.
    pub(crate) fn seconds_a_round(&self) -> Option<f64> {
        let last = &self.last_seconds;
        (!last.is_empty()).then(|| last.iter().sum::<f64>() / last.len() as f64)
    }
}

fn of_round(round: &Round) -> [Option<f64>; ROUND.len()] {
    let means = round.solves.means();
    let apart = round.distance_summary();
    let far = |part: fn(&DistanceSummary) -> f64| apart.as_ref().map(part);
    [
        Some((round.round + 1) as f64),
        round.training_loss(),
        round.cohort_gap(),
        round.privacy.map(|privacy| privacy.epsilon),
        means.map(|[steps, ..]| steps),
        means.map(|[_, residual, _]| residual),
        means.map(|[.., unconverged]| unconverged),
        round.solves.warm_share(),
        means.map(|_| round.solves.not_finite as f64),
        Some(round.traffic.up as f64),
        Some(round.traffic.down as f64),
        far(|apart| apart.norm),
        far(|apart| apart.largest_norm),
        far(|apart| apart.distance),
        far(|apart| apart.largest_distance),
        far(|apart| apart.outliers as f64),
        far(|apart| apart.clipped as f64),
        far(|apart| apart.left_out as f64),
        round.bound,
    ]
}

/// A score that no client tells is no number.
fn of_evaluation(line: &EvaluationLine, last: &LastEvaluation) -> [Option<f64>; EVALUATION.len()] {
    let of = |point: &Option<QualityPoint>, part: fn(&QualityPoint) -> f64| point.as_ref().map(part);
    let (local, shared, theory) = (&last.local, &last.shared, line.theory.as_ref());
    [
        Some(line.round as f64),
        of(local, |point| point.accuracy),
        of(local, |point| point.worst),
        of(local, |point| point.loss),
        of(shared, |point| point.accuracy),
        of(shared, |point| point.worst),
        of(shared, |point| point.loss),
        Some(line.gap),
        Some(line.dual_norm),
        Some(line.traffic.up as f64),
        Some(line.traffic.down as f64),
        theory.map(|sums| sums.lagrangian),
        theory.map(|sums| sums.stationarity),
        theory.map(|sums| sums.head_gradient),
    ]
}

/// The timing of a round, with which training has taken so many seconds.
fn of_timing(timing: &Timing, spent: f64) -> [Option<f64>; TIMING.len()] {
    let device = timing.device;
    let client_memory = timing.client_memory.most();
    [
        Some(timing.round as f64),
        Some(spent),
        Some(timing.train),
        (timing.evaluate > 0.0).then_some(timing.evaluate),
        timing.peak_memory.map(|bytes| bytes as f64),
        (client_memory > 0).then_some(client_memory as f64),
        device.map(|used| used.memory as f64),
        device.map(|used| used.peak_memory as f64),
        device.map(|used| used.utilisation),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_reads_every_column_that_it_is_told() {
        let script = &*crate::page::SCRIPT;
        // Of the round alone it always knows where it is.
        for name in ROUND.iter().chain(&EVALUATION).chain(&TIMING).filter(|name| **name != "round") {
            assert!(script.contains(&format!("\"{name}\"")), "`{name}` is sent for nothing");
        }
    }
}
