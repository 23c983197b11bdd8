//! What is reported of a federation: sums and spreads over clients.
use serde::{Deserialize, Serialize};

use crate::acceptance::Dropped;
use crate::aggregation::{Handled, Treatment, median, outliers};
use crate::algorithm::{Update, View};
use crate::asynchronous::Arrival;
use crate::disclosure::Disclosure;
use crate::fixed_points::FixedPoints;
use crate::message::Scores;
use crate::patience::StoodStill;
use crate::privacy::PrivacySpent;
use crate::stats::{Score, SolveTally, TrainStats};
use crate::transport::Traffic;

/// How the clients' models do, after some rounds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Rounds that were over.
    pub round: u64,
    /// With `theta_i` and `w_i`.
    pub local: Quality,
    /// With `theta` and `w_i`, where something is shared.
    pub shared: Option<Quality>,
    /// On what clients set aside for tuning, by the method's default model.
    pub validation: Option<Quality>,
    /// Clients that have not trained yet, and so are evaluated by their first model.
    pub untrained: usize,
    /// Clients that round their scores.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rounded: usize,
    /// Mean of `||theta_i - theta||` over clients that have trained and tell it.
    pub gap: f64,
    /// Mean of `||lambda_i||` over clients that have trained and tell it.
    pub dual_norm: f64,
    /// What the theory wants to know, if asked for.
    pub theory: Option<TheorySums>,
    /// What the solves of some test samples end in, if that is watched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_points: Option<FixedPoints>,
    /// Bytes sent so far.
    pub traffic: Traffic,
    /// Clients whose replies do not count, and why: in the lists of clients they stand like those without test data.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// That training ends with the next round, since validation accuracy stands still.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stood_still: Option<StoodStill>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Accuracy and loss, both ways of averaging, and the spread.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Quality {
    /// The share of all predictions that is right: clients count by their number of samples.
    pub weighted: f64,
    /// The mean of the clients' accuracies: clients count the same.
    pub mean: f64,
    /// The standard deviation of the clients' accuracies.
    pub deviation: f64,
    /// The mean accuracy of the worst tenth of clients (at least one).
    pub worst_decile: f64,
    /// The loss, clients counting by their number of samples.
    pub loss: f64,
    /// The mean of the clients' losses: clients count the same.
    #[serde(default)]
    pub mean_loss: f64,
    /// Every client's accuracy, in order; nothing for a client without test data.
    pub clients: Vec<Option<f64>>,
}

/// Sums of the clients' [`Theory`](crate::Theory).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TheorySums {
    /// The augmented Lagrangian: the sum over clients.
    pub lagrangian: f64,
    /// Mean of `||grad_theta L_i + lambda_i||`.
    pub stationarity: f64,
    /// Mean of `||grad_w L_i||`.
    pub head_gradient: f64,
}

impl Evaluation {
    /// The quality of one of the two models of every client; where nothing is shared, there is only one.
    pub fn quality(&self, view: View) -> &Quality {
        match (view, &self.shared) {
            (View::Shared, Some(shared)) => shared,
            _ => &self.local,
        }
    }

    /// Puts the clients' scores together, in their order; there are none of those who were dropped.
    pub(crate) fn of(round: u64, clients: &[Option<Scores>], dropped: Vec<Dropped>, traffic: Traffic) -> Self {
        let of = |score: &dyn Fn(&Scores) -> Option<Score>| -> Vec<Score> {
            clients.iter().map(|client| client.as_ref().and_then(score).unwrap_or_default()).collect()
        };
        let scores: Vec<&Scores> = clients.iter().flatten().collect();
        let trained: Vec<&Scores> = scores.iter().copied().filter(|scores| scores.participations > 0).collect();
        let told: Vec<&Scores> = trained.iter().copied().filter(|scores| scores.disclosure.tells()).collect();
        let is_shared = scores.iter().all(|scores| scores.shared.is_some());
        let validation = of(&|scores| scores.validation);
        Self {
            round,
            local: Quality::of(&of(&|scores| Some(scores.local))),
            shared: is_shared.then(|| Quality::of(&of(&|scores| scores.shared))),
            validation: validation.iter().any(|score| score.predictions > 0).then(|| Quality::of(&validation)),
            untrained: scores.len() - trained.len(),
            rounded: scores.iter().filter(|scores| scores.disclosure == Disclosure::Coarse).count(),
            gap: mean(told.iter().map(|scores| scores.gap)),
            dual_norm: mean(told.iter().map(|scores| scores.dual_norm)),
            theory: TheorySums::of(&scores),
            fixed_points: scores.iter().filter_map(|scores| scores.fixed_points.clone()).reduce(|sum, each| sum.plus(&each)),
            traffic,
            dropped,
            stood_still: None,
        }
    }
}

