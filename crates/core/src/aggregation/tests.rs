//! Every rule against a definition that shares no code with it, and what liars can and cannot do to it.
use proptest::prelude::*;

use super::cap::capped;
use super::clip::{AdaptiveClip, Clipping, clip_to};
use super::rows::squared_distance;
use super::rule::{CoordinateRule, Verdict};
use super::*;
use crate::algorithm::{FedAvg, FedEq, ServerStep, Update, Weighting};
use crate::params::{Array, Params};
use crate::server_state::ServerState;
use crate::stats::TrainStats;
use crate::weights::Weights;

const KRUM: AggregationRule = AggregationRule::Krum(Krum { liars: 0.2 });
const MULTI_KRUM: AggregationRule = AggregationRule::MultiKrum(Krum { liars: 0.2 });
const TRIMMED: AggregationRule = AggregationRule::TrimmedMean(TrimmedMean { share: 0.2 });
/// Smoothed so little that what is found is the geometric median itself, within what tests can see.
const GEOMETRIC: AggregationRule = AggregationRule::GeometricMedian(GeometricMedian { smoothing: 1e-7, iterations: 10_000 });
const ROBUST: [AggregationRule; 5] = [AggregationRule::Median, TRIMMED, KRUM, MULTI_KRUM, GEOMETRIC];

fn views(rows: &[Vec<f32>]) -> Vec<&[f32]> {
    rows.iter().map(Vec::as_slice).collect()
}

/// What a rule makes of rows that count the same.
fn apply(rule: AggregationRule, rows: &[Vec<f32>]) -> Vec<f32> {
    let views = views(rows);
    match rule.verdict(&views, vec![1.0; rows.len()]).expect("enough rows") {
        Verdict::Coordinates(rule) => rule.of(&views),
        Verdict::Combination(weights) => rows::combination(&views, &weights).into_iter().map(|value| value as f32).collect(),
    }
}

fn norm(values: &[f32]) -> f64 {
    squared_distance(values, &vec![0.0f32; values.len()]).sqrt()
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    squared_distance(a, b).sqrt()
}

