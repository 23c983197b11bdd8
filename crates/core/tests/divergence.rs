//! What is no longer finite is told as such, with the client, the round and what to lower.
mod common;

use common::{CLIENTS, LeastSquares, Problem, thorough};
use fedeq_core::{
    Algorithm, BalanceRho, ClientByClient, Error, FedAvg, FedEq, InProcess, LocalProblem, LocalProblems, Neighbours, Params,
    Phase, PhaseSeed, Plan, Portion, ProximalGradient, Result, Sampling, Score, Server, TrainStats, Training, Weights, Workers,
};
use fedeq_data::Seed;
use fedeq_equilibrium::WarmMemory;

/// A client whose test loss is infinite.
struct Hopeless(LeastSquares);

impl LocalProblem for Hopeless {
    fn samples(&self) -> usize {
        self.0.samples()
    }

    fn train(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        self.0.train(weights, memory, phase, proximal, seed)
    }

    fn score(&self, _: &Weights, _: Portion, _: Option<&Neighbours>) -> Result<Score> {
        Ok(Score { predictions: 1, correct: 0, loss: f64::INFINITY })
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        self.0.gradient(weights)
    }
}

/// All are well but for client 3.
struct OneHopeless(Problem);

impl LocalProblems for OneHopeless {
    fn clients(&self) -> usize {
        CLIENTS
    }

    fn name(&self, client: usize) -> String {
        format!("ward-{client}")
    }

    fn problem(&self, client: usize) -> Result<Box<dyn LocalProblem + '_>> {
        let sound = self.0.clients[client].clone();
        Ok(if client == 3 { Box::new(Hopeless(sound)) } else { Box::new(sound) })
    }
}

fn failure(algorithm: &dyn Algorithm, problems: &dyn LocalProblems, training: &Training, rho: f64) -> Error {
    let problem = Problem::new(3);
    let (mut server, mut store) = (problem.server(algorithm, rho), problem.store(|_| Params::default()));
    if algorithm.penalty(Some(rho)).is_some() {
        store = problem.store(|_| Problem::start().theta().zeros_like());
    }
    let never = || false;
    let engine = ClientByClient::new(problems, Workers::new(2).expect("threads"));
    let mut transport = InProcess::new(algorithm, training, &engine, &mut store, Seed::new(1), &never);
    let sampling = Sampling { fraction: 1.0, ..Sampling::default() };
    let plan = Plan { rounds: 5, evaluate_every: 2, sampling, ..Plan::default() };
    let mut federation = Server { algorithm, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
    federation.run(&mut server, &mut []).expect_err("it diverges")
}

#[test]
fn a_score_that_is_not_finite_names_its_client_and_round() {
    let error = failure(&FedAvg::default(), &OneHopeless(Problem::new(3)), &thorough(0.2), 0.0);
    assert_eq!(error.to_string(), "after round 2, client `ward-3`: the test loss with theta_i is `inf`");
    assert_eq!(error.hint(), "lower `training.learning_rate`, which is `0.2`");
}

#[test]
fn a_penalty_that_diverges_by_itself_is_blamed() {
    let problem = Problem::new(3);
    let error = failure(&FedEq { rho: 1e9, ..FedEq::default() }, &problem, &thorough(0.2), 1e9);
    assert!(error.to_string().starts_with("in round 1, client `"), "{error}");
    assert!(error.hint().starts_with("lower `method.rho`, which is `1000000000`: "), "{}", error.hint());
    assert!(error.hint().contains("it must be below 10,"), "{}", error.hint());
}

#[test]
fn a_penalty_that_grows_beyond_all_numbers_is_told() {
    // Without a word it would travel as nothing, and clients would use the one they began with.
    let balance = Some(BalanceRho { ratio: 1e-9, factor: 3e38 });
    let error = failure(&FedEq { rho: 2.0, balance, ..FedEq::default() }, &Problem::new(3), &thorough(0.2), 2.0);
    assert_eq!(error.to_string(), "in round 1, the penalty `rho` is `6e38`");
    assert!(error.hint().contains("method.balance"), "{}", error.hint());
}
