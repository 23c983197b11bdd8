//! The mechanism itself: what a client can change, how much noise there is, and how the bound follows a quantile.
use fedeq_data::Seed;
use proptest::prelude::*;

use super::{Mechanism, NoiseBy, Privacy, PrivateRound};
use crate::aggregation::{AdaptiveClip, Aggregation, Clipping};
use crate::algorithm::{FedAvg, FedRep, Weighting};
use crate::plan::Plan;
use crate::sampler::Sampling;

const CLIENTS: usize = 100;

fn plan(privacy: Privacy, sampling: Sampling) -> Plan {
    Plan { rounds: 50, sampling, privacy: Some(privacy), ..Plan::default() }
}

fn poisson(fraction: f64) -> Sampling {
    Sampling { fraction, replacement: false, poisson: true }
}

fn mechanism(privacy: Privacy, sampling: Sampling) -> Mechanism {
    Mechanism::of(&plan(privacy, sampling), &FedRep::default(), CLIENTS).expect("sound").expect("private")
}

fn noisy(multiplier: f64) -> Privacy {
    Privacy { noise_multiplier: Some(multiplier), ..Privacy::default() }
}

/// The private mean of changes from zero.
fn mean(mechanism: &Mechanism, rows: &[Vec<f32>], seed: u64) -> Vec<f64> {
    let width = rows.first().map_or(40_000, Vec::len);
    let norms: Vec<f64> = rows.iter().map(|row| row.iter().map(|value| f64::from(*value).powi(2)).sum::<f64>().sqrt()).collect();
    PrivateRound { mechanism, seed: Seed::new(seed), arrives_noisy: false }.mean(rows, &vec![0.0; width], &norms, None).0
}

fn distance(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
}

proptest! {
    #[test]
    fn no_client_moves_the_mean_by_more_than_its_bound_over_the_denominator(
        rows in prop::collection::vec(prop::collection::vec(-1e3f32..1e3, 5), 1..20),
        other in prop::collection::vec(-1e3f32..1e3, 5),
        bound in 1e-3f64..1e3,
        seed in any::<u64>(),
    ) {
        let privacy = Privacy { clip: Clipping::Fixed(bound), ..noisy(1.0) };
        let (added, fixed) = (mechanism(privacy, poisson(0.2)), mechanism(privacy, Sampling { fraction: 0.2, ..Sampling::default() }));
        let all = mean(&added, &rows, seed);
        let most = bound / 20.0 * (1.0 + 1e-9);
        // Without the first client, and with another in its place; the same noise.
        prop_assert!(rows.len() == 1 || distance(&all, &mean(&added, &rows[1..], seed)) <= most);
        let replaced: Vec<Vec<f32>> = std::iter::once(other).chain(rows[1..].iter().cloned()).collect();
        prop_assert!(distance(&mean(&fixed, &rows, seed), &mean(&fixed, &replaced, seed)) <= 2.0 * most);
    }
}

/// Mean and standard deviation.
fn moments(values: &[f64]) -> [f64; 2] {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    [mean, (values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / count).sqrt()]
}

#[test]
fn there_is_as_much_noise_as_the_account_says_whoever_adds_it_and_whoever_drops_out() {
    let all_drawn = Sampling { fraction: 0.2, ..Sampling::default() };
    let still = vec![vec![0.0f32; 40_000]; 20];
    let clip = Clipping::Fixed(0.5);
    // 1.5 clipping norms of 0.5, over 20 clients.
    let expected = 1.5 * 0.5 / 20.0;
    let is_expected = |values: &[f64], expected: f64| {
        let [mean, deviation] = moments(values);
        // Within five standard errors.
        mean.abs() < 5.0 * expected / 200.0 && (deviation / expected - 1.0).abs() < 5.0 / (2.0 * 40_000f64).sqrt()
    };
    let server = Privacy { clip, ..noisy(1.5) };
    let clients = Privacy { noise: NoiseBy::Clients, ..server };
    assert!(is_expected(&mean(&mechanism(server, all_drawn), &still, 1), expected));
    assert!(is_expected(&mean(&mechanism(clients, all_drawn), &still, 1), expected));
    assert!(is_expected(&mean(&mechanism(server, poisson(0.2)), &[], 1), expected), "an empty cohort has all of the noise");
    // A fifth may be missing: what is left is enough.
    let robust = mechanism(Privacy { dropouts: 0.2, ..clients }, all_drawn);
    assert!(is_expected(&mean(&robust, &still[..16], 1), expected));
    assert!(is_expected(&mean(&robust, &still, 1), expected / 0.8f64.sqrt()));
    assert!(robust.ensure_enough(16).is_ok() && robust.ensure_enough(15).is_err(), "more are missing than were provided for");
    assert!(mechanism(server, all_drawn).ensure_enough(0).is_ok());
    let told = robust.spent(1, None);
    assert!((told.deviation - expected / 0.8f64.sqrt()).abs() < 1e-12 && told.clip == 0.5);
}

