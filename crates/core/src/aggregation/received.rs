//! What a method's server step gets, and what was done with each update.
use std::borrow::Cow;
use std::cell::OnceCell;

use fedeq_data::Seed;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::Aggregation;
use super::cap::capped;
use super::clip::clip_to;
use super::rows::{distances_to, flat, named_like};
use super::rule::{AggregationRule, CoordinateRule, Verdict};
use crate::algorithm::{Algorithm, Update, Weighting};
use crate::error::Result;
use crate::params::{Params, weighted_mean};
use crate::privacy::PrivateRound;
use crate::secure::{SecretRow, SecureMean, SecureRounds};
use crate::sent::SentWeights;
use crate::weights::Weights;

/// The updates of a round, or a single one where clients are asynchronous, and how they are aggregated.
pub struct Received<'a> {
    updates: &'a [Update],
    aggregation: &'a Aggregation,
    /// Whether clients send how their weights changed instead of the weights.
    are_changes: bool,
    secure: Option<&'a SecureRounds>,
    /// The mean as a server knows it that never saw the updates.
    summed: Option<&'a SecureMean>,
    clipped: OnceCell<u64>,
    handled: OnceCell<Vec<Handled>>,
    /// How the mean is made private, where it is.
    private: Option<PrivateRound<'a>>,
    bound: OnceCell<f64>,
}

/// What became of one client's update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Handled {
    /// The norm of its change, before clipping.
    pub norm: f64,
    /// The distance of what it sent to what was made of all.
    pub distance: f64,
    /// What the rule did with it.
    pub treatment: Treatment,
}

/// What the aggregation did with an update.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Treatment {
    /// It counts as it was sent.
    #[default]
    Kept,
    /// Its change was shortened.
    Clipped,
    /// It does not count at all.
    LeftOut,
}

/// A model that was made of many, and the bound on changes that the next round begins with.
pub(crate) struct Aggregate {
    pub(crate) weights: Weights,
    pub(crate) clip: Option<f64>,
}

impl<'a> Received<'a> {
    /// What was received from clients of a method.
    pub fn new(updates: &'a [Update], aggregation: &'a Aggregation, algorithm: &dyn Algorithm) -> Self {
        let are_changes = algorithm.sends_changes();
        Self {
            updates,
            aggregation,
            are_changes,
            secure: None,
            summed: None,
            clipped: OnceCell::new(),
            handled: OnceCell::new(),
            private: None,
            bound: OnceCell::new(),
        }
    }

    /// The same, made private.
    pub(crate) fn privately(self, private: Option<PrivateRound<'a>>) -> Self {
        Self { private, ..self }
    }

    /// What a server receives that learns only the sum, if that is wanted.
    pub(crate) fn in_secret(mut self, secure: Option<&'a SecureRounds>) -> Self {
        self.secure = secure;
        self
    }

    /// What a server has that never saw the updates: their mean.
    pub(crate) fn summed(mut self, summed: Option<&'a SecureMean>) -> Self {
        self.summed = summed;
        self
    }

    /// How many numbers of all clients were cut off, once updates have been aggregated in secret.
    pub(crate) fn clipped(&self) -> Option<u64> {
        self.clipped.get().copied()
    }

