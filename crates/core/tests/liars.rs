//! Clients that do not reply, or lie: they are left out and named, and the federation continues with the others.
mod common;

use std::ops::ControlFlow;

use common::{CLIENTS, Problem, thorough};
use fedeq_core::{
    Acceptance, Aggregation, AggregationRule, Algorithm, Array, Asynchronous, BalanceRho, ClientTask, Dropped, Error, Evaluation,
    Event, FedAvg, FedEq, InProcess, Limits, Observer, Plan, Received, Reply, Request, Result, Round, Sampling, Server,
    ServerState, ServerStep, Traffic, TrainStats, Transport, Update, Weights,
};
use fedeq_data::Seed;

type Lie = fn(Reply) -> std::result::Result<Reply, String>;

/// The liar's number.
const LIAR: usize = 2;

/// Client 2 lies; all others are simulated as ever.
struct Lying<'a> {
    others: InProcess<'a>,
    lie: Lie,
    quorum: f64,
}

impl Transport for Lying<'_> {
    fn exchange(&mut self, requests: &[(usize, &Request)]) -> Result<Vec<std::result::Result<Reply, Dropped>>> {
        let replies = self.others.exchange(requests)?;
        let told = |(reply, (client, _)): (std::result::Result<Reply, Dropped>, &(usize, &Request))| match client {
            &LIAR => (self.lie)(reply?).map_err(|reason| Dropped::new(LIAR, &reason)),
            _ => reply,
        };
        Ok(replies.into_iter().zip(requests).map(told).collect())
    }

    fn acceptance(&self) -> Acceptance {
        Acceptance { quorum: self.quorum, limits: Some(Limits::default()) }
    }

    fn traffic(&self) -> Traffic {
        self.others.traffic()
    }
}

#[derive(Default)]
struct Notes {
    rounds: Vec<Round>,
    evaluations: Vec<Evaluation>,
    dropped: Vec<(u64, ClientTask, Dropped)>,
}

impl<T> Observer<T> for Notes {
    fn observe(&mut self, event: &Event<'_>, _: &mut T) -> Result<ControlFlow<()>> {
        match event {
            Event::Round { round, .. } => self.rounds.push((*round).clone()),
            Event::Evaluation { evaluation, .. } => self.evaluations.push((*evaluation).clone()),
            Event::Dropped { round, task, dropped } => {
                self.dropped.extend(dropped.iter().map(|dropped| (*round, *task, dropped.clone())));
            }
            Event::Settled { .. } => {}
        }
        Ok(ControlFlow::Continue(()))
    }
}

fn run(algorithm: &dyn Algorithm, asynchronous: Option<Asynchronous>, quorum: f64, lie: Lie) -> (Result<ServerState>, Notes) {
    let (problem, training) = (Problem::new(3), thorough(0.2));
    let mut server = problem.server(algorithm, 0.7);
    let dual = algorithm.initial_dual(&Problem::start(), Seed::new(1));
    let mut store = problem.store(move |_| dual.clone());
    let never = || false;
    let engine = problem.engine();
    let others = InProcess::new(algorithm, &training, &engine, &mut store, Seed::new(1), &never);
    let mut transport = Lying { others, lie, quorum };
    let sampling = Sampling { fraction: 1.0, ..Sampling::default() };
    let plan = Plan { rounds: 3, sampling, evaluate_every: 1, asynchronous, ..Plan::default() };
    let mut federation = Server { algorithm, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(4) };
    let mut notes = Notes::default();
    let done = federation.run(&mut server, &mut [&mut notes]);
    (done.map(|_| server), notes)
}

fn with_update(reply: Reply, change: impl FnOnce(&mut Update)) -> std::result::Result<Reply, String> {
    match reply {
        Reply::Update(mut update) => {
            change(&mut update);
            Ok(Reply::Update(update))
        }
        other => Ok(other),
    }
}

fn filled(update: &mut Update, value: f32) {
    let sent = update.weights.to_host().expect("plain numbers").into_owned();
    update.weights = Weights { params: sent.params.map(|_| value), ..sent }.into();
}

const LIES: [(Lie, &str); 7] = [
    (|_| Err("no reply in 40 s".into()), "no reply in 40 s"),
    (|reply| with_update(reply, |update| update.samples = 0), "`samples` is `0`"),
    (|reply| with_update(reply, |update| update.samples = u64::MAX), "`samples` is `18446744073709551615`"),
    (|reply| with_update(reply, |update| filled(update, f32::NAN)), "holds the value `NaN`"),
    (|reply| with_update(reply, |update| filled(update, 1e30)), "holds the value `1e30`"),
    (
        |reply| {
            with_update(reply, |update| {
                let sent = update.weights.to_host().expect("plain numbers").into_owned();
                let odd = sent.params.iter().map(|(name, _)| (name.to_owned(), Array::new(vec![1], vec![0.0]))).collect();
                update.weights = Weights { params: odd, ..sent }.into();
            })
        },
        "has shape",
    ),
    (
        |reply| match reply {
            Reply::Update(_) => Ok(Reply::Done(TrainStats::default())),
            other => Ok(other),
        },
        "it was asked to `train` and replied with `done`",
    ),
];

