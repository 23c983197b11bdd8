//! Whole federations with a private mean, on a convex problem.
mod common;

use common::{CLIENTS, Problem, Rounds, SHARED};
use fedeq_core::{
    Algorithm, Clipping, Codec, Compression, FedEq, FedRep, InProcess, NoiseBy, Plan, Privacy, Round, Sampling,
    SecureAggregation, Server, ServerState, ServerStep, Training,
};
use fedeq_data::Seed;

fn run(problem: &Problem, algorithm: &dyn Algorithm, plan: &Plan) -> (ServerState, Vec<Round>) {
    run_from(problem.server(algorithm, 0.1), 0.05, problem, algorithm, plan)
}

/// The same, from what a server begins with, at a learning rate.
fn run_from(
    mut server: ServerState,
    learning_rate: f64,
    problem: &Problem,
    algorithm: &dyn Algorithm,
    plan: &Plan,
) -> (ServerState, Vec<Round>) {
    let dual = algorithm.initial_dual(&Problem::start(), Seed::new(1));
    let mut store = problem.store(move |_| dual.clone());
    let (never, engine, mut rounds) = (|| false, problem.engine(), Rounds::default());
    let training = Training { learning_rate, epochs: 5, personal_epochs: 5, ..Training::default() };
    let mut transport = InProcess::new(algorithm, &training, &engine, &mut store, Seed::new(1), &never)
        .compressing(plan.compression.as_ref())
        .securing(plan.secure_rounds(algorithm, CLIENTS).expect("sound"))
        .noisy(plan.has_noise_in_clear());
    let mut federation = Server { algorithm, plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
    assert!(federation.run(&mut server, &mut [&mut rounds]).expect("a sound federation").is_continue());
    (server, rounds.0)
}

fn plan(sampling: Sampling, privacy: Option<Privacy>) -> Plan {
    Plan { rounds: 20, sampling, evaluate_every: 0, privacy, ..Plan::default() }
}

#[test]
fn with_hardly_any_noise_and_a_bound_that_nothing_reaches_it_is_the_federation_without_privacy() {
    let problem = Problem::new(3);
    let consensus = FedEq { server_step: ServerStep::Consensus, rho: 0.1, ..FedEq::default() };
    let methods: [&dyn Algorithm; 3] = [&FedRep::default(), &FedEq { rho: 0.1, ..FedEq::default() }, &consensus];
    for algorithm in methods {
        for (sampling, noise) in [(0.5, NoiseBy::Server), (0.5, NoiseBy::Clients), (1.0, NoiseBy::Server)] {
            let sampling = Sampling { fraction: sampling, ..Sampling::default() };
            let privacy = Privacy { clip: Clipping::Fixed(1e3), noise_multiplier: Some(1e-10), noise, ..Privacy::default() };
            let (plain, _) = run(&problem, algorithm, &plan(sampling, None));
            let (private, _) = run(&problem, algorithm, &plan(sampling, Some(privacy)));
            let apart = plain.weights.params.minus(&private.weights.params).norm();
            assert!(apart < 1e-4 && plain.weights.params.norm() > 0.1, "{apart}");
        }
    }
}

#[test]
fn a_round_without_clients_moves_theta_by_noise_and_costs_as_much_as_any_other() {
    let problem = Problem::new(3);
    let without_clients = Sampling { fraction: 1e-9, replacement: false, poisson: true };
    let (still, rounds) = run(&problem, &FedRep::default(), &plan(without_clients, None));
    assert_eq!(still.weights.params.norm(), 0.0, "without privacy nothing moves");
    assert!(rounds.iter().all(|round| round.cohort.is_empty() && round.training_loss().is_none()));

    let seldom = Sampling { fraction: 0.05, replacement: false, poisson: true };
    let privacy = Privacy { clip: Clipping::Fixed(0.5), noise_multiplier: Some(1.0), ..Privacy::default() };
    let (moved, rounds) = run(&problem, &FedRep::default(), &plan(seldom, Some(privacy)));
    assert!(rounds.iter().any(|round| round.cohort.is_empty()) && moved.weights.params.norm() > 0.0);
    let spent: Vec<f64> = rounds.iter().map(|round| round.privacy.expect("told").epsilon).collect();
    assert!(spent.windows(2).all(|pair| pair[0] < pair[1]), "{spent:?}");
    let deviation = rounds[0].privacy.expect("told").deviation;
    assert!((deviation - 0.5 / (0.05 * CLIENTS as f64)).abs() < 1e-12);
    // Twenty rounds of noise in four coordinates, and hardly anything else.
    let expected = deviation * (20.0 * SHARED as f64).sqrt();
    let norm = moved.weights.params.norm();
    assert!(norm > 0.3 * expected && norm < 2.0 * expected, "{norm} and {expected}");
}

#[test]
fn what_a_codec_loses_on_the_way_to_clients_is_no_change_of_theirs() {
    // Clients receive something else than theta, each something of its own, and change nothing of it: then theta stays, whatever the bound is.
    let (problem, method) = (Problem::new(3), FedRep::default());
    let mut server = problem.server(&method, 0.1);
    server.weights.params = server.weights.params.map(|value| 1.3 * (value + 0.7));
    let privacy = Privacy { noise_multiplier: Some(1e-12), noise: NoiseBy::Clients, ..Privacy::default() };
    let compression = Compression { down: Some(Codec::TopK(0.4)), ..Compression::default() };
    let moved = |noise| {
        let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
        let plan = Plan { compression: Some(compression), ..plan(sampling, Some(Privacy { noise, ..privacy })) };
        plan.validate(&method).expect("sound");
        let (after, _) = run_from(server.clone(), 1e-30, &problem, &method, &plan);
        after.weights.params.minus(&server.weights.params).norm()
    };
    assert!(moved(NoiseBy::Clients) < 1e-5, "{}", moved(NoiseBy::Clients));
    assert!(moved(NoiseBy::Server) > 0.1, "a codec that loses nothing would prove nothing");
}

#[test]
fn noise_under_masks_is_all_that_moves_a_model_that_clients_receive_compressed_and_leave_alone() {
    let (problem, method) = (Problem::new(3), FedRep::default());
    let mut server = problem.server(&method, 0.1);
    server.weights.params = server.weights.params.map(|value| 1.3 * (value + 0.7));
    let privacy =
        Privacy { clip: Clipping::Fixed(0.5), noise_multiplier: Some(1.0), noise: NoiseBy::Clients, ..Privacy::default() };
    let secure_aggregation = Some(SecureAggregation { precision_bits: 20, ..SecureAggregation::default() });
    let run = |codec: Option<Codec>| {
        let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
        let compression = codec.map(|codec| Compression { down: Some(codec), ..Compression::default() });
        let plan = Plan { compression, secure_aggregation: secure_aggregation.clone(), ..plan(sampling, Some(privacy)) };
        plan.validate(&method).expect("sound");
        run_from(server.clone(), 1e-30, &problem, &method, &plan)
    };
    let ((whole, rounds), (compressed, fewer)) = (run(None), run(Some(Codec::TopK(0.4))));
    // What the codec loses is another thing for each client and in each round; the noise is the same.
    assert_eq!(whole.weights, compressed.weights);
    let deviation = rounds[0].privacy.expect("told").deviation;
    let (expected, moved) =
        (deviation * (20.0 * SHARED as f64).sqrt(), whole.weights.params.minus(&server.weights.params).norm());
    assert!(moved > 0.3 * expected && moved < 2.0 * expected, "{moved} and {expected}");
    let spent = |rounds: &[Round]| rounds.iter().map(|round| round.privacy).collect::<Vec<_>>();
    assert_eq!(spent(&rounds), spent(&fewer));
    assert!(rounds.iter().zip(&fewer).all(|(round, fewer)| round.sent.down != fewer.sent.down), "it is sent compressed");
}
