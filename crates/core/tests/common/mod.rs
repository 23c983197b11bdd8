//! A convex federation with a known optimum, for tests of methods without any network.
#![allow(dead_code, reason = "each test binary uses its own part")]
use std::ops::ControlFlow;

use fedeq_core::{
    Algorithm, Array, ClientByClient, ClientState, ClientStore, Error, Event, InProcess, LocalProblem, LocalProblems, Neighbours,
    Observer, Params, Phase, PhaseSeed, Plan, Portion, ProximalGradient, Result, Round, Sampling, Score, Server, ServerState,
    TrainStats, Training, Weights, Workers, shared_part,
};
use fedeq_data::Seed;
use fedeq_data::source::synthetic::{Optimum, Regression};
use fedeq_equilibrium::{WarmMemory, WarmStart};
use fedeq_models::Part;

/// Keeps what is reported of rounds.
#[derive(Default)]
pub(crate) struct Rounds(pub(crate) Vec<Round>);

impl<T> Observer<T> for Rounds {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        if let Event::Round { round, .. } = event {
            self.0.push((*round).clone());
        }
        Ok(ControlFlow::Continue(()))
    }
}

pub(crate) const SHARED: usize = 4;
pub(crate) const PERSONAL: usize = 2;
pub(crate) const CLIENTS: usize = 8;

/// One client's least squares: `L(theta, w) = mean (<theta, a> + <w, b> - y)^2`, minimised by full gradient steps.
#[derive(Clone)]
pub(crate) struct LeastSquares {
    rows: Vec<(Vec<f64>, f64)>,
}

impl LeastSquares {
    /// The loss and its gradient at `(theta, w)`.
    fn value(&self, x: &[f64]) -> (f64, Vec<f64>) {
        let mut gradient = vec![0.0; x.len()];
        let mut loss = 0.0;
        for (row, target) in &self.rows {
            let error = row.iter().zip(x).map(|(a, b)| a * b).sum::<f64>() - target;
            loss += error * error;
            gradient.iter_mut().zip(row).for_each(|(sum, a)| *sum += 2.0 * error * a);
        }
        let n = self.rows.len() as f64;
        (loss / n, gradient.into_iter().map(|value| value / n).collect())
    }

    /// An upper bound of the largest curvature: the trace of the Hessian.
    pub(crate) fn smoothness(&self) -> f64 {
        let n = self.rows.len() as f64;
        self.rows.iter().flat_map(|(row, _)| row.iter().map(|a| 2.0 * a * a / n)).sum()
    }
}

pub(crate) fn weights(theta: &[f64], w: &[f64]) -> Weights {
    let array = |values: &[f64]| Array::new(vec![values.len()], values.iter().map(|&value| value as f32).collect());
    let params = [("theta".to_owned(), array(theta)), ("head.w".to_owned(), array(w))].into_iter().collect();
    Weights { params, statistics: Params::default() }
}

fn flat(params: &Params) -> Vec<f64> {
    ["theta", "head.w"]
        .iter()
        .flat_map(|name| params.get(name).expect("there").values.iter().map(|&value| value.into()))
        .collect()
}

fn named(values: &[f64]) -> Params {
    weights(&values[..SHARED], &values[SHARED..]).params
}

impl LocalProblem for LeastSquares {
    fn samples(&self) -> usize {
        self.rows.len()
    }

    fn train(
        &self,
        weights: &mut Weights,
        _: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        _: PhaseSeed,
    ) -> Result<TrainStats> {
        let mut x = flat(&weights.params);
        let mut stats = TrainStats::default();
        assert!(phase.is_plain(), "this problem takes plain steps");
        for epoch in 0..phase.epochs {
            let (loss, mut force) = self.value(&x);
            if let Some(proximal) = proximal {
                for (index, name) in ["theta", "head.w"].into_iter().enumerate() {
                    let Some(offset) = proximal.offset.get(name) else { continue };
                    for (at, value) in offset.values.iter().enumerate() {
                        force[index * SHARED + at] += proximal.strength * x[index * SHARED + at] + f64::from(*value);
                    }
                }
            }
            for (at, value) in x.iter_mut().enumerate() {
                let part = if at < SHARED { Part::Shared } else { Part::Personal };
                if phase.trains.includes(part) {
                    *value -= phase.rate(epoch as u64, phase.epochs as u64) * force[at];
                }
            }
            stats = TrainStats { steps: stats.steps + 1, loss, ..stats };
        }
        if x.iter().any(|value| !value.is_finite()) {
            return Err(Error::Diverged {
                problem: "the parameters are no longer finite".into(),
                remedy: "lower the step".into(),
            });
        }
        weights.params = named(&x);
        Ok(stats)
    }

    fn score(&self, weights: &Weights, _: Portion, _: Option<&Neighbours>) -> Result<Score> {
        let predictions = self.rows.len() as u64;
        Ok(Score { predictions, correct: 0, loss: self.value(&flat(&weights.params)).0 * predictions as f64 })
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        let (loss, gradient) = self.value(&flat(&weights.params));
        Ok((loss, named(&gradient)))
    }
}

