//! Federations in which some lie, on a convex problem whose optimum is known.
mod common;
mod digits;

use common::{CLIENTS, Problem, Rounds, thorough};
use digits::{Digits, brief};
use fedeq_core::{
    AdaptiveClip, Aggregation, AggregationRule, Algorithm, Asynchronous, Attack, AttackKind, ClientByClient, ClientState,
    ClientStore, Clipping, Engine, FedAvg, FedEq, FedRep, GeometricMedian, InProcess, Krum, Liars, Local, Method, Observer, Plan,
    Round, Sampling, Server, ServerState, ServerStep, Training, Treatment, TrimmedMean, Weighting, Weights, Workers, shared_part,
};
use fedeq_data::Seed;
use fedeq_equilibrium::WarmStart;

const RULES: [AggregationRule; 6] = rules(CLIENTS);

/// All rules, with as many liars among so many clients as Krum bears: `2 f + 3 <= n`.
const fn rules(clients: usize) -> [AggregationRule; 6] {
    let liars = ((clients - 3) / 2) as f64 / clients as f64;
    [
        AggregationRule::Mean,
        AggregationRule::Median,
        AggregationRule::TrimmedMean(TrimmedMean { share: 0.25 }),
        AggregationRule::Krum(Krum { liars }),
        AggregationRule::MultiKrum(Krum { liars }),
        AggregationRule::GeometricMedian(GeometricMedian { smoothing: 1e-6, iterations: 100 }),
    ]
}

const ATTACKS: [AttackKind; 5] =
    [AttackKind::SignFlip, AttackKind::Noise, AttackKind::LargeNorm, AttackKind::ModelReplacement, AttackKind::Weight];

/// Two of eight.
fn liars(kind: AttackKind, algorithm: &dyn Algorithm) -> Liars {
    some_of(CLIENTS, kind, algorithm)
}

/// A quarter of the clients.
fn some_of(clients: usize, kind: AttackKind, algorithm: &dyn Algorithm) -> Liars {
    Attack { kind, share: 0.25, strength: None }.draw(clients, clients, algorithm, Seed::new(5)).expect("sound")
}

/// Who trains, and from where.
struct Federated<'a> {
    engine: &'a dyn Engine,
    first: Weights,
    clients: usize,
}

impl<'a> Federated<'a> {
    /// Of the convex problem.
    fn convex(engine: &'a dyn Engine) -> Self {
        Self { engine, first: Problem::start(), clients: CLIENTS }
    }

    /// All clients in every round; after every round the server's state is written and read again where that is asked for.
    fn run(
        &self,
        algorithm: &dyn Algorithm,
        training: &Training,
        plan: &Plan,
        liars: Option<&Liars>,
        is_resumed: bool,
    ) -> (ServerState, Vec<Round>) {
        let Self { engine, ref first, clients } = *self;
        let mut server = ServerState::new(shared_part(algorithm, first), clients, Some(0.1));
        let (fresh, dual) = (first.clone(), algorithm.initial_dual(first, Seed::new(1)));
        let fresh = move |_| ClientState::fresh(fresh.clone(), dual.clone(), WarmStart::Off);
        let mut store = ClientStore::new("nowhere".into(), usize::MAX, fresh);
        let never = || false;
        let mut transport = InProcess::new(algorithm, training, engine, &mut store, Seed::new(1), &never).attacked_by(liars);
        let mut rounds = Rounds::default();
        for number in 1..=plan.rounds {
            let plan = Plan { rounds: number, ..plan.clone() };
            let mut federation = Server { algorithm, plan: &plan, clients, transport: &mut transport, seed: Seed::new(2) };
            let mut observers: [&mut dyn Observer<_>; 1] = [&mut rounds];
            assert!(federation.run(&mut server, &mut observers).expect("a sound federation").is_continue());
            if is_resumed {
                let bytes = server.to_bytes().expect("writable");
                server = ServerState::from_bytes(&bytes, server.round, &server).expect("readable");
            }
        }
        (server, rounds.0)
    }

    /// Every rule with every attack, clipped: nothing becomes infinite, and all is told of every client.
    fn bears_every_rule_with_every_attack(&self, name: &str, training: &Training) {
        let method = Method::named(name).expect("there");
        let algorithm = method.algorithm();
        for rule in rules(self.clients) {
            let aggregation = Aggregation { clip: Some(Clipping::Fixed(1.0)), ..by(rule) };
            for attack in ATTACKS {
                let liars = some_of(self.clients, attack, algorithm);
                let (server, rounds) = self.run(algorithm, training, &all_clients(3, aggregation.clone()), Some(&liars), false);
                let is_told = |round: &Round| round.distances.len() == self.clients && round.bound == Some(1.0);
                assert!(server.weights.is_finite(), "{name} {rule:?} {attack:?}");
                assert!(rounds.iter().all(is_told), "{name} {rule:?} {attack:?}");
            }
        }
    }
}

fn all_clients(rounds: u64, aggregation: Aggregation) -> Plan {
    Plan {
        rounds,
        sampling: Sampling { fraction: 1.0, ..Sampling::default() },
        evaluate_every: 0,
        aggregation,
        ..Plan::default()
    }
}

