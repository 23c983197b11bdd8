//! The numbers that tables and figures show.
use fedeq_core::{Evaluation, Quality, Round, SolveTally, TheorySums, View};
use serde::{Deserialize, Serialize};

use fedeq_run::run::{RunSummary, Timing};

/// A number that a run gives, at its end or as it develops.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Rounds that were over.
    Round,
    /// By the model each method names as its own, mean over clients, in percent. Not the same model of every method, so no comparison is like for like by it.
    Accuracy,
    /// The same, clients counting by their samples.
    Weighted,
    /// The same for the worst tenth of the clients.
    WorstTenth,
    /// In the [local view](View::Local), mean over clients, in percent.
    Local,
    /// The same, clients counting by their samples.
    LocalWeighted,
    /// The same for the worst tenth of the clients.
    LocalWorstTenth,
    /// In the [shared view](View::Shared), mean over clients, in percent; of a method that shares nothing, its one model.
    Shared,
    /// The same, clients counting by their samples.
    SharedWeighted,
    /// The same for the worst tenth of the clients.
    SharedWorstTenth,
    /// Unseen clients, in the local view, mean over them, in percent.
    Unseen,
    /// The same in the shared view.
    UnseenShared,
    /// The loss of the last round's training.
    TrainingLoss,
    /// Mean of `||theta_i - theta||`.
    Gap,
    /// Mean of `||lambda_i||`.
    DualNorm,
    /// The augmented Lagrangian, summed over clients.
    Lagrangian,
    /// Mean of `||grad_theta L_i + lambda_i||`.
    Stationarity,
    /// Mean of `||grad_w L_i||`.
    HeadGradient,
    /// Cell evaluations a solve.
    SolverSteps,
    /// Relative residual a solve.
    Residual,
    /// Solves that did not meet their tolerance, in percent.
    Unconverged,
    /// Solves that started where an earlier one of the same sample ended, in percent.
    Warm,
    /// Shared parameters.
    SharedParameters,
    /// Sent in both directions so far.
    Megabytes,
    /// The most memory one client's local work held, in megabytes.
    ClientMemory,
    /// Milliseconds of forward pass, backward pass and update a batch.
    BatchTime,
    /// Seconds of training and evaluation.
    Seconds,
    /// Simulated time, in units of the fastest client's work, where clients are asynchronous.
    SimulatedTime,
    /// What was spent of the clients' privacy, where it is protected.
    Epsilon,
}

/// What a run noted between two evaluations, or from beginning to end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span<'a> {
    pub(super) summary: &'a RunSummary,
    /// The evaluation at its end.
    pub(super) evaluation: &'a Evaluation,
    pub(super) rounds: &'a [Round],
    pub(super) timings: &'a [Timing],
}

impl Metric {
    /// Every metric.
    pub const ALL: [Self; 29] = [
        Self::Round,
        Self::Accuracy,
        Self::Weighted,
        Self::WorstTenth,
        Self::Local,
        Self::LocalWeighted,
        Self::LocalWorstTenth,
        Self::Shared,
        Self::SharedWeighted,
        Self::SharedWorstTenth,
        Self::Unseen,
        Self::UnseenShared,
        Self::TrainingLoss,
        Self::Gap,
        Self::DualNorm,
        Self::Lagrangian,
        Self::Stationarity,
        Self::HeadGradient,
        Self::SolverSteps,
        Self::Residual,
        Self::Unconverged,
        Self::Warm,
        Self::SharedParameters,
        Self::Megabytes,
        Self::ClientMemory,
        Self::BatchTime,
        Self::Seconds,
        Self::SimulatedTime,
        Self::Epsilon,
    ];

    /// The metric of that name, as a specification writes it.
    pub(super) fn named(name: &str) -> Option<Self> {
        serde_json::from_value(name.into()).ok()
    }

