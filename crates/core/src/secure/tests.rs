//! The protocol beside its simulation, and what a server may try.
use std::collections::BTreeMap;

use fedeq_data::Seed;
use fedeq_secure::in_memory::{DropOut, SessionClient, run};
use fedeq_secure::{
    ClientKeys, Entropy, Identity, KeyRoster, QuantisedMean, Session, SessionSettings, SigningSecret, SurvivorList, Trust,
    WireMessage, key_to_hex,
};
use proptest::prelude::*;

use super::*;
use crate::acceptance::Dropped;
use crate::algorithm::{Algorithm, FedAvg, FedEq, Update};
use crate::message::{ClientTask, Request};
use crate::params::Array;
use crate::plan::Plan;
use crate::privacy::{NoiseBy, Privacy};
use crate::transport::Traffic;
use crate::weights::Weights;

/// What a plan of so many clients, who all take part, does.
fn rounds_of(settings: SecureAggregation, clients: usize) -> SecureRounds {
    planned(settings, None, clients).unwrap()
}

fn planned(settings: SecureAggregation, privacy: Option<Privacy>, clients: usize) -> Result<SecureRounds> {
    let sampling = Sampling { fraction: 1.0, ..Sampling::default() };
    let plan = Plan { secure_aggregation: Some(settings), privacy, sampling, ..Plan::default() };
    let (uniform, by_samples) = (FedEq::default(), FedAvg { weighting: Weighting::Samples, ..FedAvg::default() });
    let is_weighted = plan.secure_aggregation.as_ref().is_some_and(|settings| settings.largest_weight.is_some());
    let algorithm: &dyn Algorithm = if is_weighted { &by_samples } else { &uniform };
    plan.validate(algorithm)?;
    Ok(plan.secure_rounds(algorithm, clients)?.expect("secure"))
}

/// Runs the protocol itself, with keys, masks and shares.
fn protocol(settings: SecureAggregation, rows: &[SecretRow], weighting: Weighting) -> (QuantisedMean, Traffic) {
    let quantisation = settings.for_clients(rows.len()).unwrap();
    let clients = rows.len() as u16;
    let session = Session::new(SessionSettings {
        nonce: [3; 32],
        clients,
        threshold: SessionSettings::usual_threshold(clients),
        minimum: 3,
        length: quantisation.ring_length(rows[0].changes.len(), rows[0].statistics.len()).unwrap() as u32,
        ring_bits: quantisation.ring_bits().unwrap(),
        neighbours: None,
        trust: Trust::HonestButCurious,
    });
    let client = |(client, row): (u16, &SecretRow)| SessionClient {
        client,
        identity: Identity::Unsigned,
        entropy: Entropy::fixed([client as u8; 32]),
        vector: quantisation
            .encode(&row.changes, &row.statistics, settings.weight(row.samples, weighting).unwrap())
            .unwrap()
            .vector,
        leaves: DropOut::Never,
    };
    let outcome = run(&session.unwrap(), (0u16..).zip(rows).map(client).collect()).unwrap();
    let mean = quantisation.decode_mean(&outcome.sum.sum, rows[0].statistics.len(), rows.len()).unwrap();
    (mean, Traffic { up: outcome.counts.sent_by_clients(), down: outcome.counts.sent_by_server() })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6))]

    #[test]
    fn a_simulation_has_the_numbers_and_the_bytes_of_the_protocol_itself(
        rows in prop::collection::vec((prop::collection::vec(-1.5f32..1.5, 7), prop::collection::vec(-9.0..900.0, 2), 1u64..500), 3..6),
        weighted: bool,
    ) {
        let rows: Vec<SecretRow> =
            rows.into_iter().map(|(changes, statistics, samples)| SecretRow { changes, statistics, samples }).collect();
        let (weighting, largest_weight) = if weighted { (Weighting::Samples, Some(500)) } else { (Weighting::Uniform, None) };
        let settings = SecureAggregation { largest_weight, ..SecureAggregation::default() };
        let rounds = rounds_of(settings.clone(), rows.len());
        let (mean, clipped) = rounds.mean(&rows, weighting, Seed::new(0)).unwrap();
        let (expected, traffic) = protocol(settings, &rows, weighting);
        prop_assert_eq!(mean, expected);
        let clients: Vec<usize> = (0..rows.len()).collect();
        prop_assert_eq!(rounds.traffic(&clients, 7, 2).unwrap(), traffic);
        let beyond = rows.iter().flat_map(|row| &row.changes).filter(|value| value.abs() > 1.0).count();
        prop_assert_eq!(clipped, beyond as u64);
    }
}

