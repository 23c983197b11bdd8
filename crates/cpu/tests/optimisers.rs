//! Optimisers against their papers' formulas, computed once more in a straight line and in double precision. A batch is all of a client's samples, so that every
//! step goes along the gradient over all of them, which the engine gives on its own.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{
    LocalProblem, OptimiserName, Params, ProximalGradient, ProximalTerm, RoundContext, Schedule, ScheduleShape, Training, Trains,
    Weights, received,
};
use fedeq_cpu::{Network, NetworkProblem};
use fedeq_data::shard::Shard;
use fedeq_data::{Dataset, Labels, Samples, Seed, Vectors};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::{ModelConfig, Task};

const SAMPLES: usize = 12;
const WIDTH: usize = 5;
const STEPS: usize = 6;
const RATE: f64 = 0.1;

fn dataset() -> Arc<Dataset> {
    let value = |at: usize| ((at * 7919) % 101) as f32 / 50.0 - 1.0;
    let samples = Samples::Vectors(Vectors { width: WIDTH, values: (0..SAMPLES * WIDTH).map(value).collect() });
    let names = ["a", "b", "c"].map(str::to_owned).to_vec();
    let labels = Labels::Classes { names, values: (0..SAMPLES).map(|at| (at % 3) as u16).collect() };
    Arc::new(Dataset { name: "numbers".into(), samples, labels, owners: None, test_start: None })
}

fn problem(training: &Training) -> (NetworkProblem, Weights) {
    let config: ModelConfig = "mlp".parse().expect("known");
    let network = Arc::new(Network::new(config.graph(&Task::vector(WIDTH, 3)).expect("fits")));
    let dataset = dataset();
    let shard = |indices: Vec<u32>| Shard::new(Arc::clone(&dataset), indices).expect("there");
    let weights = Weights::initial(network.graph(), 3);
    (NetworkProblem::new(network, [shard((0..SAMPLES as u32).collect()), shard(vec![]), shard(vec![])], training), weights)
}

fn training(change: impl FnOnce(&mut Training)) -> Training {
    let batch_size = NonZeroUsize::new(SAMPLES).expect("not 0");
    let mut training = Training { learning_rate: RATE, epochs: STEPS, batch_size, ..Training::default() };
    change(&mut training);
    training.validate().expect("sound");
    training
}

/// What the engine makes of the weights, with a proximal term that holds them to where they began.
fn trained(training: &Training, round: u64, pull: f64) -> Weights {
    let (problem, mut weights) = problem(training);
    let term = ProximalTerm::new(pull, received());
    let proximal = ProximalGradient::new(&term, &weights.params.clone(), None);
    let round = RoundContext { round, rounds: 10, rho: None, training };
    let phase = round.body(Trains::Everything).towards(term);
    let mut memory = WarmMemory::new(WarmStart::Off);
    let stats = problem.train(&mut weights, &mut memory, &phase, Some(&proximal), phase.seed(Seed::new(1))).expect("trained");
    assert_eq!(stats.steps, STEPS as u64);
    weights
}

fn flat(params: &Params) -> Vec<f64> {
    params.iter().flat_map(|(_, array)| array.values.iter().map(|&value| f64::from(value))).collect()
}

/// The weights after as many steps of `step`, which gets the gradient with the proximal term, the parameters and the number of the step.
fn expected(training: &Training, pull: f64, mut step: impl FnMut(&[f64], &mut [f64], usize)) -> Vec<f64> {
    let (problem, start) = problem(training);
    let (anchor, mut p) = (flat(&start.params), flat(&start.params));
    for number in 0..STEPS {
        let mut at = p.iter().map(|&value| value as f32);
        let params = start.params.iter().map(|(name, array)| {
            let values = at.by_ref().take(array.values.len()).collect();
            (name.to_owned(), fedeq_core::Array::new(array.shape.clone(), values))
        });
        let weights = Weights { params: params.collect(), ..Weights::default() };
        let mut gradient = flat(&problem.gradient(&weights).expect("sound").1);
        if let Some(most) = training.clip_gradient {
            let norm = gradient.iter().map(|g| g * g).sum::<f64>().sqrt();
            assert!(norm > most, "there is something to clip: {norm}");
            gradient.iter_mut().for_each(|g| *g *= most / norm);
        }
        gradient.iter_mut().zip(&p).zip(&anchor).for_each(|((g, p), anchor)| *g += pull * (p - anchor));
        step(&gradient, &mut p, number);
    }
    p
}

fn assert_near(found: &Weights, expected: &[f64], start: &Training, what: &str) {
    let (found, start) = (flat(&found.params), flat(&problem(start).1.params));
    let norm = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>().sqrt();
    let (error, moved) = (norm(&found, expected), norm(&start, expected));
    assert!(error < 1e-4 * moved && moved > 1e-3, "{what}: {error} off a way of {moved}");
}