    /// The updates, in the order of the cohort.
    pub fn updates(&self) -> &'a [Update] {
        self.updates
    }

    /// The median of `||theta_i - theta||`, by what clients sent and not by what they say of it; nothing where no update came.
    pub(crate) fn median_gap(&self, theta: &Params) -> Result<Option<f64>> {
        let gaps = self.updates.iter().map(|update| update.weights.gap(theta, update.gap)).collect::<Result<Vec<_>>>()?;
        Ok((!gaps.is_empty()).then(|| median(&gaps)))
    }

    /// How many updates the aggregate is the mean of: where it is private, a number that does not depend on who took part.
    pub fn count(&self) -> f64 {
        self.private.as_ref().map_or(self.updates.len() as f64, |private| private.mechanism.denominator())
    }

    /// Whether the server's weights stay as they are: of nothing there is no mean, but noise there is.
    pub(crate) fn is_nothing(&self) -> bool {
        let is_left_out = self.summed.is_some_and(|summed| summed.survivors.is_empty());
        self.updates.is_empty() && (self.private.is_none() || is_left_out)
    }

    /// What became of each update, where that is noted: one for each, once they have been aggregated.
    pub fn handled(&self) -> &[Handled] {
        self.handled.get().map_or(&[], Vec::as_slice)
    }

    /// The bound on changes that was in force, where they are clipped.
    pub fn bound(&self) -> Option<f64> {
        self.bound.get().copied()
    }

    /// How much each client counts.
    fn weights(&self, weighting: Weighting) -> Vec<f64> {
        let weight = |update: &Update| match weighting {
            Weighting::Uniform => 1.0,
            Weighting::Samples => update.samples as f64,
        };
        let weights: Vec<f64> = self.updates.iter().map(weight).collect();
        match self.aggregation.cap {
            Some(cap) => capped(&weights, cap),
            None => weights,
        }
    }

    /// One model of all that was received, of which there is something unless it is made private; `theta` is what clients were sent, and `clip` the bound that the server kept.
    pub(crate) fn aggregate(&self, theta: &Params, clip: Option<f64>, weighting: Weighting) -> Result<Aggregate> {
        if let Some(SecureMean { changes, statistics, .. }) = self.summed {
            let values: Vec<f32> = changes.iter().zip(self.origin(theta)).map(|(change, origin)| origin + change).collect();
            let weights = Weights { params: named_like(theta, &values), statistics: statistics.clone() };
            return Ok(Aggregate { weights, clip });
        }
        if let Some(secure) = self.secure {
            return Ok(Aggregate { weights: self.in_a_ring(secure, theta, weighting)?, clip });
        }
        if let Some(private) = &self.private {
            return self.aggregate_privately(private, theta, clip);
        }
        let weights = self.weights(weighting);
        if self.aggregation.is_plain() { self.plain(theta, clip, weights) } else { self.robust(theta, clip, weights) }
    }

    /// The mean, taken where the weights are.
    fn plain(&self, theta: &Params, clip: Option<f64>, weights: Vec<f64>) -> Result<Aggregate> {
        let items: Vec<_> = self.updates.iter().map(|update| &update.weights).zip(weights).collect();
        let weights = SentWeights::mean(&items)?;
        if self.aggregation.notes_distances() {
            let cohort = Cohort::of(&self.on_host()?, self.origin(theta));
            self.note(&cohort, &flat(&weights.params), vec![Treatment::Kept; self.updates.len()]);
        }
        Ok(Aggregate { weights, clip })
    }

    /// Clipped, then by the rule.
    fn robust(&self, theta: &Params, clip: Option<f64>, weights: Vec<f64>) -> Result<Aggregate> {
        let sent = self.on_host()?;
        let mut cohort = Cohort::of(&sent, self.origin(theta));
        let (unclipped, clip) = match &self.aggregation.clip {
            Some(clipping) => {
                let bound = *self.bound.get_or_init(|| clipping.bound(clip, &cohort.norms));
                let within = cohort.norms.iter().filter(|norm| **norm <= bound).count() as f64 / cohort.norms.len() as f64;
                (cohort.clip(bound), clipping.next(bound, within))
            }
            None => (None, clip),
        };
        let verdict = self.aggregation.rule.verdict(&views(&cohort.rows), weights)?;
        let values = verdict.of(&cohort.rows);
        if self.aggregation.notes_distances() {
            let treatments = cohort.treatments(&verdict);
            if let Some(rows) = unclipped {
                cohort.rows = rows;
            }
            self.note(&cohort, &values, treatments);
        }
        let weights = Weights { params: named_like(theta, &values), statistics: self.statistics(&sent, &verdict) };
        Ok(Aggregate { weights, clip })
    }

    /// All that was sent, as plain numbers.
    fn on_host(&self) -> Result<Vec<Cow<'a, Weights>>> {
        self.updates.iter().map(|update| update.weights.to_host()).collect()
    }

    /// What changes are measured from: `theta`, or zero where changes are sent.
    fn origin(&self, theta: &Params) -> Vec<f32> {
        if self.are_changes { vec![0.0; theta.count()] } else { flat(theta) }
    }

    /// The noisy mean of clipped changes. Norms and distances are noted only where that was asked for: they are not private.
    fn aggregate_privately(&self, private: &PrivateRound<'_>, theta: &Params, clip: Option<f64>) -> Result<Aggregate> {
        let cohort = Cohort::of(&self.on_host()?, self.origin(theta));
        let bound = private.mechanism.bound(clip);
        let (change, clip) = private.mean(&cohort.rows, &cohort.origin, &cohort.norms, clip);
        let moved = |(change, origin): (f64, &f32)| (f64::from(*origin) + change) as f32;
        let values: Vec<f32> = change.into_iter().zip(&cohort.origin).map(moved).collect();
        if self.aggregation.distances == Some(true) {
            let treatment = |norm: &f64| if *norm > bound { Treatment::Clipped } else { Treatment::Kept };
            self.note(&cohort, &values, cohort.norms.iter().map(treatment).collect());
        }
        Ok(Aggregate { weights: Weights { params: named_like(theta, &values), statistics: Params::default() }, clip })
    }

    /// The mean of all changes, as a server learns it that sees only their sum in a ring.
    fn in_a_ring(&self, secure: &SecureRounds, theta: &Params, weighting: Weighting) -> Result<Weights> {
        let origin = self.origin(theta);
        let row = |update: &Update| {
            let weights = update.weights.to_host()?;
            let began = update.weights.origin().map(flat);
            let began = began.as_ref().unwrap_or(&origin);
            let changes = flat(&weights.params).iter().zip(began).map(|(value, began)| value - began).collect();
            let statistics = flat(&weights.statistics).into_iter().map(f64::from).collect();
            Ok(SecretRow { changes, statistics, samples: update.samples })
        };
        let rows = self.updates.iter().map(row).collect::<Result<Vec<_>>>()?;
        // Nothing is drawn from it where nothing is to be private.
        let seed = self.private.as_ref().map_or(Seed::new(0), |private| private.seed);
        let (mean, clipped) = secure.mean(&rows, weighting, seed)?;
        // A method that aggregates twice is told about the first time.
        let _ = self.clipped.set(clipped);
        let values: Vec<f32> = mean.values.iter().zip(&origin).map(|(change, origin)| origin + change).collect();
        let statistics: Vec<f32> = mean.wide.iter().map(|value| *value as f32).collect();
        let like = &self.updates[0].weights.like().statistics;
        Ok(Weights { params: named_like(theta, &values), statistics: named_like(like, &statistics) })
    }

    /// Running statistics by the same verdict; by their median where the mean is taken of clipped updates.
    fn statistics(&self, sent: &[Cow<'_, Weights>], verdict: &Verdict) -> Params {
        let rows: Vec<Vec<f32>> = sent.iter().map(|weights| flat(&weights.statistics)).collect();
        let values = match self.aggregation.rule {
            AggregationRule::Mean => CoordinateRule::Median.of(&views(&rows)),
            _ => verdict.of(&rows),
        };
        named_like(&sent[0].statistics, &values)
    }

    fn note(&self, cohort: &Cohort, aggregate: &[f32], treatments: Vec<Treatment>) {
        let distances = distances_to(aggregate, &views(&cohort.rows));
        let all = cohort.norms.iter().zip(distances).zip(treatments);
        let handled = all.map(|((&norm, distance), treatment)| Handled { norm, distance, treatment }).collect();
        // A method that aggregates twice is told about the first time.
        let _ = self.handled.set(handled);
    }
}

