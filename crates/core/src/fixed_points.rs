//! How many fixed points a model's solves can end in, and how contractive its cell is there.
use burn::tensor::Tensor;
use fedeq_data::shard::Batch;
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Outcome, Stop};
use fedeq_models::{Context, Input, Network, Output, Start, Statistics, random_start};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::loss::padding_of;

/// Solves that end further apart than this, relative to the length of a state, have found different fixed points. Far above what solves of the tolerance
/// below leave open, unless the cell hardly contracts at all.
const APART: f64 = 1e-2;
/// The tolerance of the solves that are compared.
const TOLERANCE: f64 = 1e-5;

/// How to look for several fixed points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Search {
    /// Test samples looked at, a client.
    pub samples: usize,
    /// Solves of each: one from the model's own start, the others from random states of the same length.
    pub starts: usize,
}

impl Default for Search {
    fn default() -> Self {
        Self { samples: 5, starts: 3 }
    }
}

impl Search {
    /// Refuses settings that mean nothing, or take forever.
    pub fn validate(&self, name: &str) -> Result<()> {
        let within = |part: &str, value: usize, most: usize| {
            let problem = || format!("`{name}{part}` is `{value}`");
            if (1..=most).contains(&value) {
                Ok(())
            } else {
                Err(Error::invalid(problem(), format!("give a number from 1 to {most}")))
            }
        };
        within("samples", self.samples, 100_000)?;
        within("starts", self.starts, 1_000)
    }
}

/// What the solves of one sample ended in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Examined {
    /// Solves that converged, of all that were started.
    pub settled: usize,
    /// Whether the one from the model's own start did.
    pub own_settled: bool,
    /// Different fixed points among them.
    pub fixed_points: usize,
    /// The largest distance between two of them, relative to the length of the first.
    pub distance: f64,
    /// Whether they lead to different answers.
    pub answers_differ: bool,
    /// The spectral radius of the cell's Jacobian where the solve from the model's own start ended.
    pub radius: f64,
    /// The largest one where any of the solves that converged ended.
    pub largest_radius: f64,
}

/// What the solves of many samples ended in: sums, so that those of clients add up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FixedPoints {
    /// Samples looked at.
    pub samples: u64,
    /// Those with more than one fixed point.
    pub several: u64,
    /// Those whose answer depends on where the solve starts.
    pub answers_differ: u64,
    /// Those whose solve from the model's own start found no fixed point.
    pub unsettled: u64,
    /// Those whose own fixed point is not stable: a spectral radius of 1 or more.
    pub unstable: u64,
    /// The largest distance between fixed points of one sample, relative to their length.
    pub distance: f64,
    /// The spectral radii at the samples' own fixed points, summed.
    pub radius: f64,
    /// The largest spectral radius at any fixed point.
    pub largest_radius: f64,
}

impl FixedPoints {
    /// Sums up what was found.
    pub fn of(examined: &[Examined]) -> Self {
        examined.iter().fold(Self::default(), |sum, sample| sum.plus(&Self::one(sample)))
    }

    fn one(sample: &Examined) -> Self {
        Self {
            samples: 1,
            several: (sample.fixed_points > 1).into(),
            answers_differ: sample.answers_differ.into(),
            unsettled: (!sample.own_settled).into(),
            unstable: (sample.radius >= 1.0).into(),
            distance: sample.distance,
            radius: sample.radius,
            largest_radius: sample.largest_radius,
        }
    }

    /// Both together.
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            samples: self.samples + other.samples,
            several: self.several + other.several,
            answers_differ: self.answers_differ + other.answers_differ,
            unsettled: self.unsettled + other.unsettled,
            unstable: self.unstable + other.unstable,
            distance: self.distance.max(other.distance),
            radius: self.radius + other.radius,
            largest_radius: self.largest_radius.max(other.largest_radius),
        }
    }

    /// The mean spectral radius at the samples' own fixed points; nothing if there are no samples.
    pub fn mean_radius(&self) -> Option<f64> {
        (self.samples > 0).then(|| self.radius / self.samples as f64)
    }

    /// The shares of samples with several fixed points, with answers that differ, without a fixed point and with one that is not stable.
    pub fn shares(&self) -> Option<[f64; 4]> {
        let share = |count: u64| count as f64 / self.samples as f64;
        (self.samples > 0).then(|| [self.several, self.answers_differ, self.unsettled, self.unstable].map(share))
    }
}

