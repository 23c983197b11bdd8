//! ADMM on a convex consensus problem with a known optimum. The penalty is never 1: with 1, a wrong dual could go unseen.
mod common;

use common::{LeastSquares, Problem, thorough};
use fedeq_core::{
    BalanceRho, ClientState, Ditto, DualStart, FedAvg, FedEq, LocalProblem, Params, ServerStep, ThetaStart, Training,
};

fn fedeq(rho: f64, server_step: ServerStep) -> FedEq {
    FedEq { rho, server_step, ..FedEq::default() }
}

#[test]
fn fedeq_reaches_the_optimum_consensus_and_stationarity() {
    let problem = Problem::new(3);
    for (start, fraction) in
        [(ThetaStart::Received, 1.0), (ThetaStart::Own, 1.0), (ThetaStart::Own, 0.5), (ThetaStart::Received, 0.25)]
    {
        let method = FedEq { start, ..fedeq(0.7, ServerStep::Consensus) };
        let mut last = None;
        let server = problem.run(&method, &thorough(0.2), (0.7, fraction, 150), |_, evaluation| last = Some(evaluation.clone()));
        let evaluation = last.expect("evaluated");
        let theory = evaluation.theory.expect("measured");
        assert!(problem.error(&server.weights) < 1e-4, "{start:?} {fraction}: {}", problem.error(&server.weights));
        assert!(evaluation.gap < 1e-4, "{start:?} {fraction}: {}", evaluation.gap);
        assert!(theory.stationarity < 1e-3 && theory.head_gradient < 1e-3, "{start:?} {fraction}: {theory:?}");
        assert!(evaluation.dual_norm > 0.01, "the duals do the work: {}", evaluation.dual_norm);
        assert!((evaluation.local.loss - problem.optimum.loss).abs() < 1e-4);
    }
}

#[test]
fn the_plain_mean_reaches_consensus_but_holds_it_to_the_start_by_rho() {
    // theta is averaged before the duals move, so the duals telescope to rho (theta - theta^0) a client, and the stationary point is that of
    // sum_i L_i + (rho / 2) ||theta - theta^0||^2 a client, here with theta^0 = 0.
    let problem = Problem::new(3);
    for rho in [0.1, 0.7, 3.0] {
        let (mut gap, mut states) = (f64::INFINITY, Vec::new());
        let watch = |_: &_, evaluation: &fedeq_core::Evaluation| gap = evaluation.gap;
        let (server, clients) = problem.run_to_states(&fedeq(rho, ServerStep::Mean), &thorough(0.2), (rho, 1.0, 200), watch);
        states.extend(clients);
        let gradients: Vec<_> =
            problem.clients.iter().zip(&states).map(|(problem, state)| gradient_of_theta(problem, state)).collect();
        let mean = Params::mean(gradients.iter().map(|gradient| (gradient, 1.0)).collect::<Vec<_>>());
        let expected = server.weights.params.map(|theta| -rho as f32 * theta);
        assert!(gap < 1e-4, "rho {rho}: {gap}");
        assert!(mean.minus(&expected).norm() < 2e-3 * expected.norm(), "rho {rho}: {mean:?} {expected:?}");
        assert!(problem.error(&server.weights) > 0.05, "rho {rho}: {}", problem.error(&server.weights));
    }
}

fn gradient_of_theta(problem: &LeastSquares, state: &ClientState) -> Params {
    let (_, gradient) = problem.gradient(&state.own).expect("sound");
    gradient.filter(|path| path == "theta")
}

#[test]
fn without_the_dual_consensus_is_not_reached() {
    // The same local work and penalty, but FedAvg-like averaging only: clients keep drifting to their own optima.
    let problem = Problem::new(3);
    let training = Training { epochs: 5, ..thorough(0.2) };
    let mut gap = 0.0;
    problem.run(&FedAvg::default(), &training, (0.0, 1.0, 100), |_, evaluation| gap = evaluation.gap);
    assert!(gap > 0.05, "{gap}");
}

