//! Consensus without rounds reaches the same consensus.
mod common;

use common::{CLIENTS, Problem, thorough};
use fedeq_core::{Algorithm, Arrival, Asynchronous, FedEq, InProcess, ServerState, ServerStep};
use fedeq_data::Seed;

fn run(problem: &Problem, settings: Asynchronous, updates: u64) -> (ServerState, Vec<Arrival>) {
    let method = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let training = thorough(0.2);
    let mut server = problem.server(&method, 0.7);
    let dual = method.initial_dual(&Problem::start().theta(), Seed::new(1));
    let mut store = problem.store(move |_| dual.clone());
    let never = || false;
    let mut transport = InProcess::new(&method, &training, problem, &mut store, Seed::new(1), &never);
    let mut arrivals = Vec::new();
    let note = |_: &ServerState, arrival| arrivals.push(arrival);
    settings.run(&method, (&mut transport, CLIENTS), &mut server, updates, Seed::new(4), note).expect("sound");
    (server, arrivals)
}

#[test]
fn clients_of_different_speeds_reach_the_optimum() {
    let problem = Problem::new(3);
    let (server, arrivals) = run(&problem, Asynchronous { slowest: 20.0, max_staleness: 60 }, 1500);
    assert!(problem.error(&server.weights) < 1e-3, "{}", problem.error(&server.weights));
    let count = |client| arrivals.iter().filter(|arrival| arrival.client == client).count();
    let counts: Vec<usize> = (0..CLIENTS).map(count).collect();
    assert!(counts.iter().max() > counts.iter().min(), "speeds differ: {counts:?}");
    assert!(arrivals.iter().any(|arrival| arrival.staleness > CLIENTS as u64), "some updates are old");
    assert!(arrivals.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

#[test]
fn staleness_is_bounded() {
    let problem = Problem::new(3);
    for max_staleness in [8, 12] {
        let (_, arrivals) = run(&problem, Asynchronous { slowest: 50.0, max_staleness }, 300);
        assert!(arrivals.iter().all(|arrival| arrival.staleness <= max_staleness), "{max_staleness}");
    }
}