fn by(rule: AggregationRule) -> Aggregation {
    Aggregation { rule, distances: Some(true), ..Aggregation::default() }
}

#[test]
fn every_method_that_sends_runs_under_every_rule_with_every_attack() {
    let problem = Problem::new(3);
    let convex_engine = problem.engine();
    let convex = Federated::convex(&convex_engine);
    // The convex problem has no embeddings, which some methods train with: they have a network.
    let digits = Digits::new("mlp", brief());
    let engine = ClientByClient::new(&digits, Workers::new(2).expect("threads"));
    let network = Federated { engine: &engine, first: digits.initial(), clients: digits::CLIENTS };
    let training = Training { epochs: 2, personal_epochs: 2, ..thorough(0.1) };
    for name in Method::NAMES {
        let method = Method::named(name).expect("there");
        if shared_part(method.algorithm(), &Problem::start()).params.is_empty() {
            continue; // Nothing is sent: refused, as another test sees.
        }
        if method.algorithm().contrasts() {
            network.bears_every_rule_with_every_attack(name, &digits.training);
        } else {
            convex.bears_every_rule_with_every_attack(name, &training);
        }
    }
}

#[test]
fn robust_rules_stay_near_the_optimum_where_liars_drive_the_mean_away() {
    let problem = Problem::new(3);
    let training = Training { epochs: 20, personal_epochs: 20, ..thorough(0.2) };
    for method in [&FedRep::default() as &dyn Algorithm, &FedEq { rho: 0.1, ..FedEq::default() }] {
        let error = |rule: AggregationRule, kind: Option<AttackKind>| {
            let liars = kind.map(|kind| liars(kind, method));
            problem.error(
                &Federated::convex(&problem.engine())
                    .run(method, &training, &all_clients(15, by(rule)), liars.as_ref(), false)
                    .0
                    .weights,
            )
        };
        let honest = error(AggregationRule::Mean, None);
        for kind in [AttackKind::Noise, AttackKind::ModelReplacement] {
            let fooled = error(AggregationRule::Mean, Some(kind));
            for rule in &RULES[1..] {
                let held = error(*rule, Some(kind));
                assert!(
                    held < 0.5 * fooled && held < honest + 0.4,
                    "{kind:?} {rule:?}: {held} of {fooled}, {honest} without liars"
                );
            }
        }
    }
}

#[test]
fn whoever_claims_many_samples_owns_rules_that_believe_it_and_no_rule_with_a_cap() {
    let problem = Problem::new(3);
    let training = Training { epochs: 20, personal_epochs: 20, ..thorough(0.2) };
    let error = |weighting: Weighting, aggregation: Aggregation, lie: bool| {
        let method = FedRep { weighting };
        let liars = lie.then(|| liars(AttackKind::Weight, &method));
        let plan = all_clients(15, aggregation);
        problem.error(&Federated::convex(&problem.engine()).run(&method, &training, &plan, liars.as_ref(), false).0.weights)
    };
    for rule in RULES {
        let believes = matches!(rule, AggregationRule::Mean | AggregationRule::GeometricMedian(_));
        let (uniform, samples) = (Weighting::Uniform, Weighting::Samples);
        let honest = error(uniform, by(rule), false);
        let fooled = error(samples, by(rule), true);
        // Two of eight have all the weight, and go away from the optimum; multi-Krum knows them by their distance before it counts samples.
        assert_eq!(fooled > honest + 1.0, believes, "{rule:?}: {fooled}, {honest} without liars");
        let mut held = vec![error(uniform, by(rule), true)];
        if !matches!(rule, AggregationRule::Krum(_)) {
            held.push(error(samples, Aggregation { cap: Some(0.125), ..by(rule) }, true));
        }
        assert!(held.iter().all(|held| *held < honest + 0.5), "{rule:?}: {held:?}, {honest} without liars");
        let is_refused = by(rule).validate_claims(samples).is_err();
        let counts = matches!(rule, AggregationRule::MultiKrum(_) | AggregationRule::GeometricMedian(_));
        assert_eq!(is_refused, counts, "{rule:?}");
        assert!(by(rule).validate_claims(uniform).is_ok());
        assert!(Aggregation { cap: Some(0.125), ..by(rule) }.validate_claims(samples).is_ok());
    }
    let clipped = Aggregation { clip: Some(Clipping::Fixed(1.0)), ..Aggregation::default() };
    let refusal = clipped.validate_claims(Weighting::Samples).expect_err("one client has all the weight");
    assert!(refusal.to_string().contains("`plan.aggregation.clip`"), "{refusal}");
    assert!(
        refusal.hint().contains("`method.weighting=uniform`") && refusal.hint().contains("plan.aggregation.cap"),
        "{refusal}"
    );
}