#[test]
fn what_cannot_be_summed_in_secret_is_refused_by_name() {
    let settings = SecureAggregation::default();
    let problem = |result: Result<()>| result.unwrap_err().to_string();
    let mean = Aggregation::MEAN;
    settings.validate(&mean, false, false, &Sampling::default()).unwrap();
    let capped = Aggregation { cap: Some(0.5), ..mean.clone() };
    assert!(problem(settings.validate(&capped, false, false, &Sampling::default())).contains("`plan.aggregation.cap`"));
    let noted = Aggregation { distances: Some(true), ..mean.clone() };
    assert!(problem(settings.validate(&noted, false, false, &Sampling::default())).contains("`plan.aggregation.distances`"));
    assert!(problem(settings.validate(&mean, true, false, &Sampling::default())).contains("`plan.asynchronous`"));
    assert!(problem(settings.validate(&mean, false, true, &Sampling::default())).contains("`plan.compression.up`"));
    assert!(
        problem(settings.validate(&mean, false, false, &Sampling { replacement: true, ..Sampling::default() }))
            .contains("`plan.sampling.replacement`")
    );
    assert!(problem(settings.validate_cohort(2)).contains("`2` clients a round"));
    assert!(problem(settings.validate_cohort(70_000)).contains("`70000` clients"));
    assert!(problem(settings.validate_weighting(Weighting::Samples)).contains("largest_weight` is missing"));
    let weighted = SecureAggregation { largest_weight: Some(9), ..settings.clone() };
    assert!(problem(weighted.validate_weighting(Weighting::Uniform)).contains("all clients count the same"));
    assert!(problem(weighted.weight(10, Weighting::Samples).map(drop)).contains("a client has 10 samples"));
    for bad in [SecureAggregation { clip: -1.0, ..settings.clone() }, SecureAggregation { precision_bits: 40, ..settings }] {
        assert!(problem(bad.validate(&mean, false, false, &Sampling::default())).contains("`plan.secure_aggregation`"));
    }
}

/// Sees every step, client, message and answer.
type Change<'a> = dyn FnMut(SecureStep, usize, &mut Vec<u8>, Option<&mut Vec<u8>>) -> bool + 'a;

/// Clients elsewhere whose messages a test may change on their way.
struct Elsewhere {
    rounds: SecureRounds,
    clients: BTreeMap<usize, SecureClient>,
    theta: Weights,
    rows: Vec<Vec<f32>>,
}

fn secure() -> SecureAggregation {
    SecureAggregation { precision_bits: 20, ..SecureAggregation::default() }
}

/// The long-term key of a client.
fn secret(client: usize) -> SigningSecret {
    SigningSecret::from_hex(&key_to_hex(&[client as u8 + 1; 32])).unwrap()
}

/// The numbers of clients are multiples of ten: so many are registered that the last one has a key.
fn signed(count: usize) -> SecureAggregation {
    let keys = (0..count).map(|client| key_to_hex(&secret(client).public_key()));
    SecureAggregation { signing_keys: keys.collect(), ..secure() }
}

impl Elsewhere {
    /// Clients 0, 10, 20 ..., who trust the server to follow the protocol.
    fn new(count: usize) -> Self {
        Self::with(rounds_of(secure(), count), count, 10, true)
    }

    /// Clients 0, 1, 2 ..., who know each other's keys.
    fn registered(count: usize) -> Self {
        Self::with(rounds_of(signed(count), count), count, 1, true)
    }

