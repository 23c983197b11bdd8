//! What curves are drawn from: rounds, evaluations and timings without what only a drill-down needs.
use fedeq_core::{DistanceSummary, Evaluation, Quality, Round};
use serde::Serialize;

use fedeq_run::run::Timing;

/// A round.
#[derive(Clone, Debug, Serialize)]
pub(super) struct RoundPoint {
    /// Rounds that were over.
    round: u64,
    /// How many took part.
    clients: usize,
    /// Where anybody trained.
    loss: Option<f64>,
    gap: Option<f64>,
    rho: Option<f64>,
    /// What has been spent of the clients' privacy, where it is protected.
    epsilon: Option<f64>,
    /// Solver steps a sample, where there was anything to solve.
    steps: Option<f64>,
    residual: Option<f64>,
    /// The share of samples that did not converge.
    unconverged: Option<f64>,
    /// Samples whose solves became NaN or infinite.
    not_finite: u64,
    up: u64,
    down: u64,
    /// How far updates were apart, where that is noted.
    apart: Option<DistanceSummary>,
    /// The bound on changes, where they are clipped.
    bound: Option<f64>,
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
    #[serde(flatten)]
    timing: Timing,
    /// Seconds of training up to here.
    spent: f64,
    /// The most that one client's work held.
    most_client_memory: u64,
}

impl RoundPoint {
    pub(super) fn of(round: &Round) -> Self {
        let means = round.solves.means();
        let Round { rho, traffic, .. } = round;
        Self {
            round: round.round + 1,
            clients: round.cohort.len(),
            loss: round.training_loss(),
            gap: round.cohort_gap(),
            rho: *rho,
            epsilon: round.privacy.map(|privacy| privacy.epsilon),
            steps: means.map(|[steps, ..]| steps),
            residual: means.map(|[_, residual, _]| residual),
            unconverged: means.map(|[.., unconverged]| unconverged),
            not_finite: round.solves.not_finite,
            up: traffic.up,
            down: traffic.down,
            apart: round.distance_summary(),
            bound: round.bound,
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
    pub(super) fn of(timing: &Timing, totals: &Timing) -> Self {
        Self { timing: timing.clone(), spent: totals.train, most_client_memory: timing.client_memory.most() }
    }
}