    /// What it is, with its unit.
    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Round => "rounds",
            Self::Accuracy => "accuracy as the paper evaluates each method, %",
            Self::Weighted => "accuracy by samples, as the paper evaluates each method, %",
            Self::WorstTenth => "worst tenth, as the paper evaluates each method, %",
            Self::Local => "accuracy, local, %",
            Self::LocalWeighted => "accuracy by samples, local, %",
            Self::LocalWorstTenth => "worst tenth, local, %",
            Self::Shared => "accuracy, shared, %",
            Self::SharedWeighted => "accuracy by samples, shared, %",
            Self::SharedWorstTenth => "worst tenth, shared, %",
            Self::Unseen => "accuracy of unseen clients, local, %",
            Self::UnseenShared => "accuracy of unseen clients, shared, %",
            Self::TrainingLoss => "training loss",
            Self::Gap => "consensus gap",
            Self::DualNorm => "norm of duals",
            Self::Lagrangian => "augmented Lagrangian",
            Self::Stationarity => "stationarity",
            Self::HeadGradient => "gradient of heads",
            Self::SolverSteps => "steps a solve",
            Self::Residual => "relative residual",
            Self::Unconverged => "solves unconverged, %",
            Self::Warm => "solves started warm, %",
            Self::SharedParameters => "shared parameters",
            Self::Megabytes => "sent, MB",
            Self::ClientMemory => "client memory, MB",
            Self::BatchTime => "time a batch, ms",
            Self::Seconds => "seconds",
            Self::SimulatedTime => "simulated time",
            Self::Epsilon => "epsilon",
        }
    }

    /// Which of two values is the better one; nothing where that cannot be said.
    pub(super) fn preference(self) -> Option<Preference> {
        match self {
            accuracy if accuracy.is_accuracy() => Some(Preference::Higher),
            Self::ClientMemory | Self::BatchTime | Self::SharedParameters | Self::Megabytes | Self::SolverSteps => {
                Some(Preference::Lower)
            }
            _ => None,
        }
    }

    /// Whether it is an accuracy, of whatever model and clients.
    pub(super) fn is_accuracy(self) -> bool {
        let ways = [Self::Accuracy, Self::Weighted, Self::WorstTenth, Self::Unseen, Self::UnseenShared];
        let local = [Self::Local, Self::LocalWeighted, Self::LocalWorstTenth];
        let shared = [Self::Shared, Self::SharedWeighted, Self::SharedWorstTenth];
        [&ways[..], &local, &shared].concat().contains(&self)
    }

    /// Whether it is by the model that each method names as its own, which is not the same of every method.
    pub(super) fn depends_on_method(self) -> bool {
        matches!(self, Self::Accuracy | Self::Weighted | Self::WorstTenth)
    }

    /// Digits after the point that mean something.
    pub(super) fn digits(self) -> Digits {
        match self {
            Self::Round | Self::SharedParameters => Digits::Whole,
            Self::TrainingLoss | Self::Gap | Self::DualNorm | Self::Lagrangian | Self::Stationarity | Self::HeadGradient => {
                Digits::Significant
            }
            Self::Residual => Digits::Significant,
            _ => Digits::One,
        }
    }

    /// What a span says; nothing where it does not.
    pub(super) fn read(self, span: &Span<'_>) -> Option<f64> {
        let Span { summary, evaluation, rounds, timings } = span;
        let percent = |view: View, part: fn(&Quality) -> f64| Some(100.0 * part(evaluation.quality(view)));
        match self {
            Self::Round => Some(evaluation.round as f64),
            Self::Accuracy => percent(summary.headline, |quality| quality.mean),
            Self::Weighted => percent(summary.headline, |quality| quality.weighted),
            Self::WorstTenth => percent(summary.headline, |quality| quality.worst_decile),
            Self::Local => percent(View::Local, |quality| quality.mean),
            Self::LocalWeighted => percent(View::Local, |quality| quality.weighted),
            Self::LocalWorstTenth => percent(View::Local, |quality| quality.worst_decile),
            Self::Shared => percent(View::Shared, |quality| quality.mean),
            Self::SharedWeighted => percent(View::Shared, |quality| quality.weighted),
            Self::SharedWorstTenth => percent(View::Shared, |quality| quality.worst_decile),
            Self::Unseen => summary.unseen.as_ref().map(|unseen| 100.0 * unseen.local.mean),
            Self::UnseenShared => {
                summary.unseen.as_ref().map(|unseen| 100.0 * unseen.shared.as_ref().unwrap_or(&unseen.local).mean)
            }
            Self::TrainingLoss => rounds.iter().rev().find_map(Round::training_loss),
            Self::Gap => Some(evaluation.gap),
            Self::DualNorm => Some(evaluation.dual_norm),
            Self::Lagrangian => theory(evaluation, |theory| theory.lagrangian),
            Self::Stationarity => theory(evaluation, |theory| theory.stationarity),
            Self::HeadGradient => theory(evaluation, |theory| theory.head_gradient),
            Self::SolverSteps => solves(rounds).means().map(|[steps, _, _]| steps),
            Self::Residual => solves(rounds).means().map(|[_, residual, _]| residual),
            Self::Unconverged => solves(rounds).means().map(|[_, _, unconverged]| 100.0 * unconverged),
            Self::Warm => solves(rounds).warm_share().map(|share| 100.0 * share),
            Self::SharedParameters => Some(summary.shared_parameters as f64),
            Self::Megabytes => Some(evaluation.traffic.total() as f64 / 1e6),
            Self::ClientMemory => client_memory(timings),
            Self::BatchTime => batch_time(rounds, timings),
            Self::Seconds => Some(timings.iter().map(Timing::seconds).sum()),
            Self::SimulatedTime => rounds.last().and_then(|round| round.arrivals.last()).map(|arrival| arrival.time as f64 / 1e3),
            Self::Epsilon => rounds.last().and_then(|round| round.privacy).map(|privacy| privacy.epsilon),
        }
    }
}

/// Which of two values is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    Higher,
    Lower,
}

/// How exactly a number is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Digits {
    Whole,
    One,
    Significant,
}

fn theory(evaluation: &Evaluation, part: fn(&TheorySums) -> f64) -> Option<f64> {
    evaluation.theory.as_ref().map(part)
}

fn solves(rounds: &[Round]) -> SolveTally {
    rounds.iter().fold(SolveTally::default(), |sum, round| sum.plus(&round.solves))
}

fn client_memory(timings: &[Timing]) -> Option<f64> {
    let most = timings.iter().map(|timing| timing.client_memory.most());
    most.max().filter(|bytes| *bytes > 0).map(|bytes| bytes as f64 / 1e6)
}

fn batch_time(rounds: &[Round], timings: &[Timing]) -> Option<f64> {
    let batches: u64 = rounds.iter().map(|round| round.steps).sum();
    let seconds: f64 = timings.iter().map(|timing| timing.solve + timing.backward + timing.update).sum();
    (batches > 0).then(|| 1e3 * seconds / batches as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_known_by_its_written_name() {
        let name = |metric: Metric| serde_json::to_value(metric).expect("a name");
        assert!(Metric::ALL.iter().all(|&metric| Metric::named(name(metric).as_str().expect("text")) == Some(metric)));
        assert_eq!(Metric::named("method"), None);
    }
}