    fn with(rounds: SecureRounds, count: usize, apart: usize, has_statistics: bool) -> Self {
        let array = |values: Vec<f32>| Array::new(vec![values.len()], values);
        let theta = Weights {
            params: [("a".to_owned(), array(vec![0.5; 30]))].into_iter().collect(),
            statistics: [("n.mean".to_owned(), array(vec![0.0; 2]))].into_iter().filter(|_| has_statistics).collect(),
        };
        let rows: Vec<Vec<f32>> =
            (0..count).map(|client| (0..30).map(|at| ((client * 31 + at * 7) % 19) as f32 / 19.0 - 0.3).collect()).collect();
        let request = Request { task: ClientTask::Train, round: 4, rounds: 9, rho: None, weights: theta.clone() };
        let client = |(at, row): (usize, &Vec<f32>)| {
            let params = [("a".to_owned(), array(row.clone()))].into_iter().collect();
            let statistics = [("n.mean".to_owned(), array(vec![at as f32, 100.0]))];
            let statistics = statistics.into_iter().filter(|_| has_statistics).collect();
            let weights = Weights { params, statistics }.into();
            let update = Update { weights, samples: 10, gap: 0.0, stats: Default::default() };
            let (number, signing) = (apart * at, secret(at));
            let client = SecureClient::new(
                rounds.clone(),
                number,
                Some(&signing),
                &FedEq::default(),
                "f",
                &request,
                &update,
                Seed::new(at as u64),
            );
            (number, client.expect("sound"))
        };
        let clients = rows.iter().enumerate().map(client).collect();
        Self { rounds, clients, theta, rows }
    }

    /// Runs a session; `change` sees every step, client, message and answer, may change the latter two, and lets a client drop out by false.
    fn sum(&mut self, attempt: u32, change: &mut Change<'_>) -> Result<SecureMean> {
        let (cohort, theta, rounds) = (self.clients.keys().copied().collect::<Vec<_>>(), self.theta.clone(), self.rounds.clone());
        let mut carry = |step: SecureStep, messages: &[(usize, Vec<u8>)]| {
            let mut answers = Vec::new();
            for (client, message) in messages {
                let mut message = message.clone();
                let dropped = |reason: &str| Err(Dropped::new(*client, reason));
                if !change(step, *client, &mut message, None) {
                    answers.push(dropped("no reply"));
                    continue;
                }
                let answer = self.clients.get_mut(client).expect("known").answer(&message);
                answers.push(match answer {
                    Ok(mut answer) => {
                        let arrives = change(step, *client, &mut message, Some(&mut answer));
                        if arrives { Ok(answer) } else { dropped("no reply") }
                    }
                    Err(error) => dropped(&error.to_string()),
                });
            }
            Ok(answers)
        };
        rounds.sum("f", 4, attempt, &cohort, &theta, &mut carry)
    }

    /// The mean change of some clients, as plain numbers.
    fn expected(&self, clients: &[usize]) -> Vec<f32> {
        let apart = self.clients.keys().nth(1).copied().unwrap_or(1);
        let mean =
            |at: usize| clients.iter().map(|client| f64::from(self.rows[client / apart][at])).sum::<f64>() / clients.len() as f64;
        (0..30).map(|at| (mean(at) - 0.5) as f32).collect()
    }

    fn assert_mean(&self, mean: &SecureMean, clients: &[usize]) {
        assert_eq!(mean.survivors, clients);
        for (one, other) in mean.changes.iter().zip(self.expected(clients)) {
            assert!((one - other).abs() < 4e-6, "{one} {other}");
        }
        let statistics = &mean.statistics.get("n.mean").expect("there").values;
        let apart = self.clients.keys().nth(1).copied().unwrap_or(1) as f32;
        let first = clients.iter().map(|client| *client as f32 / apart).sum::<f32>() / clients.len() as f32;
        assert!((statistics[0] - first).abs() < 1e-5 && (statistics[1] - 100.0).abs() < 1e-5);
    }
}

