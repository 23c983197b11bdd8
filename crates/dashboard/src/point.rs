//! What curves are drawn from: rounds, evaluations and timings without what only a drill-down needs.
use fedeq_core::{Evaluation, Quality, Round};
use serde::Serialize;

use fedeq_run::run::Timing;

/// A round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundPoint {
    /// Rounds that were over.
    round: u64,
    /// How many took part.
    clients: usize,
    loss: f64,
    gap: f64,
    rho: Option<f64>,
    /// Solver steps a sample, where there was anything to solve.
    steps: Option<f64>,
    residual: Option<f64>,
    /// The share of samples that did not converge.
    unconverged: Option<f64>,
    /// Samples that left the numbers.
    not_finite: u64,
    up: u64,
    down: u64,
}

/// An evaluation.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EvaluationPoint {
    round: u64,
    pub(super) local: QualityPoint,
    pub(super) shared: Option<QualityPoint>,
    gap: f64,
    dual_norm: f64,
    untrained: usize,
    up: u64,
    down: u64,
}

/// A [`Quality`] without every client's.
#[derive(Clone, Debug, Serialize)]
pub(super) struct QualityPoint {
    pub(super) accuracy: f64,
    pub(super) worst: f64,
    deviation: f64,
    loss: f64,
}

/// Where the time of a round went, and what it held.
#[derive(Clone, Debug, Serialize)]
pub(super) struct TimingPoint {
    round: u64,
    /// Seconds of training up to here.
    spent: f64,
    train: f64,
    evaluate: f64,
    solve: f64,
    backward: f64,
    update: f64,
    server: f64,
    communicate: f64,
    peak_memory: Option<u64>,
    /// The most that one client's work held.
    client_memory: u64,
}

/// Where the time of all rounds went.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Totals {
    train: f64,
    evaluate: f64,
    solve: f64,
    backward: f64,
    update: f64,
    server: f64,
    communicate: f64,
}

impl Totals {
    pub(super) fn add(&mut self, timing: &Timing) {
        self.train += timing.train;
        self.evaluate += timing.evaluate;
        self.solve += timing.solve;
        self.backward += timing.backward;
        self.update += timing.update;
        self.server += timing.server;
        self.communicate += timing.communicate;
    }
}

impl RoundPoint {
    pub(super) fn of(round: &Round) -> Self {
        let means = round.solves.means();
        let Round { loss, gap, rho, traffic, .. } = round;
        Self {
            round: round.round + 1,
            clients: round.cohort.len(),
            loss: *loss,
            gap: *gap,
            rho: *rho,
            steps: means.map(|[steps, ..]| steps),
            residual: means.map(|[_, residual, _]| residual),
            unconverged: means.map(|[.., unconverged]| unconverged),
            not_finite: round.solves.not_finite,
            up: traffic.up,
            down: traffic.down,
        }
    }

    pub(super) fn round(&self) -> u64 {
        self.round
    }
}

impl EvaluationPoint {
    pub(super) fn of(evaluation: &Evaluation) -> Self {
        let Evaluation { round, local, shared, gap, dual_norm, untrained, traffic, .. } = evaluation;
        Self {
            round: *round,
            local: QualityPoint::of(local),
            shared: shared.as_ref().map(QualityPoint::of),
            gap: *gap,
            dual_norm: *dual_norm,
            untrained: *untrained,
            up: traffic.up,
            down: traffic.down,
        }
    }
}

impl QualityPoint {
    fn of(quality: &Quality) -> Self {
        let Quality { mean, worst_decile, deviation, mean_loss, .. } = *quality;
        Self { accuracy: mean, worst: worst_decile, deviation, loss: mean_loss }
    }
}

impl TimingPoint {
    /// The timing of a round, with which all together have taken so much.
    pub(super) fn of(timing: &Timing, totals: &Totals) -> Self {
        let Timing { round, train, solve, backward, update, server, communicate, evaluate, client_memory, peak_memory } = *timing;
        let client_memory = client_memory.most();
        let spent = totals.train;
        Self { round, spent, train, evaluate, solve, backward, update, server, communicate, peak_memory, client_memory }
    }
}