#[test]
fn the_same_seed_gives_the_same_noise_and_another_round_gives_other() {
    let mechanism = mechanism(noisy(1.0), poisson(0.2));
    let rows = vec![vec![0.1f32; 10]; 4];
    assert_eq!(mean(&mechanism, &rows, 3), mean(&mechanism, &rows, 3));
    assert_ne!(mean(&mechanism, &rows, 3), mean(&mechanism, &rows, 4));
}

#[test]
fn the_bound_follows_a_quantile_of_the_norms_through_noise() {
    let clip = Clipping::Adaptive(AdaptiveClip { quantile: 0.7, initial: Some(0.01), ..AdaptiveClip::default() });
    let mechanism = mechanism(Privacy { clip, ..noisy(1.0) }, poisson(1.0));
    let norms: Vec<f64> = (1..=CLIENTS).map(|client| client as f64 / CLIENTS as f64).collect();
    let rows: Vec<Vec<f32>> = norms.iter().map(|norm| vec![*norm as f32]).collect();
    let mut kept = None;
    let mut late = Vec::new();
    for round in 0..200 {
        kept = PrivateRound { mechanism: &mechanism, seed: Seed::new(round), arrives_noisy: false }
            .mean(&rows, &[0.0], &norms, kept)
            .1;
        late.extend((round >= 50).then_some(kept.expect("it adapts")));
    }
    let [mean, _] = moments(&late);
    assert!((mean - 0.7).abs() < 0.05, "{mean}");
}

#[test]
fn the_count_of_a_bound_that_adapts_costs_its_share() {
    let clip = Clipping::Adaptive(AdaptiveClip { initial: Some(1.0), ..AdaptiveClip::default() });
    let adaptive = Privacy { clip, count_noise: Some(5.0), ..noisy(2.0) };
    let mechanism = mechanism(adaptive, poisson(0.2));
    // 1 / z^2 = 1 / z_sum^2 + 1 / (2 z_count)^2, so the sum has more noise than the account of a fixed bound would ask for.
    let in_sum = 20.0 * mechanism.spent(1, None).deviation;
    assert!((in_sum.powi(-2) + 10f64.powi(-2) - 2f64.powi(-2)).abs() < 1e-12 && in_sum > 2.0);
    let refused = Mechanism::of(&plan(Privacy { count_noise: Some(1.0), ..adaptive }, poisson(0.2)), &FedRep::default(), CLIENTS);
    assert!(refused.expect_err("nothing is left").to_string().contains("count_noise"));
}

#[test]
fn a_target_is_kept_to_and_a_budget_ends_training() {
    let sampling = poisson(0.1);
    let targeted = mechanism(Privacy { epsilon: Some(4.0), ..Privacy::default() }, sampling);
    let spent = targeted.summary(50).epsilon;
    assert!(targeted.rounds() == 50 && (3.95..=4.0).contains(&spent), "{spent}");
    let limited = mechanism(Privacy { budget: Some(spent / 2.0), ..noisy(targeted.summary(50).noise_multiplier) }, sampling);
    let rounds = limited.rounds();
    assert!(rounds < 50 && limited.summary(rounds).epsilon <= spent / 2.0 && limited.summary(rounds + 1).epsilon > spent / 2.0);
    let nothing = Mechanism::of(&plan(Privacy { budget: Some(0.001), ..noisy(0.5) }, sampling), &FedRep::default(), CLIENTS);
    assert!(nothing.expect_err("not even one round").to_string().contains("the first round costs"));
}