#[test]
fn a_liar_is_left_out_and_named_and_the_others_go_on_as_if_it_were_not_there() {
    let (without_replies, quiet) = run(&FedAvg::default(), None, 0.5, |_| Err("offline".into()));
    let expected = without_replies.expect("a quorum");
    assert_eq!(quiet.evaluations[0].local.clients.iter().position(Option::is_none), Some(LIAR), "as if it had no test data");
    assert_eq!(quiet.evaluations[0].dropped, [Dropped::new(LIAR, "offline")]);
    for (lie, reason) in LIES {
        let (server, notes) = run(&FedAvg::default(), None, 0.5, lie);
        assert_eq!(server.expect("a quorum").weights, expected.weights, "{reason}");
        for round in &notes.rounds {
            assert_eq!(round.cohort, (0..CLIENTS).filter(|client| *client != LIAR).collect::<Vec<_>>());
            assert!(
                matches!(&round.dropped[..], [Dropped { client: LIAR, reason: found }] if found.contains(reason)),
                "{round:?}"
            );
        }
        let told = notes.dropped.iter().filter(|(_, task, _)| *task == ClientTask::Train);
        assert_eq!(told.map(|(round, ..)| *round).collect::<Vec<_>>(), [0, 1, 2]);
    }
}

#[test]
fn without_a_quorum_a_round_fails_and_names_all_who_failed() {
    for (lie, reason) in LIES {
        let (server, notes) = run(&FedAvg::default(), None, 1.0, lie);
        let error = server.expect_err("no client may be missing");
        assert!(matches!(error, Error::Quorum { .. }) && error.to_string().contains("client 2: "), "{error}");
        assert!(error.to_string().contains(reason) && error.to_string().contains("in round 1"), "{error}");
        assert!(notes.rounds.is_empty() && notes.dropped.len() == 1, "it was told all the same");
    }
}

#[test]
fn clients_that_are_asked_one_by_one_may_fail_as_often_as_the_quorum_allows() {
    let method = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let settings = Some(Asynchronous { slowest: 3.0, max_staleness: 100 });
    for (lie, reason) in LIES {
        let (server, notes) = run(&method, settings, 0.4, lie);
        assert!(server.is_ok(), "{reason}: {server:?}");
        assert!(notes.rounds.iter().all(|round| round.cohort.len() == CLIENTS && !round.cohort.contains(&LIAR)), "{notes:?}");
        assert!(notes.dropped.iter().all(|(_, _, dropped)| dropped.client == LIAR) && !notes.dropped.is_empty());
    }
    let (server, _) = run(&method, settings, 1.0, |_| Err("offline".into()));
    assert!(matches!(server, Err(Error::Quorum { .. })));
}

/// A penalty that is balanced automatically.
fn balanced(ratio: f64) -> FedEq {
    FedEq { rho: 0.7, balance: Some(BalanceRho { ratio, factor: 2.0 }), ..FedEq::default() }
}

#[test]
fn what_a_client_says_of_its_distance_does_not_move_the_penalty() {
    let (honest, notes) = run(&balanced(1.2), None, 1.0, Ok);
    let honest = honest.expect("all are honest");
    let moved: Vec<Option<f64>> = notes.rounds.iter().map(|round| round.rho).chain([honest.rho]).collect();
    assert!(moved.windows(2).any(|pair| pair[0] != pair[1]), "it is balanced: {moved:?}");
    let lies: [Lie; 2] = [
        |reply| with_update(reply, |update| update.gap = 1e9),
        // What a node with `--metrics none` sends.
        |reply| with_update(reply, |update| update.gap = 0.0),
    ];
    for lie in lies {
        let lied = run(&balanced(1.2), None, 1.0, lie).0.expect("it is plausible");
        assert_eq!(lied.to_bytes().expect("writable"), honest.to_bytes().expect("writable"));
    }
}

#[test]
fn parameters_that_are_far_away_do_not_move_the_penalty_where_a_rule_bears_them() {
    let update = |value: f32| {
        let params = [("theta".to_owned(), Array::new(vec![1], vec![value]))].into_iter().collect();
        Update { weights: Weights { params, ..Weights::default() }.into(), samples: 7, gap: 0.0, stats: TrainStats::default() }
    };
    let start = update(0.0).weights.like().clone();
    // Of the honest clients as many want to go one way as the other: they disagree, and theta stays.
    let honest: Vec<Update> = [-0.2, -0.1, 0.1, 0.2].map(update).into();
    let aggregation = Aggregation { rule: AggregationRule::Median, ..Aggregation::default() };
    let penalty = |updates: &[Update]| {
        let mut server = ServerState::new(start.clone(), CLIENTS, Some(0.7));
        balanced(2.0).server_update(&mut server, &Received::new(updates, &aggregation, &balanced(2.0))).expect("sound");
        server.rho
    };
    assert_eq!(penalty(&honest), Some(1.4));
    // No client disagrees: all go the same way.
    let agreed: Vec<Update> = [0.1, 0.1, 0.1, 0.1].map(update).into();
    assert_eq!(penalty(&agreed), Some(0.7));
    assert_eq!(penalty(&[agreed, vec![update(1e6)]].concat()), Some(0.7));
}

impl std::fmt::Debug for Notes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notes").field("rounds", &self.rounds).field("dropped", &self.dropped).finish_non_exhaustive()
    }
}
