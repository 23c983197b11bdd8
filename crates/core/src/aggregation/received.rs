//! What a method's server step gets, and what was done with each update.
use std::cell::OnceCell;

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
use crate::sent::SentWeights;
use crate::weights::Weights;

/// The updates of a round, or a single one where clients are asynchronous, and how they are aggregated.
pub struct Received<'a> {
    updates: &'a [Update],
    aggregation: &'a Aggregation,
    /// Whether clients send how their weights changed instead of the weights.
    are_changes: bool,
    handled: OnceCell<Vec<Handled>>,
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
        Self { updates, aggregation, are_changes: algorithm.sends_changes(), handled: OnceCell::new() }
    }

    /// The updates, in the order of the cohort.
    pub fn updates(&self) -> &'a [Update] {
        self.updates
    }

    /// What became of each update, where that is noted: one for each, once they have been aggregated.
    pub fn handled(&self) -> &[Handled] {
        self.handled.get().map_or(&[], Vec::as_slice)
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

    /// One model of all that was received, of which there is something; `theta` is what clients were sent, and `clip` the bound that the server kept.
    pub(crate) fn aggregate(&self, theta: &Params, clip: Option<f64>, weighting: Weighting) -> Result<Aggregate> {
        let weights = self.weights(weighting);
        if self.aggregation.is_plain() {
            let items: Vec<_> = self.updates.iter().map(|update| &update.weights).zip(weights).collect();
            let aggregate = Aggregate { weights: SentWeights::mean(&items)?, clip };
            if self.aggregation.notes_distances() {
                let cohort = Cohort::of(self, theta)?;
                self.note(&cohort, &flat(&aggregate.weights.params), vec![Treatment::Kept; self.updates.len()]);
            }
            return Ok(aggregate);
        }
        let mut cohort = Cohort::of(self, theta)?;
        let (sent, clip) = match &self.aggregation.clip {
            Some(clipping) => {
                let bound = clipping.bound(clip, &cohort.norms);
                let within = cohort.norms.iter().filter(|norm| **norm <= bound).count() as f64 / cohort.norms.len() as f64;
                (cohort.clip(bound), clipping.next(bound, within))
            }
            None => (None, clip),
        };
        let verdict = self.aggregation.rule.verdict(&views(&cohort.rows), weights)?;
        let values = verdict.of(&cohort.rows);
        let aggregate = Weights { params: named_like(theta, &values), statistics: self.statistics(&verdict)? };
        if self.aggregation.notes_distances() {
            let treatments = cohort.treatments(&verdict);
            if let Some(sent) = sent {
                cohort.rows = sent;
            }
            self.note(&cohort, &values, treatments);
        }
        Ok(Aggregate { weights: aggregate, clip })
    }

    /// Running statistics by the same verdict; by their median where the mean is taken of clipped updates.
    fn statistics(&self, verdict: &Verdict) -> Result<Params> {
        let like = &self.updates[0].weights.like().statistics;
        if like.is_empty() {
            return Ok(Params::default());
        }
        let rows =
            self.updates.iter().map(|update| Ok(flat(&update.weights.to_host()?.statistics))).collect::<Result<Vec<_>>>()?;
        let values = match self.aggregation.rule {
            AggregationRule::Mean => CoordinateRule::Median.of(&views(&rows)),
            _ => verdict.of(&rows),
        };
        Ok(named_like(like, &values))
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
    /// What changes are measured from: `theta`, or zero where changes are sent.
    origin: Vec<f32>,
    rows: Vec<Vec<f32>>,
    norms: Vec<f64>,
    /// Whether each was clipped.
    clipped: Vec<bool>,
}

impl Cohort {
    fn of(received: &Received<'_>, theta: &Params) -> Result<Self> {
        let origin = if received.are_changes { vec![0.0; theta.count()] } else { flat(theta) };
        let rows =
            received.updates.iter().map(|update| Ok(flat(&update.weights.to_host()?.params))).collect::<Result<Vec<_>>>()?;
        let norms = distances_to(&origin, &views(&rows));
        Ok(Self { origin, clipped: vec![false; rows.len()], rows, norms })
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

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    f64::midpoint(sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2])
}