/// `count` rows of `width` ordinary numbers.
fn ordinary(count: std::ops::Range<usize>, width: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Vec<f32>>> {
    (count, width).prop_flat_map(|(count, width)| prop::collection::vec(prop::collection::vec(-10.0f32..10.0, width), count))
}

/// Honest rows near each other, and some that are anything that is finite.
fn with_liars(honest: usize, liars: usize) -> impl Strategy<Value = (Vec<Vec<f32>>, Vec<Vec<f32>>)> {
    let anything = prop_oneof![-1e30f32..1e30, -20.0f32..20.0, Just(f32::MAX), Just(-f32::MAX)];
    (1usize..6).prop_flat_map(move |width| {
        (
            prop::collection::vec(prop::collection::vec(-10.0f32..10.0, width), honest),
            prop::collection::vec(prop::collection::vec(anything.clone(), width), liars),
        )
    })
}

/// All sets of `size` of the values.
fn subsets(values: &[f64], size: usize) -> Vec<Vec<f64>> {
    let masks = 0u32..1 << values.len();
    let chosen = |mask: u32| values.iter().enumerate().filter(|(at, _)| mask >> at & 1 == 1).map(|(_, value)| *value).collect();
    masks.filter(|mask| mask.count_ones() as usize == size).map(chosen).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A median is what has the least sum of absolute differences, and no end of it is nearer.
    #[test]
    fn the_median_has_the_least_sum_of_absolute_differences(rows in ordinary(1..9, 1..5)) {
        let median = apply(AggregationRule::Median, &rows);
        for (at, &middle) in median.iter().enumerate() {
            let cost = |point: f64| rows.iter().map(|row| (f64::from(row[at]) - point).abs()).sum::<f64>();
            let best = rows.iter().map(|row| cost(row[at].into())).fold(f64::INFINITY, f64::min);
            prop_assert!(cost(middle.into()) <= best + 1e-4);
            let below = rows.iter().filter(|row| row[at] < middle).count();
            let above = rows.iter().filter(|row| row[at] > middle).count();
            prop_assert!(2 * below <= rows.len() && 2 * above <= rows.len());
        }
    }

    /// Trimming by hand: the least and the greatest are struck out one after the other.
    #[test]
    fn the_trimmed_mean_is_the_mean_of_what_is_left_after_striking_out(rows in ordinary(5..11, 1..5)) {
        let trimmed = apply(TRIMMED, &rows);
        let cut = rows.len().div_ceil(5);
        for (at, &value) in trimmed.iter().enumerate() {
            let mut left: Vec<f64> = rows.iter().map(|row| row[at].into()).collect();
            for _ in 0..cut {
                let least = (0..left.len()).min_by(|&a, &b| left[a].total_cmp(&left[b])).expect("some");
                left.remove(least);
                let greatest = (0..left.len()).max_by(|&a, &b| left[a].total_cmp(&left[b])).expect("some");
                left.remove(greatest);
            }
            prop_assert!((f64::from(value) - left.iter().sum::<f64>() / left.len() as f64).abs() < 1e-5);
        }
    }

    /// A score is the least sum over all sets of so many neighbours.
    #[test]
    fn krum_takes_the_row_with_the_least_score_of_all_sets_of_neighbours(rows in ordinary(7..9, 1..5)) {
        let liars = 2;
        let score = |own: usize| {
            let others: Vec<f64> =
                (0..rows.len()).filter(|other| *other != own).map(|other| distance(&rows[own], &rows[other]).powi(2)).collect();
            subsets(&others, rows.len() - liars - 2).iter().map(|set| set.iter().sum::<f64>()).fold(f64::INFINITY, f64::min)
        };
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by(|&a, &b| score(a).total_cmp(&score(b)));
        prop_assert_eq!(&apply(KRUM, &rows), &rows[order[0]]);
        let kept = &order[..rows.len() - liars];
        for (at, value) in apply(MULTI_KRUM, &rows).into_iter().enumerate() {
            let mean = kept.iter().map(|&row| f64::from(rows[row][at])).sum::<f64>() / kept.len() as f64;
            prop_assert!((f64::from(value) - mean).abs() < 1e-5);
        }
    }

    /// At the geometric median the unit vectors towards the rows, by weight, cancel; at a row they may fall short by that row's weight.
    #[test]
    fn at_the_geometric_median_the_pulls_of_the_rows_cancel(
        rows in ordinary(3..9, 1..5),
        weights in prop::collection::vec(0.1f64..3.0, 9),
    ) {
        let weights = &weights[..rows.len()];
        let Verdict::Combination(lambda) = GEOMETRIC.verdict(&views(&rows), weights.to_vec()).expect("enough") else {
            panic!("a combination")
        };
        let found = rows::combination(&views(&rows), &lambda);
        let scale = rows.iter().map(|row| squared_distance(&found, row).sqrt()).fold(0.0, f64::max);
        let (mut pull, mut slack) = (vec![0.0; found.len()], 0.0);
        for (row, weight) in rows.iter().zip(weights) {
            let away = squared_distance(&found, row).sqrt();
            if away <= 1e-4 * scale {
                slack += weight;
            } else {
                pull.iter_mut().zip(row.iter().zip(&found)).for_each(|(sum, (&x, v))| *sum += weight * (f64::from(x) - v) / away);
            }
        }
        let pull = pull.iter().map(|value| value * value).sum::<f64>().sqrt();
        prop_assert!(pull <= slack + 2e-2, "{} {}", pull, slack);
        // The definition itself: nothing nearby has a smaller sum of distances.
        let cost = |point: &[f64]| rows.iter().zip(weights).map(|(row, weight)| weight * squared_distance(point, row).sqrt()).sum::<f64>();
        for at in 0..found.len() {
            for step in [-0.05 * scale, 0.05 * scale] {
                let mut moved = found.clone();
                moved[at] += step;
                prop_assert!(cost(&found) <= cost(&moved) + 1e-4 * cost(&found));
            }
        }
    }

    #[test]
    fn no_rule_depends_on_the_order_of_the_clients(rows in ordinary(7..9, 2..5), turn in 1usize..7) {
        let mut turned = rows.clone();
        turned.rotate_left(turn);
        for rule in ROBUST {
            prop_assert!(distance(&apply(rule, &rows), &apply(rule, &turned)) < 1e-4, "{:?}", rule);
        }
    }

    /// On numbers whose sums and differences are exact, so that no score is decided by rounding.
    #[test]
    fn every_rule_moves_and_grows_with_what_is_sent(
        rows in (7usize..9, 2usize..5)
            .prop_flat_map(|(count, width)| prop::collection::vec(prop::collection::vec(-640i16..640, width), count)),
        shift in -3_200i16..3_200,
    ) {
        let changed = |change: &dyn Fn(f32) -> f32| -> Vec<Vec<f32>> {
            rows.iter().map(|row| row.iter().map(|value| change(f32::from(*value) / 64.0)).collect()).collect()
        };
        let shift = f32::from(shift) / 64.0;
        for rule in ROBUST {
            let plain = apply(rule, &changed(&|value| value));
            let grown: Vec<f32> = plain.iter().map(|value| 4.0 * value).collect();
            prop_assert_eq!(apply(rule, &changed(&|value| 4.0 * value)), grown, "{:?}", rule);
            let moved: Vec<f32> = plain.iter().map(|value| value + shift).collect();
            prop_assert!(distance(&apply(rule, &changed(&|value| value + shift)), &moved) < 1e-3, "{:?}", rule);
        }
    }

    /// Four of nine may send anything at all.
    #[test]
    fn a_minority_cannot_move_the_median_out_of_the_honest_range((honest, liars) in with_liars(5, 4)) {
        let all = [&liars[..2], &honest[..], &liars[2..]].concat();
        for (at, value) in apply(AggregationRule::Median, &all).into_iter().enumerate() {
            let range = honest.iter().map(|row| row[at]);
            prop_assert!(range.clone().fold(f32::INFINITY, f32::min) <= value && value <= range.fold(f32::NEG_INFINITY, f32::max));
        }
    }

    #[test]
    fn as_many_liars_as_are_trimmed_cannot_move_the_mean_out_of_the_honest_range((honest, liars) in with_liars(8, 2)) {
        let all = [&liars[..1], &honest[..], &liars[1..]].concat();
        for (at, value) in apply(TRIMMED, &all).into_iter().enumerate() {
            let range = honest.iter().map(|row| row[at]);
            let (least, greatest) = (range.clone().fold(f32::INFINITY, f32::min), range.fold(f32::NEG_INFINITY, f32::max));
            prop_assert!(least - 1e-5 <= value && value <= greatest + 1e-5);
        }
    }

    /// The row that Krum takes scores no more than an honest one, which scores at most `(n - f - 2) D^2` with the honest diameter `D`; of its `n - f - 2` nearest
    /// at least one is honest. So it is within `sqrt(n - f - 2) D` of an honest row.
    #[test]
    fn krum_takes_nothing_far_from_the_honest((honest, liars) in with_liars(8, 2)) {
        let all = [&liars[..1], &honest[..], &liars[1..]].concat();
        let diameter = honest.iter().flat_map(|a| honest.iter().map(move |b| distance(a, b))).fold(0.0, f64::max);
        let taken = apply(KRUM, &all);
        let nearest = honest.iter().map(|row| distance(row, &taken)).fold(f64::INFINITY, f64::min);
        prop_assert!(nearest <= 6f64.sqrt() * diameter * (1.0 + 1e-6));
    }

    /// Pulls are at most 1 each: with `f` of `n` liars it stays within `2 (n - f) / (n - 2 f)` honest radii of any point.
    #[test]
    fn a_minority_moves_the_geometric_median_by_a_bounded_distance((honest, liars) in with_liars(6, 3)) {
        let all = [&liars[..1], &honest[..], &liars[1..]].concat();
        let radius = honest.iter().map(|row| norm(row)).fold(0.0, f64::max);
        prop_assert!(norm(&apply(GEOMETRIC, &all)) <= 2.0 * 6.0 / 3.0 * radius * (1.0 + 1e-3));
    }

    /// Against bisection: the largest size to which all that exceed it can be cut so that none has more than the share.
    #[test]
    fn a_cap_cuts_no_more_than_it_must(weights in prop::collection::vec(1.0f64..1e6, 2..9), cap in 0.1f64..1.0) {
        let cut = capped(&weights, cap);
        prop_assume!(cap * weights.len() as f64 > 1.001);
        let total = |size: f64| weights.iter().map(|weight| weight.min(size)).sum::<f64>();
        let (mut low, mut high) = (0.0, weights.iter().copied().fold(0.0, f64::max));
        if high > cap * total(high) {
            for _ in 0..200 {
                let middle = (low + high) / 2.0;
                if middle <= cap * total(middle) { low = middle } else { high = middle }
            }
        }
        for (weight, cut) in weights.iter().zip(cut) {
            prop_assert!((weight.min(high) - cut).abs() <= 1e-6 * high, "{} {} {}", weight, cut, high);
        }
    }

    #[test]
    fn clipping_shortens_along_the_same_line(
        (values, origin) in (1usize..20).prop_flat_map(|width| (prop::collection::vec(-10.0f32..10.0, width), prop::collection::vec(-10.0f32..10.0, width))),
        bound in 0.01f64..10.0,
    ) {
        let before = distance(&values, &origin);
        match clip_to(&values, &origin, bound) {
            None => prop_assert!(before <= bound),
            Some(clipped) => {
                prop_assert!(before > bound);
                prop_assert!((distance(&clipped, &origin) - bound).abs() < 1e-4);
                prop_assert!((distance(&clipped, &values) - (before - bound)).abs() < 1e-4);
            }
        }
    }
}

#[test]
fn the_geometric_median_of_points_on_a_line_is_the_one_in_the_middle() {
    let rows: Vec<Vec<f32>> = [1.0, 2.0, 4.0, 50.0, 1000.0].into_iter().map(|value| vec![value]).collect();
    assert!((apply(GEOMETRIC, &rows)[0] - 4.0).abs() < 1e-3);
}

#[test]
fn the_geometric_median_of_a_square_with_its_centre_is_the_centre() {
    let rows = [[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [2.0, 2.0], [1.0, 1.0]].map(|row: [f32; 2]| row.to_vec());
    assert!(distance(&apply(GEOMETRIC, &rows), &[1.0, 1.0]) < 1e-4);
}

#[test]
fn an_adaptive_bound_settles_where_the_share_within_it_is_the_quantile() {
    // Norms 0.1, 0.2 .. 10.0 in turns of ten; a quarter is to stay within.
    let clipping = Clipping::Adaptive(AdaptiveClip { quantile: 0.25, rate: 0.1, initial: Some(100.0) });
    let mut kept = None;
    for round in 0..2_000u32 {
        let norms: Vec<f64> = (0..10).map(|at| f64::from((10 * at + round * 7) % 100 + 1) / 10.0).collect();
        let bound = clipping.bound(kept, &norms);
        kept = clipping.next(bound, norms.iter().filter(|norm| **norm <= bound).count() as f64 / 10.0);
    }
    assert!((kept.expect("it adapts") - 2.5).abs() < 0.5, "{kept:?}");
    let first = Clipping::Adaptive(AdaptiveClip { quantile: 0.5, ..AdaptiveClip::default() });
    assert_eq!(first.bound(None, &[3.0, 1.0, 2.0, 9.0, 4.0]), 3.0, "the median of the first round");
    assert_eq!(Clipping::Fixed(2.0).next(2.0, 0.3), None);
}

fn named(name: &str, values: &[f32]) -> Params {
    [(name.to_owned(), Array::new(vec![values.len()], values.to_vec()))].into_iter().collect()
}

fn update(theta: &[f32], variance: &[f32], samples: u64) -> Update {
    let weights = Weights { params: named("theta", theta), statistics: named("norm.variance", variance) };
    Update { weights: weights.into(), samples, gap: 0.0, stats: TrainStats::default() }
}

fn server(theta: &[f32], statistics: usize) -> ServerState {
    let weights = Weights { params: named("theta", theta), statistics: named("norm.variance", &vec![1.0; statistics]) };
    ServerState::new(weights, 10, None)
}

/// Aggregates updates into a server at `theta`.
fn averaged(updates: &[Update], theta: &[f32], aggregation: &Aggregation) -> (ServerState, Vec<Handled>) {
    let mut server = server(theta, 1);
    let received = Received::new(updates, aggregation, &FedAvg::default());
    server.average(&received, Weighting::Samples).expect("sound");
    (server, received.handled().to_vec())
}

fn seven(last: &[f32]) -> Vec<Update> {
    let mut updates: Vec<Update> =
        (0..6).map(|at| update(&[1.0 + 0.1 * at as f32, 2.0], &[0.5 + 0.1 * at as f32], 10 + at)).collect();
    updates.push(update(last, &[1e6], 1_000));
    updates
}

#[test]
fn the_plain_mean_has_the_bytes_that_it_always_had_noted_or_not() {
    let updates = seven(&[7.0, 8.0]);
    let items: Vec<_> = updates.iter().map(|update| (&update.weights, update.samples as f64)).collect();
    let expected = crate::sent::SentWeights::mean(&items).expect("sound");
    let (plain, handled) = averaged(&updates, &[0.0, 0.0], &Aggregation::default());
    assert!(plain.weights == expected && handled.is_empty());
    let noted = Aggregation { distances: Some(true), ..Aggregation::default() };
    let (server, handled) = averaged(&updates, &[0.0, 0.0], &noted);
    assert!(server.weights == expected && handled.len() == 7);
    assert!((handled[6].norm - 113f64.sqrt()).abs() < 1e-9);
}

#[test]
fn a_bound_that_no_change_exceeds_changes_no_parameter() {
    let updates = seven(&[7.0, 8.0]);
    let (plain, _) = averaged(&updates, &[1.0, 1.0], &Aggregation::default());
    let wide = Aggregation { clip: Some(Clipping::Fixed(100.0)), ..Aggregation::default() };
    let (clipped, handled) = averaged(&updates, &[1.0, 1.0], &wide);
    assert_eq!(clipped.weights.params, plain.weights.params);
    assert!(handled.iter().all(|each| each.treatment == Treatment::Kept));
}

#[test]
fn what_was_done_with_each_update_is_told() {
    let updates = seven(&[1e6, -1e6]);
    let clip = Aggregation { clip: Some(Clipping::Fixed(3.0)), ..Aggregation::default() };
    let (server, handled) = averaged(&updates, &[1.0, 1.0], &clip);
    assert_eq!(
        handled.iter().map(|each| each.treatment == Treatment::Clipped).collect::<Vec<_>>(),
        [[false; 6].as_slice(), &[true]].concat()
    );
    assert!(server.weights.params.norm() < 10.0);
    assert!(handled[6].distance > 1e6, "the distance is that of what was sent");
    let multi = Aggregation { rule: MULTI_KRUM, ..Aggregation::default() };
    let (_, handled) = averaged(&updates, &[1.0, 1.0], &multi);
    assert_eq!(handled[6].treatment, Treatment::LeftOut);
    let krum = Aggregation { rule: KRUM, ..Aggregation::default() };
    let (server, handled) = averaged(&updates, &[1.0, 1.0], &krum);
    assert_eq!(handled.iter().filter(|each| each.treatment == Treatment::Kept).count(), 1);
    let taken = handled.iter().position(|each| each.treatment == Treatment::Kept).expect("one");
    assert_eq!(&server.weights, updates[taken].weights.like(), "parameters and statistics of the same client");
    assert_eq!(handled[taken].distance, 0.0);
}

#[test]
fn a_liars_statistics_count_for_as_little_as_its_parameters() {
    let updates = seven(&[1.2, 2.0]);
    let rules = ROBUST.into_iter().filter(|rule| matches!(rule, AggregationRule::Median | AggregationRule::TrimmedMean(_)));
    for rule in rules {
        let (server, _) = averaged(&updates, &[1.0, 1.0], &Aggregation { rule, ..Aggregation::default() });
        let variance = server.weights.statistics.get("norm.variance").expect("there").values[0];
        assert!((0.5..=1.0).contains(&variance), "{rule:?}: {variance}");
    }
    let clip = Aggregation { clip: Some(Clipping::Fixed(1.0)), ..Aggregation::default() };
    let variance = averaged(&updates, &[1.0, 1.0], &clip).0.weights.statistics.get("norm.variance").expect("there").values[0];
    assert!((0.5..=1.0).contains(&variance), "clipped: {variance}");
}

#[test]
fn changes_are_measured_from_zero_where_a_method_sends_changes() {
    let updates = [update(&[3.0, 4.0], &[1.0], 1)];
    let clip = Aggregation { clip: Some(Clipping::Fixed(1.0)), ..Aggregation::default() };
    for (server_step, norm) in [(ServerStep::Mean, 0.0), (ServerStep::Consensus, 5.0)] {
        let method = FedEq { server_step, ..FedEq::default() };
        let mut server = server(&[3.0, 4.0], 1);
        let received = Received::new(&updates, &clip, &method);
        server.average(&received, Weighting::Uniform).expect("sound");
        assert_eq!(received.handled()[0].norm, norm, "{server_step:?}");
        let length = server.weights.params.norm();
        assert!((length - if norm == 0.0 { 5.0 } else { 1.0 }).abs() < 1e-6, "{server_step:?}: {length}");
    }
}

#[test]
fn a_client_that_claims_most_samples_has_no_more_than_the_cap() {
    let updates = [update(&[0.0, 0.0], &[1.0], 10), update(&[0.0, 0.0], &[1.0], 10), update(&[1.0, 0.0], &[1.0], u64::MAX)];
    let capped = Aggregation { cap: Some(0.4), ..Aggregation::default() };
    let (server, _) = averaged(&updates, &[0.0, 0.0], &capped);
    assert!((server.weights.params.norm() - 0.4).abs() < 1e-6, "{:?}", server.weights.params);
}

#[test]
fn clients_that_claim_no_samples_count_the_same() {
    let updates: Vec<Update> = (0..7).map(|at| update(&[at as f32, 1.0], &[1.0], 0)).collect();
    let clip = Some(Clipping::Fixed(1e6));
    for rule in ROBUST.into_iter().chain([AggregationRule::Mean]) {
        let (server, _) = averaged(&updates, &[0.0, 0.0], &Aggregation { rule, clip, cap: None, distances: None });
        let values = &server.weights.params.get("theta").expect("there").values;
        assert!((values[0] - 3.0).abs() <= 2.0 && values[1] == 1.0, "{rule:?}: {values:?}");
    }
}

#[test]
fn an_adaptive_bound_is_kept_with_the_server() {
    let clip = Some(Clipping::Adaptive(AdaptiveClip { rate: 0.3, ..AdaptiveClip::default() }));
    let (server, _) = averaged(&seven(&[7.0, 8.0]), &[1.0, 1.0], &Aggregation { clip, ..Aggregation::default() });
    let kept = server.clip.expect("it adapts");
    let read = ServerState::from_bytes(&server.to_bytes().expect("writable"), 0, &server).expect("readable");
    assert_eq!(read.clip.map(f64::to_bits), Some(kept.to_bits()));
}

#[test]
fn every_rule_gives_the_same_bytes_for_any_number_of_threads() {
    // More than a block, and not a multiple of one.
    let values =
        |client: usize| (0..5_001usize).map(|at| ((at * 37 + client * 101) % 997) as f32 / 31.0 - 16.0).collect::<Vec<f32>>();
    let updates: Vec<Update> = (0..9).map(|client| update(&values(client), &[1.0], 5 + client as u64)).collect();
    let clip = Some(Clipping::Adaptive(AdaptiveClip::default()));
    for rule in ROBUST.into_iter().chain([AggregationRule::Mean]) {
        let aggregation = Aggregation { rule, clip, cap: None, distances: None };
        let bytes = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
            pool.install(|| {
                let (server, handled) = averaged(&updates, &vec![0.5; 5_001], &aggregation);
                (server.to_bytes().expect("writable"), format!("{handled:?}"))
            })
        };
        let one = bytes(1);
        assert!([2, 3, 5].into_iter().all(|threads| bytes(threads) == one), "{rule:?}");
    }
}

#[test]
fn what_means_nothing_is_refused_by_name() {
    let refused = |aggregation: Aggregation, cohort: usize, expected: &str| {
        let error = aggregation.validate().and_then(|()| aggregation.validate_cohort(cohort)).expect_err("it means nothing");
        assert!(error.to_string().contains(expected), "{error}");
    };
    let rule = |rule: AggregationRule| Aggregation { rule, ..Aggregation::default() };
    let clip = |clip: Clipping| Aggregation { clip: Some(clip), ..Aggregation::default() };
    let cap = |cap: f64| Aggregation { cap: Some(cap), ..Aggregation::default() };
    refused(
        rule(AggregationRule::TrimmedMean(TrimmedMean { share: 0.5 })),
        10,
        "`plan.aggregation.rule.trimmed-mean.share` is `0.5`",
    );
    refused(rule(AggregationRule::Krum(Krum { liars: 0.0 })), 10, "`plan.aggregation.rule.krum.liars` is `0`");
    refused(rule(MULTI_KRUM), 6, "`plan.aggregation.rule.multi-krum.liars = 0.2` is `2` of a round's `6` updates");
    refused(rule(TRIMMED), 2, "`plan.aggregation.rule.trimmed-mean.share = 0.2` is `1` of a round's `2` updates");
    let wild = GeometricMedian { smoothing: 1e-6, iterations: 0 };
    refused(rule(AggregationRule::GeometricMedian(wild)), 10, "`iterations = 0`");
    refused(clip(Clipping::Fixed(0.0)), 10, "`plan.aggregation.clip.fixed` is `0`");
    refused(clip(Clipping::Fixed(f64::NAN)), 10, "`plan.aggregation.clip.fixed` is `NaN`");
    refused(clip(Clipping::Adaptive(AdaptiveClip { quantile: 1.0, ..AdaptiveClip::default() })), 10, "adaptive.quantile` is `1`");
    refused(
        clip(Clipping::Adaptive(AdaptiveClip { rate: f64::INFINITY, ..AdaptiveClip::default() })),
        10,
        "adaptive.rate` is `inf`",
    );
    refused(cap(f64::NAN), 10, "`plan.aggregation.cap` is `NaN`");
    refused(cap(0.05), 10, "which `10` clients a round cannot all keep to");
    refused(Aggregation { rule: KRUM, ..cap(0.5) }, 10, "`plan.aggregation.cap` does not go with `plan.aggregation.rule = krum`");
    assert!(
        cap(0.1).validate_cohort(10).is_ok()
            && rule(TRIMMED).validate_cohort(10).is_ok()
            && rule(KRUM).validate_cohort(7).is_ok()
    );
}

#[test]
fn an_outlier_is_beyond_three_deviations_of_the_median_by_the_median_deviation() {
    let values = [1.0, 1.1, 0.9, 1.05, 0.95, 1.2, 9.0];
    assert_eq!(outliers(&values), [false, false, false, false, false, false, true]);
    assert_eq!(outliers(&[1.0, 1.0, 9.0]), [false; 3], "too few to tell");
    assert_eq!(outliers(&[1.0, 1.0, 1.0, 1.0, 1.0 + 1e-9]), [false; 5], "rounding is not unusual");
    assert_eq!(CoordinateRule::Median.of(&[&[1.0], &[5.0]]), [3.0]);
}