/// A whole convex federation.
pub(crate) struct Problem {
    pub(crate) clients: Vec<LeastSquares>,
    pub(crate) optimum: Optimum,
}

impl Problem {
    pub(crate) fn new(seed: u64) -> Self {
        let problem = Regression { clients: CLIENTS, samples: 30, shared: SHARED, personal: PERSONAL, noise: 0.5 };
        let (data, optimum) = problem.generate(Seed::new(seed)).expect("a sound problem");
        let row = |(row, target): (&[f32], &f32)| (row.iter().map(|&value| value.into()).collect(), f64::from(*target));
        let rows: Vec<(Vec<f64>, f64)> = data.features.values.chunks(data.features.width).zip(&data.targets).map(row).collect();
        Self { clients: rows.chunks(30).map(|rows| LeastSquares { rows: rows.to_vec() }).collect(), optimum }
    }

    /// The same with clients that have different numbers of samples.
    pub(crate) fn unequal(seed: u64) -> Self {
        let mut problem = Self::new(seed);
        problem.clients.iter_mut().enumerate().for_each(|(client, data)| data.rows.truncate(30 - 2 * client));
        problem
    }

    /// All clients, two at a time.
    pub(crate) fn engine(&self) -> ClientByClient<'_> {
        ClientByClient::new(self, Workers::new(2).expect("threads"))
    }

    /// The largest curvature of any client's loss.
    pub(crate) fn smoothness(&self) -> f64 {
        self.clients.iter().map(LeastSquares::smoothness).fold(0.0, f64::max)
    }

    /// How far a shared parameter is from the optimum.
    pub(crate) fn error(&self, weights: &Weights) -> f64 {
        let theta = &weights.params.get("theta").expect("there").values;
        theta.iter().zip(&self.optimum.theta).map(|(&found, best)| (f64::from(found) - best).powi(2)).sum::<f64>().sqrt()
    }

    pub(crate) fn start() -> Weights {
        weights(&[0.0; SHARED], &[0.0; PERSONAL])
    }

    pub(crate) fn server(&self, algorithm: &dyn Algorithm, rho: f64) -> ServerState {
        ServerState::new(shared_part(algorithm, &Self::start()), CLIENTS, Some(rho))
    }

    pub(crate) fn store(&self, initial_dual: impl Fn(usize) -> Params + Send + Sync + 'static) -> ClientStore {
        ClientStore::new("nowhere".into(), usize::MAX, move |client| {
            ClientState::fresh(Self::start(), initial_dual(client), WarmStart::Off)
        })
    }

    /// Runs some rounds; `watch` sees the federation after each.
    pub(crate) fn run(
        &self,
        algorithm: &dyn Algorithm,
        training: &Training,
        settings: (f64, f64, u64),
        watch: impl FnMut(&ServerState, &fedeq_core::Evaluation),
    ) -> ServerState {
        self.run_to_states(algorithm, training, settings, watch).0
    }

    /// The same; also gives the clients' states at the end.
    pub(crate) fn run_to_states(
        &self,
        algorithm: &dyn Algorithm,
        training: &Training,
        (rho, fraction, rounds): (f64, f64, u64),
        mut watch: impl FnMut(&ServerState, &fedeq_core::Evaluation),
    ) -> (ServerState, Vec<ClientState>) {
        let mut server = self.server(algorithm, rho);
        let duals: Vec<Params> =
            (0..CLIENTS as u64).map(|client| algorithm.initial_dual(&Self::start(), Seed::new(client))).collect();
        let mut store = self.store(move |client| duals[client].clone());
        let never = || false;
        let engine = self.engine();
        let mut transport = InProcess::new(algorithm, training, &engine, &mut store, Seed::new(1), &never);
        for round in 1..=rounds {
            let sampling = Sampling { fraction, ..Sampling::default() };
            let plan = Plan { rounds: round, sampling, evaluate_every: 0, measure_theory: true, ..Plan::default() };
            let mut federation =
                Server { algorithm, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
            assert!(federation.run(&mut server, &mut []).expect("a sound federation").is_continue());
            let evaluation = federation.evaluation(&server).expect("a sound federation");
            watch(&server, &evaluation);
        }
        let states = (0..CLIENTS).map(|client| store.get(client).expect("in memory")).collect();
        (server, states)
    }
}

impl LocalProblems for Problem {
    fn clients(&self) -> usize {
        self.clients.len()
    }

    fn steps(&self, _: usize, _: &Training) -> usize {
        1
    }

    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>> {
        Ok(Box::new(self.clients[client].clone()))
    }
}

/// Training settings under which local problems are solved nearly exactly.
pub(crate) fn thorough(learning_rate: f64) -> Training {
    Training { learning_rate, personal_learning_rate: Some(0.3), epochs: 300, personal_epochs: 300, ..Training::default() }
}