#[test]
fn sampling_of_a_fixed_size_counts_only_where_clients_forget() {
    let sampling = Sampling { fraction: 0.1, ..Sampling::default() };
    let plan = plan(noisy(4.0), sampling);
    let forgetful = FedAvg { weighting: Weighting::Uniform, ..FedAvg::default() };
    let counted = Mechanism::of(&plan, &forgetful, CLIENTS).expect("sound").expect("private").summary(50);
    let remembered = mechanism(noisy(4.0), sampling).summary(50);
    let by_clients = Plan { privacy: Some(Privacy { noise: NoiseBy::Clients, ..noisy(4.0) }), ..plan.clone() };
    let by_clients = Mechanism::of(&by_clients, &forgetful, CLIENTS).expect("sound").expect("private").summary(50);
    assert!(counted.secret_cohorts && !remembered.secret_cohorts && !by_clients.secret_cohorts);
    assert!(counted.epsilon < remembered.epsilon && remembered.epsilon == by_clients.epsilon);
    let coins = mechanism(noisy(4.0), poisson(0.1)).summary(50);
    assert!(coins.secret_cohorts && coins.neighbours != counted.neighbours);
}

#[test]
fn a_fixed_bound_of_the_aggregation_is_a_ceiling() {
    let clip = Clipping::Adaptive(AdaptiveClip { initial: Some(3.0), ..AdaptiveClip::default() });
    let aggregation = Aggregation { clip: Some(Clipping::Fixed(2.0)), ..Aggregation::MEAN };
    let plan = Plan { aggregation, ..plan(Privacy { clip, ..noisy(1.0) }, poisson(0.5)) };
    let mechanism = Mechanism::of(&plan, &FedRep::default(), CLIENTS).expect("sound").expect("private");
    assert_eq!([None, Some(1.0), Some(9.0)].map(|kept| mechanism.spent(1, kept).clip), [2.0, 1.0, 2.0]);
}

#[test]
fn delta_is_below_one_over_the_clients() {
    assert_eq!(mechanism(noisy(1.0), poisson(0.5)).summary(1).delta, 0.001);
    for delta in [0.0, 0.01, 0.5, -1.0, f64::NAN] {
        let plan = plan(Privacy { delta: Some(delta), ..noisy(1.0) }, poisson(0.5));
        let refused = Mechanism::of(&plan, &FedRep::default(), CLIENTS).expect_err("no promise").to_string();
        assert!(refused.contains("plan.privacy.delta"), "{refused}");
    }
}

/// What a plan is refused with.
fn refusal(change: impl FnOnce(&mut Plan, &mut Privacy), method: &dyn crate::algorithm::Algorithm) -> String {
    let (mut plan, mut privacy) = (plan(noisy(1.0), poisson(0.5)), noisy(1.0));
    change(&mut plan, &mut privacy);
    plan.privacy = Some(privacy);
    plan.validate(method).expect_err("it is refused").to_string()
}