#[test]
fn clients_elsewhere_are_summed_whoever_drops_out() {
    let mut all = Elsewhere::new(6);
    let mean = all.sum(0, &mut |_, _, _, _| true).expect("summed");
    all.assert_mean(&mean, &[0, 10, 20, 30, 40, 50]);
    assert!(mean.dropped.is_empty());
    for step in [SecureStep::Keys, SecureStep::Shares, SecureStep::Masked] {
        let mut all = Elsewhere::new(6);
        let mean = all.sum(0, &mut |now, client, _, _| now < step || client != 20).expect("summed");
        all.assert_mean(&mean, &[0, 10, 30, 40, 50]);
        assert_eq!(mean.dropped, [Dropped::new(20, "no reply")]);
    }
    // Whose vector came is in the sum, even if it is not there any more to remove its masks.
    let mut all = Elsewhere::new(6);
    let mean = all.sum(0, &mut |now, client, _, _| now < SecureStep::Reveals || client != 20).expect("summed");
    all.assert_mean(&mean, &[0, 10, 20, 30, 40, 50]);
    // With fewer than the threshold nothing is learned.
    let mut all = Elsewhere::new(6);
    let failed = all.sum(0, &mut |now, client, _, _| now < SecureStep::Masked || client < 30).expect_err("too few");
    assert!(failed.to_string().contains("the sum of round 5 cannot be had"), "{failed}");
    // No client masks twice; before, a session can be begun again.
    assert!(all.sum(1, &mut |_, _, _, _| true).is_err());
    let mut all = Elsewhere::new(6);
    all.sum(0, &mut |now, client, _, _| now < SecureStep::Shares || client < 30).expect_err("too few");
    let mean = all.sum(1, &mut |_, _, _, _| true);
    // Three clients have refused the first session's rosters, or were never asked.
    assert!(mean.is_err() || mean.is_ok_and(|mean| mean.survivors.len() >= 5));
}

#[test]
fn tampered_shares_are_named_and_do_no_harm() {
    // A box that was changed on its way cannot be read, and its dealer is named.
    let mut all = Elsewhere::new(6);
    let mean = all
        .sum(0, &mut |step, client, message, answer| {
            if let (SecureStep::Masked, 10, None) = (step, client, answer) {
                let last = message.len() - 1;
                message[last] ^= 1;
            }
            true
        })
        .expect("summed");
    all.assert_mean(&mean, &[0, 10, 20, 30, 40, 50]);
    assert_eq!(mean.dropped, [Dropped::new(50, "secure aggregation: client 10 cannot read its shares")]);
    // A share that was changed when it was revealed does not fit its commitment.
    let mut all = Elsewhere::new(6);
    let mean = all
        .sum(0, &mut |step, client, _, answer| {
            if let (SecureStep::Reveals, 0, Some(answer)) = (step, client, answer) {
                // The lowest byte of the first share: after kind, session, client, the number of shares and the first owner.
                answer[1 + 32 + 1 + 1 + 1] ^= 1;
            }
            true
        })
        .expect("summed");
    all.assert_mean(&mean, &[0, 10, 20, 30, 40, 50]);
    assert_eq!(mean.dropped, [Dropped::new(0, "secure aggregation: its share of client 0 is false")]);
}

#[test]
fn a_server_that_lies_about_who_dropped_out_learns_nothing() {
    // It asks the same client first to help to remove the mask of client 20, then for the key of it.
    let mut all = Elsewhere::new(6);
    let mut lists: Vec<Vec<u8>> = Vec::new();
    all.sum(0, &mut |step, client, message, answer| {
        if step == SecureStep::Reveals && answer.is_none() && client == 0 {
            lists.push(message.clone());
        }
        true
    })
    .expect("summed");
    let again = all.clients.get_mut(&0).expect("known").answer(&lists[0]).expect_err("answered before");
    assert!(again.to_string().contains("belongs to no session"), "{again}");

    // It says that client 20 dropped out, to half of the others: neither its mask nor its key comes together.
    let mut all = Elsewhere::new(6);
    let failed = all.sum(0, &mut |step, client, message, answer| {
        if step == SecureStep::Reveals && answer.is_none() && client < 20 {
            // Survivors 0 to 5, none dropped; then all but 2, and 2.
            let tail = message.split_off(message.len() - 8);
            assert_eq!(tail, [6, 0, 1, 2, 3, 4, 5, 0]);
            message.extend([5, 0, 1, 3, 4, 5, 1, 2]);
            let cohort = message.len() - 9;
            assert_eq!(message[cohort], 6);
            message[cohort] = 5;
        }
        true
    });
    assert!(failed.is_err(), "{failed:?}");
}