#[test]
fn the_augmented_lagrangian_falls_every_round_when_rho_exceeds_6_l() {
    let problem = Problem::new(5);
    let rho = 6.5 * problem.smoothness();
    let mut values = Vec::new();
    // The theta-step of the theorem minimises the augmented Lagrangian from theta_i; its curvature is L + rho.
    let method = FedEq { start: ThetaStart::Own, ..fedeq(rho, ServerStep::Consensus) };
    let training = thorough(1.0 / (1.2 * rho));
    problem.run(&method, &training, (rho, 1.0, 60), |_, evaluation| {
        values.push(evaluation.theory.as_ref().expect("measured").lagrangian);
    });
    // What is left to fall at the end is below the resolution of f32 parameters.
    let resolution = 1e-6 * values[0].abs();
    let rises: Vec<_> = values.windows(2).filter(|pair| pair[1] > pair[0] + resolution).collect();
    assert!(rises.is_empty(), "{rises:?}");
    assert!(values[59] < 0.9 * values[0], "{values:?}");
}

#[test]
fn the_exact_step_finds_the_optimum_from_any_duals() {
    let problem = Problem::new(7);
    for dual in [DualStart::Constant(0.3), DualStart::Uniform(0.5)] {
        let method = FedEq { dual, ..fedeq(0.7, ServerStep::Consensus) };
        let server = problem.run(&method, &thorough(0.2), (0.7, 1.0, 150), |_, _| ());
        assert!(problem.error(&server.weights) < 1e-3, "{dual:?}: {}", problem.error(&server.weights));
    }
}

#[test]
fn balancing_moves_rho_until_the_residuals_agree_and_brings_clients_together() {
    let problem = Problem::new(3);
    let training = Training { epochs: 2000, ..thorough(0.003) };
    let run = |rho: f64, balance: Option<BalanceRho>| {
        let method = FedEq { balance, ..fedeq(rho, ServerStep::Mean) };
        let (mut rhos, mut gap) = (Vec::new(), 0.0);
        let server = problem.run(&method, &training, (rho, 1.0, 60), |server, evaluation| {
            rhos.push(server.rho.expect("a method with a penalty"));
            gap = evaluation.gap;
        });
        (rhos, gap, problem.error(&server.weights))
    };
    for rho in [1e-3, 300.0] {
        let (rhos, gap, error) = run(rho, Some(BalanceRho { ratio: 3.0, factor: 1.5 }));
        let (_, fixed_gap, fixed_error) = run(rho, None);
        let (least, most) =
            rhos[40..].iter().fold((f64::INFINITY, 0.0f64), |(least, most), rho| (least.min(*rho), most.max(*rho)));
        assert!(0.01 < least && most < 30.0 && most < 5.0 * least, "it settles, wherever it began: {rhos:?}");
        assert!(gap < 1e-6, "{rho}: clients agree: {gap}");
        // With the plain mean they agree where rho lets them, which need not be the optimum: a rho that begins too large makes them agree
        // near the start before it can shrink. One that begins too small is repaired.
        assert!(error < 1.01 * fixed_error, "{rho}: {error} against {fixed_error}");
        if rho < 1.0 {
            assert!(fixed_gap > 0.1 && error < 0.5 * fixed_error, "{rho}: {fixed_gap}, {error} against {fixed_error}");
        }
    }
}

#[test]
fn ditto_with_a_huge_penalty_approaches_fedavg() {
    let problem = Problem::new(11);
    let training = Training { epochs: 20, ..thorough(0.05) };
    let distance = |penalty: f64| {
        let method = Ditto { penalty, ..Ditto::default() };
        let training = Training { learning_rate: 0.05 / (1.0 + penalty / 10.0), ..training.clone() };
        let (mut personal, mut global) = (0.0, 0.0);
        problem.run(&method, &training, (0.0, 1.0, 60), |_, evaluation| {
            personal = evaluation.local.loss;
            global = evaluation.shared.as_ref().expect("shared").loss;
        });
        (personal - global).abs()
    };
    let (loose, tight) = (distance(0.1), distance(1000.0));
    assert!(tight < 0.05 * loose, "{loose} {tight}");
}