#[test]
fn clipping_bounds_what_a_liar_can_do_with_one_update() {
    let problem = Problem::new(3);
    let training = Training { epochs: 20, personal_epochs: 20, ..thorough(0.2) };
    let method = FedRep::default();
    let liars = liars(AttackKind::LargeNorm, &method);
    let error = |clip: Option<Clipping>| {
        let plan = all_clients(10, Aggregation { clip, ..Aggregation::default() });
        problem.error(&Federated::convex(&problem.engine()).run(&method, &training, &plan, Some(&liars), false).0.weights)
    };
    let (unclipped, clipped) = (error(None), error(Some(Clipping::Adaptive(AdaptiveClip::default()))));
    assert!(clipped < 0.1 * unclipped, "{clipped} of {unclipped}");
}

#[test]
fn liars_are_marked_and_what_became_of_their_updates_is_told() {
    let problem = Problem::new(3);
    let method = FedAvg::default();
    let liars = liars(AttackKind::Noise, &method);
    let (_, rounds) =
        Federated::convex(&problem.engine()).run(&method, &thorough(0.2), &all_clients(5, by(RULES[4])), Some(&liars), false);
    for round in &rounds {
        assert_eq!(round.cohort, round.distances.iter().map(|each| each.client).collect::<Vec<_>>());
        for each in round.distances.iter().filter(|each| liars.contains(each.client)) {
            assert!(each.outlier && each.treatment == Treatment::LeftOut, "{each:?}");
        }
    }
}

#[test]
fn accuracies_and_losses_are_those_of_honest_clients() {
    let problem = Problem::new(3);
    let (method, training, plan) = (FedAvg::default(), thorough(0.2), all_clients(1, Aggregation::default()));
    let liars = liars(AttackKind::SignFlip, &method);
    let server = problem.server(&method, 0.1);
    let evaluated = |liars: Option<&Liars>| {
        let mut store = problem.store(|_| Default::default());
        let never = || false;
        let engine = problem.engine();
        let mut transport = InProcess::new(&method, &training, &engine, &mut store, Seed::new(1), &never).attacked_by(liars);
        let mut federation =
            Server { algorithm: &method, plan: &plan, clients: CLIENTS, transport: &mut transport, seed: Seed::new(2) };
        federation.evaluation(&server).expect("sound")
    };
    let (all, honest) = (evaluated(None), evaluated(Some(&liars)));
    for client in 0..CLIENTS {
        assert_eq!(honest.local.clients[client].is_none(), liars.contains(client), "{client}");
    }
    assert_ne!(all.local.mean_loss, honest.local.mean_loss);
}

#[test]
fn an_adaptive_bound_survives_a_resume_to_the_byte() {
    let problem = Problem::new(3);
    let method = FedEq { rho: 0.1, ..FedEq::default() };
    let liars = liars(AttackKind::Noise, &method);
    let clip = Some(Clipping::Adaptive(AdaptiveClip { rate: 0.7, quantile: 0.4, initial: None }));
    let plan = all_clients(6, Aggregation { clip, cap: Some(0.2), ..by(RULES[2]) });
    let training = Training { epochs: 3, personal_epochs: 3, ..thorough(0.1) };
    let (whole, rounds) = Federated::convex(&problem.engine()).run(&method, &training, &plan, Some(&liars), false);
    let (resumed, again) = Federated::convex(&problem.engine()).run(&method, &training, &plan, Some(&liars), true);
    assert_eq!(whole.to_bytes().expect("writable"), resumed.to_bytes().expect("writable"));
    assert_eq!(rounds, again);
    let bounds: Vec<f64> = rounds.iter().filter_map(|round| round.bound).collect();
    assert!(bounds.len() == 6 && bounds.windows(2).any(|pair| pair[0] != pair[1]), "{bounds:?}");
}

#[test]
fn single_updates_are_clipped_and_rules_for_several_are_refused() {
    let problem = Problem::new(3);
    let method = FedEq { rho: 0.7, server_step: ServerStep::Consensus, ..FedEq::default() };
    let asynchronous = Some(Asynchronous::default());
    let clip = Some(Clipping::Adaptive(AdaptiveClip::default()));
    let plan = Plan { asynchronous, ..all_clients(4, Aggregation { clip, ..Aggregation::default() }) };
    let liars = liars(AttackKind::LargeNorm, &method);
    let (server, rounds) = Federated::convex(&problem.engine()).run(&method, &thorough(0.1), &plan, Some(&liars), true);
    assert!(server.weights.is_finite() && server.clip.is_some());
    let clipped = rounds.iter().flat_map(|round| &round.distances).filter(|each| each.treatment == Treatment::Clipped);
    assert!(clipped.clone().count() > 0 && clipped.clone().any(|each| liars.contains(each.client)));
    for rule in &RULES[1..] {
        let error = Plan { aggregation: by(*rule), ..plan.clone() }.validate(&method).expect_err("one update is no cohort");
        assert!(
            error.to_string().contains(&format!("`plan.aggregation.rule = {}` compares the updates of a round", rule.name()))
        );
    }
}

#[test]
fn a_method_that_sends_nothing_has_nothing_to_aggregate() {
    let error = all_clients(1, by(AggregationRule::Median)).validate(&Local::default()).expect_err("nothing is sent");
    assert!(error.to_string().starts_with("`plan.aggregation` does not go with a method that sends nothing"), "{error}");
}