// Clients who know each other's keys.

#[test]
fn clients_who_know_each_other_are_summed_whoever_drops_out() {
    let mut all = Elsewhere::registered(6);
    let mean = all.sum(0, &mut |_, _, _, _| true).expect("summed");
    all.assert_mean(&mean, &[0, 1, 2, 3, 4, 5]);
    for step in [SecureStep::Keys, SecureStep::Shares, SecureStep::Masked] {
        let mut all = Elsewhere::registered(6);
        let mean = all.sum(0, &mut |now, client, _, _| now < step || client != 2).expect("summed");
        all.assert_mean(&mean, &[0, 1, 3, 4, 5]);
    }
    for step in [SecureStep::Signatures, SecureStep::Reveals] {
        let mut all = Elsewhere::registered(6);
        let mean = all.sum(0, &mut |now, client, _, _| now < step || client != 2).expect("summed");
        all.assert_mean(&mean, &[0, 1, 2, 3, 4, 5]);
    }
    // The bytes are those that a simulation counts.
    let mut all = Elsewhere::registered(6);
    let mut counted = Traffic::default();
    all.sum(0, &mut |step, _, message, answer| {
        match answer {
            Some(answer) => counted.up += answer.len() as u64,
            None if step != SecureStep::Keys => counted.down += message.len() as u64,
            None => {}
        }
        true
    })
    .expect("summed");
    assert_eq!(all.rounds.traffic(&[0, 1, 2, 3, 4, 5], 30, 2).expect("counted"), counted);
}

/// Lets a hostile server change what it sends, and gives what it learns and whose vectors came under masks.
fn attacked(attack: &mut dyn FnMut(SecureStep, usize, &mut Vec<u8>)) -> (Result<SecureMean>, Vec<usize>, usize) {
    let mut all = Elsewhere::registered(6);
    let (mut masked, mut revealed) = (Vec::new(), 0);
    let mean = all.sum(0, &mut |step, client, message, answer| {
        match answer {
            None => attack(step, client, message),
            Some(_) if step == SecureStep::Masked => masked.push(client),
            Some(_) => revealed += usize::from(step == SecureStep::Reveals),
        }
        true
    });
    (mean, masked, revealed)
}

/// The session that all are in.
fn session() -> Session {
    let of = SessionOf { federation: "f", round: 4, attempt: 0, cohort: 6, parameters: 30, statistics: 2 };
    rounds_of(signed(6), 6).session(&of).expect("sound").0
}

/// Its name, and what a server does with a roster of keys.
type Attack<'a> = (&'a str, &'a dyn Fn(&mut KeyRoster));

/// A server that puts clients of its own into every client's roster knows all but one of the masks on a vector. Here it has nothing to sign them with.
#[test]
fn a_server_that_invents_clients_or_exchanges_keys_gets_no_vector() {
    let session = session();
    let (_, own) = {
        let settings = SessionSettings { trust: Trust::HonestButCurious, ..session.settings().clone() };
        let other = Session::new(settings).expect("sound");
        fedeq_secure::client::AwaitingRoster::begin(&other, 3, Identity::Unsigned, Entropy::fixed([9; 32])).expect("keys")
    };
    let change = |message: &mut Vec<u8>, change: &dyn Fn(&mut KeyRoster)| {
        let mut roster = KeyRoster::decode(message, &session).expect("a roster");
        change(&mut roster);
        *message = roster.encode();
    };
    let signature = |roster: &KeyRoster| roster.keys[3].signature;
    let attacks: [Attack<'_>; 4] = [
        ("keys of the server's in the place of client 3's", &|roster| roster.keys[3] = own.keys.clone()),
        ("the same, under the signature of client 3's own", &|roster| {
            roster.keys[3] = ClientKeys { signature: signature(roster), ..own.keys.clone() };
        }),
        ("client 77, which is not registered, in the place of client 5", &|roster| {
            roster.keys[5] = ClientKeys { client: 77, ..own.keys.clone() };
        }),
        ("client 3's keys, as client 4's", &|roster| {
            roster.keys[4] = ClientKeys { client: 4, ..roster.keys[3].clone() };
        }),
    ];
    for (name, attack) in attacks {
        let (mean, masked, _) = attacked(&mut |step, _, message| {
            if step == SecureStep::Shares {
                change(message, attack);
            }
        });
        assert!(mean.is_err() && masked.is_empty(), "{name}: {masked:?}");
    }
    // To one client only: that client refuses, and has dropped out for the others.
    let (mean, masked, _) = attacked(&mut |step, client, message| {
        if step == SecureStep::Shares && client == 0 {
            change(message, &|roster| roster.keys[3] = own.keys.clone());
        }
    });
    assert_eq!((mean.expect("the others").survivors, masked), (vec![1, 2, 3, 4, 5], vec![1, 2, 3, 4, 5]));
}

