//! Solving a batch from several starts.
use burn::tensor::Tensor;
use fedeq_data::shard::Batch;
use fedeq_equilibrium::{Adjoint, Equilibrium, LinearSolver, Outcome, Stop};
use fedeq_models::{Context, Input, Network, Output, Start, Statistics, random_start};

use super::loss::padding_of;
use crate::error::Result;
use crate::fixed_points::Examined;

/// Solves that end further apart than this, relative to the length of a state, have found different fixed points. Far above what solves of the tolerance
/// below leave open, unless the cell hardly contracts at all.
const APART: f64 = 1e-2;
/// The tolerance of the solves that are compared.
const TOLERANCE: f64 = 1e-5;

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
