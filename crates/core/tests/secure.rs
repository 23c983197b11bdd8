//! Federations whose server learns only sums: training hardly notices, bytes are those of the protocol, and the same seed gives the same bytes.
mod common;
mod digits;

use common::{Problem, Rounds, thorough};
use digits::{Digits, brief};
use fedeq_core::{
    Algorithm, ClientByClient, ClientState, ClientStore, Codec, Compression, Engine, FedAvg, FedEq, InProcess, Method, Plan,
    Result, Round, Sampling, SecureAggregation, Server, ServerState, ServerStep, Training, Weighting, Weights, Workers,
    shared_part,
};
use fedeq_data::Seed;

fn run(
    engine: &dyn Engine,
    algorithm: &dyn Algorithm,
    training: &Training,
    first: &Weights,
    secure_aggregation: Option<SecureAggregation>,
    rounds: u64,
) -> Result<(ServerState, Vec<Round>)> {
    run_compressed(engine, algorithm, training, first, first, secure_aggregation, None, rounds)
}

/// The same, whose server begins with `theta` where clients know `first`, and compresses what it sends.
#[allow(clippy::too_many_arguments)]
fn run_compressed(
    engine: &dyn Engine,
    algorithm: &dyn Algorithm,
    training: &Training,
    first: &Weights,
    theta: &Weights,
    secure_aggregation: Option<SecureAggregation>,
    compression: Option<Compression>,
    rounds: u64,
) -> Result<(ServerState, Vec<Round>)> {
    let clients = engine.clients();
    let (fresh, dual) = (first.clone(), algorithm.initial_dual(first, Seed::new(3)));
    let warm_start = training.warm_start;
    let mut store =
        ClientStore::new("nowhere".into(), usize::MAX, move |_| ClientState::fresh(fresh.clone(), dual.clone(), warm_start));
    let sampling = Sampling { fraction: 1.0, ..Sampling::default() };
    let plan = Plan { rounds, sampling, evaluate_every: 0, secure_aggregation, compression, ..Plan::default() };
    let never = || false;
    let secure = plan.secure_rounds(algorithm, clients)?;
    let mut transport = InProcess::new(algorithm, training, engine, &mut store, Seed::new(1), &never)
        .compressing(plan.compression.as_ref())
        .securing(secure);
    let mut server = ServerState::new(shared_part(algorithm, theta), clients, algorithm.initial_rho());
    let mut told = Rounds::default();
    let mut federation = Server { algorithm, plan: &plan, clients, transport: &mut transport, seed: Seed::new(2) };
    let _ = federation.run(&mut server, &mut [&mut told])?;
    Ok((server, told.0))
}

#[test]
fn the_consensus_step_reaches_the_optimum_all_the_same_unless_too_much_is_cut_off() {
    let (problem, training) = (Problem::new(3), thorough(0.2));
    let method = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let engine = problem.engine();
    let run = |secure| run(&engine, &method, &training, &Problem::start(), Some(secure), 150).expect("sound");
    let (server, rounds) = run(SecureAggregation { clip: 4.0, precision_bits: 20, ..SecureAggregation::default() });
    assert!(rounds.iter().all(|round| round.clipped == Some(0)));
    let error = problem.error(&server.weights);
    assert!(error < 2e-3, "{error}");
    let (_, rounds) = run(SecureAggregation { clip: 1e-3, precision_bits: 20, ..SecureAggregation::default() });
    assert!(rounds[0].clipped.is_some_and(|clipped| clipped > 0));
}

#[test]
fn samples_weight_the_mean_in_secret_too() {
    let (problem, training) = (Problem::new(3), thorough(0.01));
    let engine = problem.engine();
    let method = FedAvg { weighting: Weighting::Samples, ..FedAvg::default() };
    let run = |secure| run(&engine, &method, &training, &Problem::start(), secure, 3);
    let (plain, _) = run(None).expect("sound");
    let secure = SecureAggregation { clip: 4.0, precision_bits: 24, largest_weight: Some(30), ..SecureAggregation::default() };
    let (secret, _) = run(Some(secure.clone())).expect("sound");
    let distance = plain.weights.params.minus(&secret.weights.params).norm();
    assert!(distance < 1e-5 * plain.weights.params.norm(), "{distance}");
    let refused = |secure| run(Some(secure)).expect_err("refused").to_string();
    assert!(refused(SecureAggregation { largest_weight: None, ..secure.clone() }).contains("largest_weight` is missing"));
    assert!(refused(SecureAggregation { largest_weight: Some(29), ..secure }).contains("a client has 30 samples"));
}

fn down(codec: Codec) -> Option<Compression> {
    Some(Compression { down: Some(codec), ..Compression::default() })
}