impl Verdict {
    /// What it makes of these rows.
    fn of(&self, rows: &[Vec<f32>]) -> Vec<f32> {
        match self {
            Self::Coordinates(rule) => rule.of(&views(rows)),
            Self::Combination(weights) => {
                let items: Vec<(&[f32], f64)> =
                    rows.iter().map(Vec::as_slice).zip(weights.iter().copied()).filter(|(_, weight)| *weight > 0.0).collect();
                weighted_mean(&items, items.iter().map(|(_, weight)| weight).sum())
            }
        }
    }
}

/// The parameters that the clients of a round sent, as plain numbers.
struct Cohort {
    /// What changes are measured from.
    origin: Vec<f32>,
    rows: Vec<Vec<f32>>,
    norms: Vec<f64>,
    /// Whether each was clipped.
    clipped: Vec<bool>,
}

impl Cohort {
    fn of(sent: &[Cow<'_, Weights>], origin: Vec<f32>) -> Self {
        let rows: Vec<Vec<f32>> = sent.iter().map(|weights| flat(&weights.params)).collect();
        let norms = distances_to(&origin, &views(&rows));
        Self { origin, clipped: vec![false; rows.len()], rows, norms }
    }

    /// Clips every row; gives the rows as they were sent if one of them changed.
    fn clip(&mut self, bound: f64) -> Option<Vec<Vec<f32>>> {
        let clipped: Vec<Option<Vec<f32>>> = self.rows.par_iter().map(|row| clip_to(row, &self.origin, bound)).collect();
        self.clipped = clipped.iter().map(Option::is_some).collect();
        if !self.clipped.contains(&true) {
            return None;
        }
        let shorter = clipped.into_iter().zip(&self.rows).map(|(clipped, row)| clipped.unwrap_or_else(|| row.clone())).collect();
        Some(std::mem::replace(&mut self.rows, shorter))
    }

    fn treatments(&self, verdict: &Verdict) -> Vec<Treatment> {
        let is_left_out = |client: usize| matches!(verdict, Verdict::Combination(weights) if weights[client] == 0.0);
        let treatment = |(client, clipped): (usize, &bool)| match (is_left_out(client), clipped) {
            (true, _) => Treatment::LeftOut,
            (false, true) => Treatment::Clipped,
            (false, false) => Treatment::Kept,
        };
        self.clipped.iter().enumerate().map(treatment).collect()
    }
}

fn views(rows: &[Vec<f32>]) -> Vec<&[f32]> {
    rows.iter().map(Vec::as_slice).collect()
}

/// So many updates are needed for any of them to be unusual.
const FEWEST: usize = 4;

/// Of each value, whether it is larger than the median by more than three standard deviations, as estimated from the median absolute deviation
/// (`sigma = 1.4826 MAD`), which liars below half cannot move far. Of fewer than four none is.
pub(crate) fn outliers(values: &[f64]) -> Vec<bool> {
    if values.len() < FEWEST {
        return vec![false; values.len()];
    }
    let middle = median(values);
    let deviations: Vec<f64> = values.iter().map(|value| (value - middle).abs()).collect();
    // Where most values are the same, what differs by rounding is not unusual.
    let sigma = (1.4826 * median(&deviations)).max(1e-6 * middle.abs());
    values.iter().map(|value| *value > middle + 3.0 * sigma).collect()
}

pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
