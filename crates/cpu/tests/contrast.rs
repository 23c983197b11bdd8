//! The contrastive term of MOON: a step goes along the gradient of the objective that its paper writes, by finite differences.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{ContrastModels, LocalProblem, RoundContext, Training, Trains, Weights};
use fedeq_cpu::{Context, Executor, Input, Network, NetworkProblem, Start};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples, Seed, Vectors};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::{Mode, ModelConfig, Task};

const SAMPLES: usize = 10;
const WIDTH: usize = 6;
const CLASSES: usize = 3;
const WEIGHT: f64 = 2.0;
const TEMPERATURE: f64 = 0.5;
/// A single step tells the gradient, however long it is.
const RATE: f64 = 1.0;

fn values() -> Vec<f32> {
    (0..SAMPLES * WIDTH).map(|at| ((at * 7919) % 101) as f32 / 50.0 - 1.0).collect()
}

fn network() -> Arc<Network> {
    let config: ModelConfig = "mlp".parse().expect("known");
    Arc::new(Network::new(config.graph(&Task::vector(WIDTH, CLASSES)).expect("fits")))
}

fn problem(network: &Arc<Network>, training: &Training) -> NetworkProblem {
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let labels = Labels::Classes { names, values: (0..SAMPLES).map(|at| (at % CLASSES) as u16).collect() };
    let samples = Samples::Vectors(Vectors { width: WIDTH, values: values() });
    let dataset = Arc::new(Dataset { name: "numbers".into(), samples, labels, owners: None, test_start: None });
    let shard = |indices: Vec<u32>| Shard::new(Arc::clone(&dataset), indices).expect("there");
    NetworkProblem::new(Arc::clone(network), [shard((0..SAMPLES as u32).collect()), shard(vec![]), shard(vec![])], training)
}

/// Logits and embeddings of all samples.
fn seen(network: &Network, weights: &Weights) -> [Vec<f64>; 2] {
    let arrays = network.graph().parameters.iter().map(|parameter| weights.params.get(&parameter.path).expect("there"));
    let parameters: Vec<_> = arrays.map(|array| Arc::clone(&array.values)).collect();
    let values = values();
    let mut executor = Executor::new(network.graph(), SAMPLES, 1, Mode::Evaluate, |_| false);
    let mut context = Context { parameters: &parameters, statistics: &mut [], dropout: None, start: Start::Model };
    executor.forward(Input::Numbers(&values), &mut context);
    let wide = |values: &[f32]| values.iter().map(|&value| f64::from(value)).collect();
    [wide(executor.logits()), wide(executor.embedding(Input::Numbers(&values)).expect("no gradients"))]
}

/// The mean cross-entropy, and `mu` times the mean of `-log(exp(sim(z, near) / tau) / (exp(sim(z, near) / tau) + exp(sim(z, far) / tau)))`.
fn objective(network: &Network, weights: &Weights, near: &Weights, far: &Weights) -> f64 {
    let [logits, z] = seen(network, weights);
    let ([_, near], [_, far]) = (seen(network, near), seen(network, far));
    let width = z.len() / SAMPLES;
    let similarity = |a: &[f64], b: &[f64]| {
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
    };
    let sample = |at: usize| {
        let row = &logits[at * CLASSES..][..CLASSES];
        let supervised = row.iter().map(|logit| logit.exp()).sum::<f64>().ln() - row[at % CLASSES];
        let of = |all: &[f64]| all[at * width..][..width].to_vec();
        let [s, r] = [&near, &far].map(|other| (similarity(&of(&z), &of(other)) / TEMPERATURE).exp());
        supervised - WEIGHT * (s / (s + r)).ln()
    };
    (0..SAMPLES).map(sample).sum::<f64>() / SAMPLES as f64
}

#[test]
fn a_step_goes_along_the_gradient_of_moons_objective() {
    let network = network();
    let batch_size = NonZeroUsize::new(SAMPLES).expect("not 0");
    let training = Training { learning_rate: RATE, epochs: 1, batch_size, ..Training::default() };
    let problem = problem(&network, &training);
    let model = |seed| Weights::initial(network.graph(), seed);
    let (start, near, far) = (model(1), model(2), model(3));
    let contrast = ContrastModels { weight: WEIGHT, temperature: TEMPERATURE, attracts: near.clone(), repels: far.clone() };
    let round = RoundContext { round: 0, rounds: 1, rho: None, training: &training };
    let phase = round.body(Trains::Everything);
    let (mut moved, mut memory) = (start.clone(), WarmMemory::new(WarmStart::Off));
    let stats = problem.train_contrasting(&mut moved, &mut memory, &phase, &contrast, phase.seed(Seed::new(1))).expect("trained");
    let before = objective(&network, &start, &near, &far);
    assert!((stats.loss - before).abs() < 1e-5 * before, "{} instead of {before}", stats.loss);
    let gradient = start.params.minus(&moved.params).map(|change| change / RATE as f32);
    // Along the gradient of every parameter on its own.
    for (name, _) in start.params.iter() {
        let own = gradient.filter(|other| other == name);
        let (norm, mut direction) = (own.norm(), start.params.zeros_like());
        assert!(norm > 1e-3, "{name} has a gradient: {norm}");
        direction.overwrite(&own.map(|value| value / norm as f32));
        let at = |way: f32| Weights { params: start.params.plus(way, &direction), ..start.clone() };
        let [ahead, behind] = [2e-3, -2e-3].map(|way| objective(&network, &at(way), &near, &far));
        let expected = (ahead - behind) / 4e-3;
        assert!((norm - expected).abs() < 1e-2 * expected + 1e-4, "{name}: {norm} instead of {expected}");
    }
}
