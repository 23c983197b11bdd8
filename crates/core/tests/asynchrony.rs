//! Asynchronous consensus reaches the same consensus.
mod common;

use std::ops::ControlFlow;

use common::{CLIENTS, Problem, thorough};
use fedeq_core::{
    Algorithm, Asynchronous, Ditto, Error, Event, FedAvg, FedEq, InProcess, Observer, Plan, Result, Round, Sampling, Server,
    ServerState, ServerStep,
};
use fedeq_data::Seed;

/// Keeps the rounds, and what the server's state was after each, written and read again.
#[derive(Default)]
struct Notes {
    rounds: Vec<Round>,
    states: Vec<Vec<u8>>,
}

impl<T> Observer<T> for Notes {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, .. } => self.rounds.push((*round).clone()),
            Event::Settled { server, .. } => self.states.push(server.to_bytes()?),
            Event::Evaluation { .. } | Event::Dropped { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn method() -> FedEq {
    FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() }
}

fn plan(asynchronous: Asynchronous, updates: u64) -> Plan {
    let sampling = Sampling { fraction: 0.5, ..Sampling::default() };
    Plan { rounds: updates / 4, sampling, evaluate_every: 0, asynchronous: Some(asynchronous), ..Plan::default() }
}

/// Runs a plan; `between` may put another state in the server's place after every round.
fn run(problem: &Problem, plan: &Plan, between: impl Fn(&ServerState) -> ServerState) -> (ServerState, Notes) {
    let (method, training) = (method(), thorough(0.2));
    let mut server = problem.server(&method, 0.7);
    let dual = method.initial_dual(&Problem::start(), Seed::new(1));
    let mut store = problem.store(move |_| dual.clone());
    let never = || false;
    let engine = problem.engine();
    let mut transport = InProcess::new(&method, &training, &engine, &mut store, Seed::new(1), &never);
    let mut notes = Notes::default();
    for rounds in 1..=plan.rounds {
        let plan = Plan { rounds, ..plan.clone() };
        let mut federation =
            Server { algorithm: &method, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(4) };
        let mut observers: [&mut dyn Observer<_>; 1] = [&mut notes];
        assert!(federation.run(&mut server, &mut observers).expect("sound").is_continue());
        server = between(&server);
    }
    (server, notes)
}

#[test]
fn clients_of_different_speeds_reach_the_optimum() {
    let problem = Problem::new(3);
    let (server, notes) = run(&problem, &plan(Asynchronous { slowest: 20.0, max_staleness: 60 }, 1500), Clone::clone);
    assert!(problem.error(&server.weights) < 1e-3, "{}", problem.error(&server.weights));
    let cohorts = || notes.rounds.iter().flat_map(|round| round.cohort.iter());
    let counts: Vec<usize> = (0..CLIENTS).map(|client| cohorts().filter(|other| **other == client).count()).collect();
    assert!(counts.iter().max() > counts.iter().min(), "speeds differ: {counts:?}");
    let arrivals: Vec<_> = notes.rounds.iter().flat_map(|round| round.arrivals.clone()).collect();
    assert_eq!((arrivals.len(), cohorts().count()), (1500, 1500));
    assert!(arrivals.iter().any(|arrival| arrival.staleness > CLIENTS as u64), "some updates are old");
    assert!(arrivals.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

#[test]
fn staleness_is_bounded() {
    let problem = Problem::new(3);
    for max_staleness in [0, 8, 12] {
        let (_, notes) = run(&problem, &plan(Asynchronous { slowest: 50.0, max_staleness }, 300), Clone::clone);
        let mut arrivals = notes.rounds.iter().flat_map(|round| round.arrivals.iter());
        assert!(arrivals.all(|arrival| arrival.staleness <= max_staleness), "{max_staleness}");
    }
}

#[test]
fn work_under_way_survives_being_written_and_read() {
    let problem = Problem::new(3);
    let plan = plan(Asynchronous { slowest: 20.0, max_staleness: 60 }, 60);
    let fresh = problem.server(&method(), 0.7);
    let again = |server: &ServerState| {
        let bytes = server.to_bytes().expect("writable");
        let back = ServerState::from_bytes(&bytes, server.round, &fresh).expect("readable");
        assert_eq!(back, *server);
        back
    };
    let (whole, left_alone) = run(&problem, &plan, Clone::clone);
    let (resumed, written_and_read) = run(&problem, &plan, again);
    assert!(whole.schedule.as_ref().is_some_and(|schedule| schedule.applied() == 60));
    assert_eq!(whole, resumed);
    assert_eq!(left_alone.states, written_and_read.states);
}

#[test]
fn a_schedule_of_other_clients_is_refused() {
    let problem = Problem::new(3);
    let (server, _) = run(&problem, &plan(Asynchronous::default(), 8), Clone::clone);
    let bytes = server.to_bytes().expect("writable");
    let fresh = ServerState { clients: CLIENTS + 1, ..problem.server(&method(), 0.7) };
    let error = ServerState::from_bytes(&bytes, 2, &fresh).expect_err("not for so many");
    assert!(error.to_string().contains("schedule"), "{error}");
}

#[test]
fn only_a_server_that_takes_single_updates_can_do_without_rounds() {
    let mean = FedEq { server_step: ServerStep::Mean, ..method() };
    let plan = plan(Asynchronous::default(), 8);
    for refused in [&mean as &dyn Algorithm, &FedAvg::default(), &Ditto::default()] {
        assert!(matches!(plan.validate(refused), Err(Error::Invalid { .. })));
    }
    assert!(plan.validate(&method()).is_ok());
    for slowest in [0.5, f64::NAN, f64::INFINITY] {
        let plan = Plan { asynchronous: Some(Asynchronous { slowest, ..Asynchronous::default() }), ..plan.clone() };
        assert!(plan.validate(&method()).is_err());
    }
}