impl Quality {
    /// Itself, unless no client tells its scores or has any: then its numbers are 0 and mean nothing.
    pub fn known(&self) -> Option<&Self> {
        let is_unknown = !self.clients.is_empty() && self.clients.iter().all(Option::is_none);
        (!is_unknown).then_some(self)
    }

    /// The quality of clients' scores.
    pub fn of(scores: &[Score]) -> Self {
        let total = scores.iter().fold(Score::default(), |sum, score| sum.plus(*score));
        let clients: Vec<Option<f64>> = scores.iter().map(Score::accuracy).collect();
        let mut known: Vec<f64> = clients.iter().flatten().copied().collect();
        known.sort_by(f64::total_cmp);
        let average = mean(known.iter().copied());
        let tenth = known.len().div_ceil(10);
        Self {
            weighted: total.accuracy().unwrap_or_default(),
            mean: average,
            deviation: mean(known.iter().map(|accuracy| (accuracy - average).powi(2))).sqrt(),
            worst_decile: mean(known.iter().take(tenth).copied()),
            loss: total.mean_loss().unwrap_or_default(),
            mean_loss: mean(scores.iter().filter_map(Score::mean_loss)),
            clients,
        }
    }
}

impl TheorySums {
    fn of(scores: &[&Scores]) -> Option<Self> {
        let told = |scores: &&Scores| scores.theory.clone().filter(|_| scores.disclosure.tells());
        let all: Vec<_> = scores.iter().map(told).collect::<Option<_>>()?;
        Some(Self {
            lagrangian: all.iter().map(|theory| theory.lagrangian).sum(),
            stationarity: mean(all.iter().map(|theory| theory.stationarity)),
            head_gradient: mean(all.iter().map(|theory| theory.head_gradient)),
        })
    }
}

/// What a round of training took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Which one, from 0.
    pub round: u64,
    /// Who took part.
    pub cohort: Vec<usize>,
    /// The mean of the clients' last training losses; 0 where [no client](Self::training_loss) trained.
    pub loss: f64,
    /// Mean of `||theta_i - theta||` over the cohort.
    pub gap: f64,
    /// The penalty in force, where the method has one.
    pub rho: Option<f64>,
    /// What the equilibrium solves took.
    pub solves: SolveTally,
    /// Gradient steps of all clients.
    pub steps: u64,
    /// Bytes sent in this round.
    #[serde(default)]
    pub sent: Traffic,
    /// Bytes sent so far.
    pub traffic: Traffic,
    /// How the cohort's updates arrived, one by one; nothing where clients are synchronous.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arrivals: Vec<Arrival>,
    /// Clients that were asked too and whose replies do not count, and why.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropped: Vec<Dropped>,
    /// The bound on clients' changes in this round, where they are clipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// How far each of the cohort was from the others, where that is noted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub distances: Vec<ClientDistance>,
    /// What has been spent of the clients' privacy, where it is protected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub privacy: Option<PrivacySpent>,
    /// How many numbers of all clients were beyond the clip of `plan.secure_aggregation`, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clipped: Option<u64>,
}

/// How far a client's update was from the others', and what became of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ClientDistance {
    /// Whose it is.
    pub client: usize,
    /// The norm of its change, before clipping.
    pub norm: f64,
    /// The distance of what it sent to what was made of all.
    pub distance: f64,
    /// What the aggregation did with it.
    pub treatment: Treatment,
    /// Whether its norm or its distance exceeds the round's median by more than three standard deviations, estimated from the median absolute deviation
    /// (`sigma = 1.4826 MAD`). In a round of fewer than four updates none is an outlier.
    pub outlier: bool,
}

impl ClientDistance {
    /// Those of a round, in the order of the cohort.
    fn of(cohort: &[usize], handled: &[Handled]) -> Vec<Self> {
        let outliers = |value: fn(&Handled) -> f64| outliers(&handled.iter().map(value).collect::<Vec<_>>());
        let (by_norm, by_distance) = (outliers(|each| each.norm), outliers(|each| each.distance));
        let outlier = by_norm.into_iter().zip(by_distance).map(|(norm, distance)| norm || distance);
        let all = cohort.iter().zip(handled).zip(outlier);
        let distance = |((&client, handled), outlier): ((&usize, &Handled), bool)| {
            let Handled { norm, distance, treatment } = *handled;
            Self { client, norm, distance, treatment, outlier }
        };
        all.map(distance).collect()
    }
}