#[test]
fn what_a_codec_loses_on_the_way_to_clients_is_not_in_the_sum_of_their_changes() {
    // Clients receive something else than theta, each something of its own, and change nothing of it: then theta stays, to the last bit.
    let (problem, first) = (Problem::new(3), Problem::start());
    let mut theta = first.clone();
    theta.params = theta.params.map(|value| value + 0.7).map(|value| value * 1.3);
    let training = Training { learning_rate: 1e-30, ..thorough(0.0) };
    let method = FedAvg { weighting: Weighting::Uniform, ..FedAvg::default() };
    let (engine, secure) = (problem.engine(), SecureAggregation { precision_bits: 20, ..SecureAggregation::default() });
    let run = |secure| run_compressed(&engine, &method, &training, &first, &theta, secure, down(Codec::TopK(0.4)), 3);
    let (server, _) = run(Some(secure)).expect("sound");
    assert_eq!(server.weights, shared_part(&method, &theta));
    let (server, _) = run(None).expect("sound");
    assert!(server.weights != shared_part(&method, &theta), "a codec that loses nothing would prove nothing");
}

#[test]
fn a_model_that_is_compressed_on_its_way_down_is_summed_in_secret_for_fewer_bytes() {
    let training = brief();
    let digits = Digits::new("resnet-xs", training.clone());
    let engines = [1, 2].map(|threads| ClientByClient::new(&digits, Workers::new(threads).expect("threads")));
    let secure = SecureAggregation { precision_bits: 20, ..SecureAggregation::default() };
    for name in ["fedeq", "fedavg", "fedrep", "scaffold"] {
        let method = Method::named(name).expect("known");
        let algorithm = method.algorithm();
        let clip = if algorithm.sends_control() { 16.0 } else { secure.clip };
        let largest_weight = (algorithm.weighting() == Weighting::Samples).then_some(100);
        let secure = SecureAggregation { clip, largest_weight, ..secure.clone() };
        let first = digits.initial();
        let run = |engine, codec: Option<Compression>| {
            run_compressed(engine, algorithm, &training, &first, &first, Some(secure.clone()), codec, 3).expect("sound")
        };
        let (_, sent) = run(&engines[0], None);
        let (small, fewer) = run(&engines[0], down(Codec::Int8));
        let (again, _) = run(&engines[1], down(Codec::Int8));
        assert_eq!(small.to_bytes().expect("writable"), again.to_bytes().expect("writable"), "{name}");
        let (plain, small) = (sent[2].sent, fewer[2].sent);
        // A byte a number and scales instead of four bytes; up, the same vectors under masks, beside losses that may have more or fewer digits.
        assert!(small.up.abs_diff(plain.up) < plain.up / 100, "{name}: {small:?} {plain:?}");
        assert!(small.down < plain.down / 3, "{name}: {small:?} {plain:?}");
        // Masks take nothing from what arrives compressed. One round: training makes more of a difference that rounding made in the round before.
        let one = |secret: Option<SecureAggregation>| {
            let (server, _) =
                run_compressed(&engines[0], algorithm, &training, &first, &first, secret, down(Codec::Int8), 1).expect("sound");
            server.weights.params
        };
        let (open, secret) = (one(None), one(Some(SecureAggregation { precision_bits: 24, ..secure.clone() })));
        let distance = open.minus(&secret).norm() / open.norm();
        assert!(distance < 1e-5, "{name}: {distance}");
    }
}

#[test]
fn every_method_that_sends_gives_nearly_the_same_network_and_the_same_bytes_on_any_number_of_threads() {
    let training = brief();
    let digits = Digits::new("resnet-xs", training.clone());
    let engines = [1, 2].map(|threads| ClientByClient::new(&digits, Workers::new(threads).expect("threads")));
    for name in Method::NAMES.into_iter().filter(|name| *name != "local") {
        let method = Method::named(name).expect("known");
        // One round: training makes more of a difference that rounding made in the round before.
        let run = |engine, secure| run(engine, method.algorithm(), &training, &digits.initial(), secure, 1);
        let mut secure = SecureAggregation { precision_bits: 20, ..SecureAggregation::default() };
        if method.algorithm().sends_control() {
            // A gradient is sent beside the model, whose numbers are larger than the changes of one round.
            secure = SecureAggregation { clip: 16.0, precision_bits: 24, ..secure };
        }
        if run(&engines[0], Some(secure.clone())).is_err() {
            // Clients are weighted by their samples.
            secure.largest_weight = Some(100);
        }
        let (plain, sent) = run(&engines[0], None).expect("sound");
        let (secret, rounds) = run(&engines[0], Some(secure.clone())).expect("sound");
        let (again, _) = run(&engines[1], Some(secure)).expect("sound");
        assert_eq!(secret.to_bytes().expect("writable"), again.to_bytes().expect("writable"), "{name}");
        assert_eq!(secret.weights.statistics.iter().count() == 0, method.algorithm().keeps_normalisations(), "{name}");
        let distance = plain.weights.params.minus(&secret.weights.params).norm() / plain.weights.params.norm();
        assert!(distance < 1e-5, "{name}: {distance}");
        let (plain, secret) = (sent[0].sent, rounds[0].sent);
        // 23 or 24 bits a number instead of 32 go up; keys and shares come beside.
        assert!(secret.up < plain.up && secret.down > plain.down, "{name}: {secret:?} {plain:?}");
    }
}