#[test]
fn what_is_not_covered_is_refused_by_name() {
    use crate::aggregation::AggregationRule;
    use crate::algorithm::{BalanceRho, FedEq, FineTune, FineTuning, Local, ServerStep};
    let fedrep = FedRep::default();
    let refused = |change: fn(&mut Plan, &mut Privacy)| refusal(change, &fedrep);
    let consensus = FedEq { server_step: ServerStep::Consensus, ..FedEq::default() };
    let asynchronous =
        refusal(|plan, _| (plan.asynchronous, plan.sampling.poisson) = (Some(Default::default()), false), &consensus);
    let cases = [
        (asynchronous, "plan.asynchronous"),
        (refused(|plan, _| plan.sampling = Sampling { replacement: true, ..Sampling::default() }), "plan.sampling.replacement"),
        (refused(|plan, _| plan.patience = Some(2)), "plan.patience"),
        (refused(|plan, _| plan.aggregation.rule = AggregationRule::Median), "plan.aggregation.rule = median"),
        (refused(|plan, _| (plan.aggregation.cap, plan.sampling.poisson) = (Some(0.5), false)), "plan.aggregation.cap"),
        (
            refused(|plan, _| plan.aggregation.clip = Some(Clipping::Adaptive(AdaptiveClip::default()))),
            "plan.aggregation.clip.adaptive",
        ),
        (refused(|_, privacy| privacy.noise = NoiseBy::Clients), "plan.privacy.noise = clients"),
        (
            refused(|plan, privacy| {
                (plan.sampling.poisson, plan.compression) = (false, Some(Default::default()));
                privacy.noise = NoiseBy::Clients;
            }),
            "plan.compression",
        ),
        (refused(|_, privacy| privacy.dropouts = 0.1), "plan.privacy.dropouts"),
        (refused(|_, privacy| privacy.dropouts = 0.95), "plan.privacy.dropouts"),
        (refused(|_, privacy| privacy.epsilon = Some(1.0)), "both say"),
        (refused(|_, privacy| privacy.noise_multiplier = None), "how much noise"),
        (refused(|_, privacy| privacy.noise_multiplier = Some(0.0)), "plan.privacy.noise_multiplier"),
        (refused(|_, privacy| privacy.budget = Some(-1.0)), "plan.privacy.budget"),
        (refused(|_, privacy| privacy.count_noise = Some(1.0)), "plan.privacy.count_noise"),
        (refused(|_, privacy| privacy.clip = Clipping::Fixed(0.0)), "plan.privacy.clip.fixed"),
        (refused(|_, privacy| privacy.clip = Clipping::Adaptive(AdaptiveClip::default())), "plan.privacy.clip.adaptive.initial"),
        (refusal(|_, _| {}, &FedAvg::default()), "method.weighting"),
        (refusal(|_, _| {}, &Local::default()), "sends nothing"),
        (refusal(|_, _| {}, &FedEq { balance: Some(BalanceRho::default()), ..FedEq::default() }), "method.balance"),
        (
            refusal(|_, _| {}, &FineTune { weighting: Weighting::Uniform, tuning: FineTuning::FromShare(0.3) }),
            "method.tuning.from-share",
        ),
    ];
    for (refusal, named) in cases {
        assert!(refusal.contains(named), "{named}: {refusal}");
    }
    assert!(noisy(1.0).validate_network(true).expect_err("statistics").to_string().contains("batch normalisation"));
    assert!(noisy(1.0).validate_network(false).is_ok());
}

/// Clients that clip and add their parts of the noise themselves give sums like those of a server that does it for them.
#[test]
fn what_clients_protect_themselves_sums_up_to_what_the_account_has() {
    let privacy = Privacy { clip: Clipping::Fixed(2.0), noise: NoiseBy::Clients, ..noisy(1.5) };
    let mechanism = mechanism(privacy, Sampling { fraction: 0.2, ..Sampling::default() });
    let origin = vec![0.25f32; 40_000];
    // Of norm 4: twice the bound.
    let row: Vec<f32> = origin.iter().map(|value| value + 0.02).collect();
    let sent: Vec<Vec<f32>> = (0..20).map(|client| mechanism.protect(&row, &origin, Seed::new(client))).collect();
    let norms = vec![0.0; sent.len()];
    let round = PrivateRound { mechanism: &mechanism, seed: Seed::new(99), arrives_noisy: true };
    let (mean, _) = round.mean(&sent, &origin, &norms, None);
    let [middle, deviation] = moments(&mean);
    // Every client's change is 0.02 in each coordinate, shortened to the half; the noise of the sum is 1.5 * 2, over 20.
    assert!((middle - 0.01).abs() < 4.0 * 0.15 / 200.0, "{middle}");
    assert!((deviation / 0.15 - 1.0).abs() < 0.02, "{deviation}");
    // One client's part alone is a twentieth of the variance.
    let alone: Vec<f64> = sent[0].iter().zip(&origin).map(|(value, origin)| f64::from(value - origin)).collect();
    assert!((moments(&alone)[1] / (3.0 / 20f64.sqrt()) - 1.0).abs() < 0.02);
}