/// Told to some that client 5 dropped out and to others that it did not, a server would get both of its secrets, and with them its vector.
#[test]
fn a_server_that_tells_different_lists_is_caught_before_anything_is_revealed() {
    let session = session();
    for told in [1, 3, 4, 5] {
        let (mean, masked, revealed) = attacked(&mut |step, client, message| {
            if step == SecureStep::Signatures && client < told {
                let mut list = SurvivorList::decode(message, &session).expect("a list");
                list.survivors.retain(|survivor| *survivor != 5);
                (list.dropped, list.cohort) = (vec![5], 5);
                *message = list.encode();
            }
        });
        assert_eq!(masked.len(), 6);
        if told == 1 {
            // Five signed the truth: the sum can be had, and the one who was lied to reveals nothing.
            assert_eq!((mean.expect("the truth").survivors.len(), revealed), (6, 5));
        } else {
            assert!(mean.is_err() && revealed == 0, "{told}: {revealed}");
        }
    }
    // Who was told that it has dropped out itself signs nothing.
    let (_, _, revealed) = attacked(&mut |step, client, message| {
        if step == SecureStep::Signatures && client == 5 {
            let mut list = SurvivorList::decode(message, &session).expect("a list");
            list.survivors.retain(|survivor| *survivor != 5);
            (list.dropped, list.cohort) = (vec![5], 5);
            *message = list.encode();
        }
    });
    assert_eq!(revealed, 5);
}

/// A server with two of six clients on its side would like a sum of three.
#[test]
fn a_cohort_below_two_thirds_of_the_plan_is_refused_by_every_client() {
    let rounds = rounds_of(signed(6), 6);
    assert_eq!(rounds.minimum(), 5);
    let mut all = Elsewhere::registered(6);
    let small = |place: u16| Opening { attempt: 0, cohort: 3, place }.write();
    for client in 0..6usize {
        let said = all.clients.get_mut(&client).expect("known").answer(&small(client as u16)).expect_err("too few");
        assert!(said.to_string().contains("which the plan does not have"), "{said}");
    }
    // Nor does a client take another one's place.
    let said = all.clients.get_mut(&1).expect("known").answer(&Opening { attempt: 0, cohort: 6, place: 2 }.write());
    assert!(said.is_err());
    let failed = all.rounds.clone().sum("f", 4, 0, &[0, 1, 2], &all.theta, &mut |_, _| panic!("no client is asked"));
    assert!(failed.expect_err("too few").to_string().contains("3 clients are left where 5 are needed"));
}

#[test]
fn a_client_takes_part_only_under_the_key_that_is_registered_for_it() {
    let rounds = rounds_of(signed(6), 6);
    rounds.require_key(2, &secret(2).public_key()).expect("its own");
    assert!(rounds.require_key(2, &secret(3).public_key()).is_err() && rounds.require_key(6, &secret(6).public_key()).is_err());
    let problem = |settings, clients| planned(settings, None, clients).expect_err("refused").to_string();
    assert!(problem(signed(6), 7).contains("has `6` keys, and 7 clients train"));
    let mut short = signed(6);
    short.signing_keys[4].pop();
    assert!(problem(short, 6).contains("the key of client `4`"));
    let mut twice = signed(6);
    twice.signing_keys[4] = twice.signing_keys[1].clone();
    assert!(problem(twice, 6).contains("the same key"));
    let tossed = Sampling { poisson: true, ..Sampling::default() };
    let said = signed(6).validate(&Aggregation::MEAN, false, false, &tossed).expect_err("refused").to_string();
    assert!(said.contains("`plan.sampling.poisson`"), "{said}");
}