/// Fixed points to a tolerance, and gradients through them by the implicit function theorem.
pub(crate) fn precise(tolerance: f64) -> Equilibrium {
    let stop = Stop::relative(tolerance, 300);
    let adjoint = Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 50 }, stop };
    Equilibrium { stop, adjoint, ..Equilibrium::default() }
}

/// Solves for a batch from several starts; nothing for a network that solves for no fixed point.
pub(crate) fn examine(
    network: &Network,
    statistics: &Statistics,
    (input, batch): (&Input, &Batch),
    starts: usize,
    seed: u64,
) -> Result<Option<Vec<Examined>>> {
    let network = network.clone().with_equilibrium(precise(TOLERANCE));
    let solve = |start: Start<'_>| Ended::of(&network, statistics, input, start, seed);
    let Some(own) = solve(Start::Model)? else { return Ok(None) };
    let states = own.output_states.clone();
    let mut all = vec![own];
    for number in 1..starts {
        all.extend(solve(Start::At(&random_start(&states, seed, number)))?);
    }
    let rows = all[0].answers.len() / batch.len();
    let padding = padding_of(&batch.inputs, all[0].answers.len());
    let sample = |index: usize| {
        let counted: Vec<usize> = (index * rows..(index + 1) * rows).filter(|&row| !padding[row]).collect();
        compare(index, &all, &counted)
    };
    Ok(Some((0..batch.len()).map(sample).collect()))
}

/// Where the solves of a batch from one start ended.
struct Ended {
    output_states: Tensor<2>,
    /// One a sample.
    states: Vec<Vec<f32>>,
    settled: Vec<bool>,
    radii: Vec<f64>,
    /// One a row of logits.
    answers: Vec<i64>,
}

impl Ended {
    fn of(network: &Network, statistics: &Statistics, input: &Input, start: Start<'_>, seed: u64) -> Result<Option<Self>> {
        let mut context = Context::evaluate(statistics.clone()).starting(start);
        let Output { logits, equilibrium, .. } = network.forward(input, &mut context)?;
        let Some(found) = equilibrium else { return Ok(None) };
        let Some(radii) = network.spectral_radius(input, &mut context, &found.state, seed)? else { return Ok(None) };
        let width = found.state.dims()[1];
        let values: Vec<f32> = found.state.clone().try_into_vec_as().expect("a float tensor");
        Ok(Some(Self {
            output_states: found.state,
            states: values.chunks_exact(width).map(<[f32]>::to_vec).collect(),
            settled: found.report.outcome.iter().map(|outcome| *outcome == Outcome::Converged).collect(),
            radii: radii.into_iter().map(|radius| if radius.is_finite() { radius } else { 0.0 }).collect(),
            answers: logits.argmax(1).try_into_vec_as().expect("indices are integers"),
        }))
    }
}

/// What the solves of one sample, whose answers stand in these rows, have ended in.
fn compare(sample: usize, all: &[Ended], rows: &[usize]) -> Examined {
    let settled: Vec<&Ended> = all.iter().filter(|ended| ended.settled[sample]).collect();
    let mut different: Vec<&Ended> = Vec::new();
    let mut largest: f64 = 0.0;
    for ended in &settled {
        let distances: Vec<f64> = different.iter().map(|known| distance(&known.states[sample], &ended.states[sample])).collect();
        if distances.iter().all(|distance| *distance > APART) {
            largest = distances.into_iter().fold(largest, f64::max);
            different.push(ended);
        }
    }
    let answers = |ended: &Ended| rows.iter().map(|&row| ended.answers[row]).collect::<Vec<_>>();
    Examined {
        settled: settled.len(),
        own_settled: all[0].settled[sample],
        fixed_points: different.len(),
        distance: largest,
        answers_differ: different.iter().any(|ended| answers(ended) != answers(different[0])),
        radius: all[0].radii[sample],
        largest_radius: settled.iter().map(|ended| ended.radii[sample]).fold(all[0].radii[sample], f64::max),
    }
}

/// `||a - b|| / ||a||`.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let apart: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    let length: f64 = a.iter().map(|a| square((*a).into())).sum();
    if apart == 0.0 { 0.0 } else { (apart / length.max(f64::MIN_POSITIVE)).sqrt() }
}