/// How far the updates of a round were apart, in few numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DistanceSummary {
    /// The median of the norms of changes.
    pub norm: f64,
    /// The largest of them.
    pub largest_norm: f64,
    /// The median of the distances to the aggregate.
    pub distance: f64,
    /// The largest of them.
    pub largest_distance: f64,
    /// How many updates are [outliers](ClientDistance::outlier).
    pub outliers: usize,
    /// How many were clipped.
    pub clipped: usize,
    /// How many were left out.
    pub left_out: usize,
}

impl Round {
    /// The mean of the clients' last training losses, where any client trained.
    pub fn training_loss(&self) -> Option<f64> {
        (!self.cohort.is_empty()).then_some(self.loss)
    }

    /// The mean consensus gap of the cohort, where there is one.
    pub fn cohort_gap(&self) -> Option<f64> {
        (!self.cohort.is_empty()).then_some(self.gap)
    }

    /// How far the updates were apart; nothing where that is not noted.
    pub fn distance_summary(&self) -> Option<DistanceSummary> {
        if self.distances.is_empty() {
            return None;
        }
        let values = |value: fn(&ClientDistance) -> f64| self.distances.iter().map(value).collect::<Vec<_>>();
        let (norms, distances) = (values(|each| each.norm), values(|each| each.distance));
        let largest = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
        let treated = |treatment: Treatment| self.distances.iter().filter(|each| each.treatment == treatment).count();
        Some(DistanceSummary {
            norm: median(&norms),
            largest_norm: largest(&norms),
            distance: median(&distances),
            largest_distance: largest(&distances),
            outliers: self.distances.iter().filter(|each| each.outlier).count(),
            clipped: treated(Treatment::Clipped),
            left_out: treated(Treatment::LeftOut),
        })
    }
}

/// What the server received in a round.
#[derive(Debug, Default)]
pub(crate) struct RoundResult {
    pub(crate) cohort: Vec<usize>,
    /// One for each of the cohort.
    pub(crate) updates: Vec<Update>,
    /// One for each of the cohort, where clients are asynchronous.
    pub(crate) arrivals: Vec<Arrival>,
    /// One for each of the cohort, where distances are noted.
    pub(crate) handled: Vec<Handled>,
    /// How many numbers were cut off, where the aggregation is secure.
    pub(crate) clipped: Option<u64>,
    /// Who was asked too and does not count.
    pub(crate) dropped: Vec<Dropped>,
    /// The bound on changes that was in force, where they are clipped.
    pub(crate) bound: Option<f64>,
    /// What has been spent of the clients' privacy.
    pub(crate) privacy: Option<PrivacySpent>,
    /// The time that the server's own steps took.
    pub(crate) server_seconds: f64,
}

impl RoundResult {
    /// What local work took, over all clients.
    pub(crate) fn stats(&self) -> TrainStats {
        self.updates.iter().fold(TrainStats::default(), |sum, update| sum.then(update.stats.clone()))
    }

    /// The updates of clients that tell how their training went.
    fn told(&self) -> impl Iterator<Item = &Update> {
        self.updates.iter().filter(|update| update.stats.disclosure.tells())
    }

    /// What is reported of a round; `before` is what had been sent before it.
    pub(crate) fn report(self, round: u64, rho: Option<f64>, before: Traffic, traffic: Traffic) -> Round {
        let TrainStats { solves, steps, .. } = self.stats();
        Round {
            round,
            loss: mean(self.told().map(|update| update.stats.loss)),
            gap: mean(self.told().map(|update| update.gap)),
            distances: ClientDistance::of(&self.cohort, &self.handled),
            clipped: self.clipped,
            bound: self.bound,
            cohort: self.cohort,
            privacy: self.privacy,
            rho,
            solves,
            steps,
            sent: traffic.since(before),
            traffic,
            arrivals: self.arrivals,
            dropped: self.dropped,
        }
    }
}

fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (sum, count) = values.into_iter().fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
    if count == 0 { 0.0 } else { sum / count as f64 }
}