// Noise under the masks.

fn private(dropouts: f64) -> Privacy {
    Privacy { noise_multiplier: Some(0.7), noise: NoiseBy::Clients, dropouts, ..Privacy::default() }
}

#[test]
fn noise_of_clients_elsewhere_is_that_of_the_simulation_from_the_same_seeds() {
    let rounds = planned(secure(), Some(private(0.2)), 6).expect("sound");
    let mut all = Elsewhere::with(rounds.clone(), 6, 10, false);
    let mean = all.sum(0, &mut |_, _, _, _| true).expect("summed");
    let noise = rounds.noise.expect("private");
    let mut sum: Option<fedeq_secure::RingVector> = None;
    for (client, row) in all.rows.iter().enumerate() {
        let changes: Vec<f32> = row.iter().map(|value| value - 0.5).collect();
        let encoded = noise.encode(&changes, 6, Seed::new(client as u64)).expect("encoded").vector;
        match &mut sum {
            Some(sum) => sum.add(&encoded).expect("alike"),
            None => sum = Some(encoded),
        }
    }
    assert_eq!(mean.changes, noise.decode(&sum.expect("six")));
    assert_ne!(mean.changes, all.expected(&[0, 10, 20, 30, 40, 50]), "without noise");
}

/// Five of six have all of the noise: with four no client reveals anything.
#[test]
fn a_sum_with_less_noise_than_was_promised_never_becomes_known() {
    let rounds = planned(secure(), Some(private(0.2)), 6).expect("sound");
    assert_eq!(rounds.minimum(), 5);
    for (here, is_known) in [(50, true), (40, false)] {
        let mut all = Elsewhere::with(rounds.clone(), 6, 10, false);
        let mut revealed = 0;
        let mean = all.sum(0, &mut |step, client, _, answer| {
            revealed += usize::from(step == SecureStep::Reveals && answer.is_some());
            step < SecureStep::Masked || client < here
        });
        assert_eq!((mean.is_ok(), revealed > 0), (is_known, is_known), "{mean:?}");
    }
    let strict = planned(secure(), Some(private(0.0)), 6).expect("sound");
    assert_eq!(strict.minimum(), 6);
}

#[test]
fn noise_in_the_sum_never_falls_below_the_promise_whoever_drops_out() {
    for clients in [6usize, 10, 50] {
        for dropouts in [0.0, 0.1, 0.25, 0.5] {
            let rounds = planned(secure(), Some(private(dropouts)), clients).expect("sound");
            // The plan's bound is 1, and its noise 0.7 times that, over the planned number of clients.
            let promised = 0.7 / clients as f64;
            let with = |survivors| rounds.deviation(survivors).expect("private");
            assert!(with(rounds.minimum()) >= promised, "{clients} {dropouts}");
            assert!(rounds.minimum() == 3 || with(rounds.minimum() - 1) < promised * 1.001, "{clients} {dropouts}");
        }
    }
}

#[test]
fn private_sums_that_cannot_be_had_are_refused_by_name() {
    let problem = |privacy| planned(secure(), Some(privacy), 6).expect_err("refused").to_string();
    assert!(problem(Privacy { noise: NoiseBy::Server, ..private(0.0) }).contains("needs noise by clients"));
    let adaptive = crate::aggregation::AdaptiveClip { initial: Some(1.0), ..Default::default() };
    let adaptive = Privacy { clip: crate::aggregation::Clipping::Adaptive(adaptive), ..private(0.0) };
    assert!(problem(adaptive).contains("`plan.privacy.clip.adaptive`"));
    assert!(problem(Privacy { noise_multiplier: Some(1e-6), ..private(0.0) }).contains("steps of the ring"));
}