#[test]
fn stochastic_gradient_descent_follows_its_formula() {
    let momentum = 0.8;
    for (nesterov, decay, clip) in [(false, 0.0, None), (true, 0.0, None), (false, 0.2, None), (true, 0.1, Some(0.05))] {
        let training = training(|training| {
            (training.momentum, training.nesterov, training.clip_gradient) = (Some(momentum), nesterov, clip);
            training.weight_decay = Some(decay);
        });
        let mut m = Vec::new();
        let expected = expected(&training, 0.3, |gradient, p, _| {
            m.resize(p.len(), 0.0);
            for at in 0..p.len() {
                let g = gradient[at] + decay * p[at];
                m[at] = momentum * m[at] + g;
                p[at] -= RATE * if nesterov { g + momentum * m[at] } else { m[at] };
            }
        });
        assert_near(&trained(&training, 0, 0.3), &expected, &training, &format!("{nesterov} {decay} {clip:?}"));
    }
}

#[test]
fn adam_and_adam_w_follow_their_formulas() {
    let (b1, b2, epsilon) = (0.8, 0.95, 1e-3);
    for (optimiser, decay) in
        [(OptimiserName::Adam, 0.0), (OptimiserName::Adam, 0.3), (OptimiserName::AdamW, 0.3), (OptimiserName::AdamW, 0.01)]
    {
        let training = training(|training| {
            (training.optimiser, training.epsilon) = (optimiser, Some(epsilon));
            (training.beta_1, training.beta_2) = (Some(b1), Some(b2));
            // AdamW has a decay of 0.01 unless it is told otherwise.
            training.weight_decay = Some(decay).filter(|decay| *decay != 0.01);
        });
        let (mut m, mut v) = (Vec::new(), Vec::new());
        let expected = expected(&training, 0.3, |gradient, p, step| {
            m.resize(p.len(), 0.0);
            v.resize(p.len(), 0.0);
            let t = step as i32 + 1;
            for at in 0..p.len() {
                let mut g = gradient[at];
                match optimiser {
                    OptimiserName::AdamW => p[at] -= RATE * decay * p[at],
                    _ => g += decay * p[at],
                }
                m[at] = b1 * m[at] + (1.0 - b1) * g;
                v[at] = b2 * v[at] + (1.0 - b2) * g * g;
                p[at] -= RATE * (m[at] / (1.0 - b1.powi(t))) / ((v[at] / (1.0 - b2.powi(t))).sqrt() + epsilon);
            }
        });
        assert_near(&trained(&training, 0, 0.3), &expected, &training, &format!("{optimiser:?} {decay}"));
    }
}

#[test]
fn rates_follow_their_schedules_over_rounds_and_over_local_steps() {
    let cosine = Schedule { shape: ScheduleShape::Cosine, warm_up: Some(2), ..Schedule::default() };
    let halved = Schedule { shape: ScheduleShape::Step, every: Some(2), factor: Some(0.5), ..Schedule::default() };
    let training = training(|training| (training.schedule, training.local_schedule) = (Some(halved), Some(cosine)));
    // After 5 of 10 rounds the rate was halved twice; when all are over it is whole again.
    for (round, factor) in [(5, 0.25), (10, 1.0)] {
        let expected = expected(&training, 0.0, |gradient, p, step| {
            let local = match step {
                0 | 1 => (step + 1) as f64 / 3.0,
                _ => 0.5 * (1.0 + (std::f64::consts::PI * (step - 2) as f64 / (STEPS - 2) as f64).cos()),
            };
            p.iter_mut().zip(gradient).for_each(|(p, g)| *p -= RATE * factor * local * g);
        });
        assert_near(&trained(&training, round, 0.0), &expected, &training, &format!("round {round}"));
    }
}

#[test]
fn settings_that_mean_nothing_to_an_optimiser_are_refused_by_name() {
    let refused = |change: &dyn Fn(&mut Training), setting: &str| {
        let mut training = Training::default();
        change(&mut training);
        let error = training.validate().expect_err(setting).to_string();
        assert!(error.contains(setting), "{error}");
    };
    refused(&|training| training.nesterov = true, "training.nesterov");
    refused(&|training| training.beta_1 = Some(0.5), "training.beta_1");
    refused(&|training| training.epsilon = Some(1e-3), "training.epsilon");
    refused(&|training| (training.optimiser, training.momentum) = (OptimiserName::Adam, Some(0.9)), "training.momentum");
    refused(&|training| (training.optimiser, training.beta_2) = (OptimiserName::AdamW, Some(1.0)), "training.beta_2");
    refused(&|training| (training.optimiser, training.epsilon) = (OptimiserName::Adam, Some(0.0)), "training.epsilon");
    refused(&|training| training.momentum = Some(1.0), "training.momentum");
    refused(&|training| training.weight_decay = Some(-0.1), "training.weight_decay");
    refused(&|training| training.clip_gradient = Some(0.0), "training.clip_gradient");
}

#[test]
fn left_out_settings_are_not_written_down() {
    let text = serde_json::to_string(&Training::default()).expect("writable");
    for setting in ["optimiser", "momentum", "nesterov", "weight_decay", "beta", "epsilon", "clip_gradient", "schedule"] {
        assert!(!text.contains(setting), "{text}");
    }
}
