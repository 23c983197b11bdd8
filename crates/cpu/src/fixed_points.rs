//! Looking at a network's fixed points: solves from elsewhere, and how contractive the cell is where a solve ended.
use fedeq_core::{Examined, Result};
use fedeq_data::shard::Batch;
use fedeq_equilibrium::{Adjoint, Equilibrium, HostStates, LinearSolver, Outcome, Stop};
use fedeq_kernels::loss::largest_at;
use fedeq_models::normal_numbers;

use crate::evaluate::Evaluator;
use crate::network::padding;
use crate::op::Start;

/// Solves that end further apart than this, relative to the length of a state, have found different fixed points. Far above what solves of the tolerance
/// below leave open, unless the cell hardly contracts at all.
const APART: f64 = 1e-2;
/// The tolerance of the solves that are compared.
pub(crate) const TOLERANCE: f64 = 1e-5;
/// Vector-Jacobian products of the power method.
const PRODUCTS: usize = 60;

/// Fixed points to a tolerance, and gradients through them by the implicit function theorem.
pub(crate) fn precise(tolerance: f64) -> Equilibrium {
    let stop = Stop::relative(tolerance, 300);
    let adjoint = Adjoint::Implicit { solver: LinearSolver::Gmres { memory: 50 }, stop };
    Equilibrium { stop, adjoint, ..Equilibrium::default() }
}

/// Solves for a batch from several starts; nothing for a network that solves for no fixed point.
pub(crate) fn examine(model: &mut Evaluator<'_>, batch: &Batch, starts: usize, seed: u64) -> Result<Option<Vec<Examined>>> {
    let Some(own) = Ended::of(model, batch, Start::Model, seed)? else { return Ok(None) };
    let states = own.states.clone();
    let mut all = vec![own];
    for number in 1..starts {
        all.extend(Ended::of(model, batch, Start::At(&random_start(&states, seed, number)), seed)?);
    }
    let rows = all[0].answers.len() / batch.len();
    let mut flags = Vec::new();
    let ignored = padding(batch, &mut flags);
    let sample = |index: usize| {
        let counts = |row: &usize| !ignored.as_ref().is_some_and(|ignored| ignored[*row]);
        compare(index, &all, &(index * rows..(index + 1) * rows).filter(counts).collect::<Vec<_>>())
    };
    Ok(Some((0..batch.len()).map(sample).collect()))
}

/// States like these to start other solves from: as long as they are, sample by sample, in a random direction.
fn random_start(states: &HostStates, seed: u64, number: usize) -> HostStates {
    let noise = normal_numbers(seed, &format!("start {number}"), states.values().len());
    let mut start = HostStates::new(noise, states.rows(), states.width());
    for row in 0..states.rows() {
        let scale = (length(states.row(row)) / length(start.row(row))) as f32;
        start.row_mut(row).iter_mut().for_each(|value| *value *= scale);
    }
    start
}

fn length(values: &[f32]) -> f64 {
    values.iter().map(|&value| f64::from(value) * f64::from(value)).sum::<f64>().sqrt()
}

/// Where the solves of a batch from one start ended.
struct Ended {
    states: HostStates,
    settled: Vec<bool>,
    radii: Vec<f64>,
    /// One a row of logits.
    answers: Vec<usize>,
}

impl Ended {
    fn of(model: &mut Evaluator<'_>, batch: &Batch, start: Start<'_>, seed: u64) -> Result<Option<Self>> {
        let executor = model.run(batch, start)?;
        let Some(solved) = executor.solved() else { return Ok(None) };
        let states = solved.z.clone();
        let settled = solved.report.outcome.iter().map(|outcome| *outcome == Outcome::Converged).collect();
        let classes = executor.classes();
        let answers = executor.logits().chunks_exact(classes).map(largest_at).collect();
        let vector = normal_numbers(seed, "power method", states.values().len());
        let probe = HostStates::new(vector, states.rows(), states.width());
        let radii = model.spectral_radius(batch, probe, PRODUCTS).unwrap_or_default();
        let radii = radii.into_iter().map(|radius| if radius.is_finite() { radius } else { 0.0 }).collect();
        Ok(Some(Self { states, settled, radii, answers }))
    }
}

/// What the solves of one sample, whose answers stand in these rows, have ended in.
fn compare(sample: usize, all: &[Ended], rows: &[usize]) -> Examined {
    let settled: Vec<&Ended> = all.iter().filter(|ended| ended.settled[sample]).collect();
    let mut different: Vec<&Ended> = Vec::new();
    let mut largest: f64 = 0.0;
    for ended in &settled {
        let distances = different.iter().map(|known| distance(known.states.row(sample), ended.states.row(sample)));
        let distances = distances.collect::<Vec<f64>>();
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

/// `||a - b|| / ||a||`
fn distance(a: &[f32], b: &[f32]) -> f64 {
    let square = |value: f64| value * value;
    let apart: f64 = a.iter().zip(b).map(|(a, b)| square(f64::from(*a) - f64::from(*b))).sum();
    if apart == 0.0 { 0.0 } else { apart.sqrt() / length(a).max(f64::MIN_POSITIVE) }
}
