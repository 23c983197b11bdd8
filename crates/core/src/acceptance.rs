//! What a server accepts of its clients: the one place where replies are checked.
use fedeq_models::graph::RunningStatistics;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::algorithm::{Algorithm, Update};
use crate::error::{Error, Result};
use crate::fixed_points::FixedPoints;
use crate::message::{ClientTask, Reply, Request, Scores, Theory};
use crate::params::Params;
use crate::stats::{PhaseBytes, PhaseSeconds, Score, SolveTally, TrainStats};
use crate::work::ClientInfo;

/// A client that was asked and whose reply does not count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dropped {
    /// Which one.
    pub client: usize,
    /// Why: it did not reply, or its reply was rejected.
    pub reason: String,
}

impl Dropped {
    /// A client with the reason, in a short line that can be shown: part of it may come from the client.
    pub fn new(client: usize, reason: &str) -> Self {
        Self { client, reason: shortened(reason) }
    }
}

/// What a server demands of those who reply to it.
///
/// By default all of them must reply, in the right layout and with finite numbers: enough where all clients are simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Acceptance {
    /// The share of the clients asked whose replies must count, above 0 and at most 1. One reply is always needed.
    pub quorum: f64,
    /// What numbers may be, where clients are other people's programs.
    pub limits: Option<Limits>,
}

impl Default for Acceptance {
    fn default() -> Self {
        Self { quorum: 1.0, limits: None }
    }
}

/// What the numbers of a reply may be, where clients are other people's programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The largest distance (Euclidean norm) of the parameters that a client sends from those it was sent.
    pub distance: f64,
    /// Whether clients were asked to look for fixed points.
    pub fixed_points: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { distance: f64::INFINITY, fixed_points: false }
    }
}

/// No client has more samples, steps or bytes, and sums over clients stay exact.
pub(crate) const LARGEST_COUNT: u64 = 1 << 48;
/// Losses of a prediction, distances and norms beyond this are not plausible, and one that was accepted moves the mean of a hundred by 1e7 at most: it is seen to be a lie, and does not
/// hide the others in rounding. A million [largest parameters](LARGEST_PARAMETER) have this norm, and a loss of this size is a probability of `exp(-1e9)`: whoever sends it has nothing to send.
const LARGEST_NUMBER: f64 = 1e9;
/// What solves that went wrong leave behind, and products of norms, may honestly be larger; sums of squares of them stay finite.
const LARGEST_WRECK: f64 = 1e100;
/// No parameter of a network that trains is larger.
const LARGEST_PARAMETER: f32 = 1e6;
/// Running means and variances are those of features, which may be large; steps are counted.
const LARGEST_STATISTIC: f32 = 1e12;
/// Seconds that a message can tell of.
const LONGEST: f64 = 1e9;
/// Characters of a reason that are kept.
const LONGEST_REASON: usize = 240;

/// A text from outside as one short line that can be shown.
fn shortened(text: &str) -> String {
    let shown: String = text
        .chars()
        .take(LONGEST_REASON + 1)
        .map(|character| if character.is_control() || is_invisible(character) { ' ' } else { character })
        .collect();
    match shown.char_indices().nth(LONGEST_REASON) {
        Some((end, _)) => format!("{}...", &shown[..end]),
        None => shown,
    }
}

/// Characters that turn or hide the text around them.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// The replies to one request that count, with those of their clients that do not, each in the order of the cohort.
#[derive(Debug, Default)]
pub(crate) struct Replies {
    pub(crate) counted: Vec<(usize, Reply)>,
    pub(crate) dropped: Vec<Dropped>,
}

impl Acceptance {
    /// Refuses a share that means nothing.
    pub fn validate(&self) -> Result<()> {
        if self.quorum > 0.0 && self.quorum <= 1.0 {
            return Ok(());
        }
        Err(Error::invalid(
            format!("the share of clients that must reply is `{}`", self.quorum),
            "give a number above 0 and at most 1",
        ))
    }

    /// Sorts replies into those that count and those that do not. Each has the request it belongs to.
    pub(crate) fn sort(
        &self,
        asked: &[(usize, &Request)],
        replies: Vec<std::result::Result<Reply, Dropped>>,
        algorithm: &dyn Algorithm,
    ) -> Replies {
        let check = |((client, request), reply): (&(usize, &Request), std::result::Result<Reply, Dropped>)| {
            let reply = reply?;
            match self.check(&reply, request, algorithm) {
                Ok(()) => Ok((*client, reply)),
                Err(reason) => Err(Dropped::new(*client, &reason)),
            }
        };
        let sorted: Vec<_> = asked.par_iter().zip(replies).map(check).collect();
        let mut all = Replies::default();
        for one in sorted {
            match one {
                Ok(counted) => all.counted.push(counted),
                Err(dropped) => all.dropped.push(dropped),
            }
        }
        all
    }

    /// Refuses to continue without enough replies; `what` is what they were for.
    pub fn require_quorum(&self, what: &str, counted: usize, dropped: &[Dropped]) -> Result<()> {
        let asked = counted + dropped.len();
        if dropped.is_empty() || (counted > 0 && counted as f64 >= self.quorum * asked as f64) {
            return Ok(());
        }
        let named = |dropped: &Dropped| format!("client {}: {}", dropped.client, dropped.reason);
        let reasons: Vec<String> = dropped.iter().map(named).collect();
        Err(Error::Quorum { problem: format!("only {counted} of {asked} clients {what} ({})", reasons.join("; ")) })
    }

    /// So many replies may be dropped while so many count, where clients are asked one after the other.
    pub(crate) fn droppable(&self, counted: usize) -> usize {
        (counted as f64 * (1.0 / self.quorum.max(0.1) - 1.0)) as usize
    }

    /// Whether a reply counts; the error says why it does not. For the server, and for `fuzz/`, which looks for what is accepted and should not be.
    #[doc(hidden)]
    pub fn check(&self, reply: &Reply, request: &Request, algorithm: &dyn Algorithm) -> std::result::Result<(), String> {
        let limits = self.limits.as_ref();
        match (request.task, reply) {
            (ClientTask::Train, Reply::Update(update)) => {
                update.weights.ensure_like(&request.weights).map_err(problem_of)?;
                limits.map_or(Ok(()), |limits| limits.check_update(update, request, algorithm))
            }
            (ClientTask::Evaluate | ClientTask::Measure, Reply::Scores(scores)) => {
                limits.map_or(Ok(()), |limits| limits.check_scores(scores, request, algorithm))
            }
            (ClientTask::Finish | ClientTask::Adopt, Reply::Done(stats)) => limits.map_or(Ok(()), |_| check_stats(stats)),
            (task, reply) => Err(format!("it was asked to `{}` and replied with `{}`", task.name(), reply.kind())),
        }
    }
}

fn problem_of(error: Error) -> String {
    match error {
        Error::Message { problem } => problem,
        other => other.to_string(),
    }
}

impl Limits {
    fn check_update(&self, update: &Update, request: &Request, algorithm: &dyn Algorithm) -> std::result::Result<(), String> {
        if update.samples == 0 {
            return Err("`samples` is `0`".into());
        }
        count("samples", update.samples)?;
        size("gap", update.gap)?;
        check_stats(&update.stats)?;
        if update.weights.is_masked() {
            // The server sees no weights; the ring bounds what each of them can be.
            return Ok(());
        }
        let sent = update.weights.to_host().map_err(problem_of)?;
        within(&sent.params, LARGEST_PARAMETER)?;
        within(&sent.statistics, LARGEST_STATISTIC)?;
        not_negative(&sent.statistics)?;
        let distance =
            if algorithm.sends_changes() { sent.params.norm() } else { sent.params.minus(&request.weights.params).norm() };
        if distance <= self.distance {
            return Ok(());
        }
        Err(format!("its distance from the weights that were sent out is {distance:.3e}, more than {:.3e}", self.distance))
    }

    fn check_scores(&self, scores: &Scores, request: &Request, algorithm: &dyn Algorithm) -> std::result::Result<(), String> {
        let Scores { local, shared, validation, participations, gap, dual_norm, theory, fixed_points, disclosure: _ } = scores;
        check_score("local", local)?;
        shared.iter().try_for_each(|score| check_score("shared", score))?;
        validation.iter().try_for_each(|score| check_score("validation", score))?;
        count("participations", *participations)?;
        size("gap", *gap)?;
        size("dual_norm", *dual_norm)?;
        theory.iter().try_for_each(check_theory)?;
        fixed_points.iter().try_for_each(check_fixed_points)?;
        present("shared", shared.is_some(), algorithm.shared_view(&ClientInfo::default()).is_some())?;
        present("theory", theory.is_some(), request.task == ClientTask::Measure)?;
        if fixed_points.is_some() { present("fixed_points", true, self.fixed_points) } else { Ok(()) }
    }
}

fn check_stats(stats: &TrainStats) -> std::result::Result<(), String> {
    let TrainStats { steps, loss, solves, seconds, memory, disclosure: _ } = stats;
    let SolveTally { samples, steps: evaluations, residual, unconverged, not_finite, warm } = solves;
    let counts = [
        ("steps", *steps),
        ("solves.samples", *samples),
        ("solves.steps", *evaluations),
        ("solves.unconverged", *unconverged),
        ("solves.not_finite", *not_finite),
        ("solves.warm", *warm),
    ];
    counts.into_iter().try_for_each(|(name, value)| count(name, value))?;
    size("loss", *loss)?;
    size_within("solves.residual", *residual, LARGEST_WRECK)?;
    let PhaseSeconds { solve, backward, update } = seconds;
    for value in [*solve, *backward, *update] {
        if !(0.0..=LONGEST).contains(&value) {
            return Err(format!("`seconds` has `{value}`, which is no time"));
        }
    }
    let PhaseBytes { solve, backward, update } = memory;
    [*solve, *backward, *update].into_iter().try_for_each(|value| count("memory", value))
}

fn check_score(view: &str, score: &Score) -> std::result::Result<(), String> {
    let Score { predictions, correct, loss } = *score;
    count("predictions", predictions)?;
    if correct > predictions {
        return Err(format!("`{view}` says that {correct} of {predictions} predictions are correct"));
    }
    // The sum over all predictions.
    size("loss", loss / predictions.max(1) as f64)
}

fn check_theory(theory: &Theory) -> std::result::Result<(), String> {
    let Theory { lagrangian, stationarity, head_gradient } = theory;
    size_within("lagrangian", lagrangian.abs(), LARGEST_WRECK)?;
    size("stationarity", *stationarity)?;
    size("head_gradient", *head_gradient)
}

fn check_fixed_points(found: &FixedPoints) -> std::result::Result<(), String> {
    let FixedPoints { samples, several, answers_differ, unsettled, unstable, distance, radius, largest_radius } = *found;
    let counts = [("several", several), ("answers_differ", answers_differ), ("unsettled", unsettled), ("unstable", unstable)];
    count("samples", samples)?;
    counts.into_iter().try_for_each(|(name, value)| count(name, value))?;
    size("distance", distance)?;
    size("radius", radius)?;
    size("largest_radius", largest_radius)
}

fn count(name: &str, value: u64) -> std::result::Result<(), String> {
    if value <= LARGEST_COUNT { Ok(()) } else { Err(format!("`{name}` is `{value}`, more than 2^48")) }
}

/// A number that is not negative, and plausible.
fn size(name: &str, value: f64) -> std::result::Result<(), String> {
    size_within(name, value, LARGEST_NUMBER)
}

fn size_within(name: &str, value: f64, most: f64) -> std::result::Result<(), String> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(format!("`{name}` is `{value:e}`, no number from 0 to {most:e}"))
}

fn present(name: &str, is_there: bool, is_expected: bool) -> std::result::Result<(), String> {
    match (is_there, is_expected) {
        (true, false) => Err(format!("`{name}` was not asked for")),
        (false, true) => Err(format!("`{name}` is missing")),
        _ => Ok(()),
    }
}

/// Refuses numbers that are larger.
fn within(params: &Params, most: f32) -> std::result::Result<(), String> {
    for (name, array) in params.iter() {
        if let Some(value) = array.values.iter().find(|value| value.abs() > most) {
            return Err(format!("`{name}` holds the value `{value:e}`, more than {most:e}"));
        }
    }
    Ok(())
}

/// Refuses variances and counts of steps below zero.
fn not_negative(statistics: &Params) -> std::result::Result<(), String> {
    for (name, array) in statistics.iter().filter(|(name, _)| !RunningStatistics::may_be_negative(name)) {
        if let Some(value) = array.values.iter().find(|value| **value < 0.0) {
            return Err(format!("`{name}` holds the value `{value:e}`, which is negative"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::algorithm::{FedAvg, FedEq, Local};
    use crate::metrics::{Evaluation, RoundResult};
    use crate::params::Array;
    use crate::transport::Traffic;
    use crate::weights::Weights;

    const STRICT: Acceptance = Acceptance { quorum: 0.5, limits: Some(Limits { distance: f64::INFINITY, fixed_points: true }) };

    fn weights(value: f32, mean: f32, variance: f32) -> Weights {
        let one = |name: &str, value: f32| (name.to_owned(), Array::new(vec![1], vec![value]));
        Weights {
            params: [one("theta", value)].into_iter().collect(),
            statistics: [one("norm.mean", mean), one("norm.steps", 3.0), one("norm.variance", variance)].into_iter().collect(),
        }
    }

    fn request(task: ClientTask) -> Request {
        Request { task, round: 0, rounds: 1, rho: None, weights: weights(0.0, 0.0, 1.0) }
    }

    /// Any number at all, and often one that is likely.
    fn number() -> impl Strategy<Value = f64> {
        prop_oneof![60 => 0.0..10.0, 1 => any::<f64>(), 1 => Just(f64::NAN), 1 => Just(f64::INFINITY), 1 => Just(1e100)]
    }

    fn small() -> impl Strategy<Value = f32> {
        prop_oneof![60 => 0.0f32..1.0, 1 => any::<f32>(), 1 => Just(1e30f32), 1 => Just(1e6f32)]
    }

    fn whole() -> impl Strategy<Value = u64> {
        prop_oneof![60 => 0..100u64, 1 => any::<u64>(), 1 => Just(LARGEST_COUNT)]
    }

    fn stats() -> impl Strategy<Value = TrainStats> {
        let solves =
            (prop::array::uniform5(whole()), number()).prop_map(|([samples, steps, unconverged, not_finite, warm], residual)| {
                SolveTally { samples, steps, residual, unconverged, not_finite, warm }
            });
        let seconds =
            prop::array::uniform3(number()).prop_map(|[solve, backward, update]| PhaseSeconds { solve, backward, update });
        let memory = prop::array::uniform3(whole()).prop_map(|[solve, backward, update]| PhaseBytes { solve, backward, update });
        (whole(), number(), solves, seconds, memory).prop_map(|(steps, loss, solves, seconds, memory)| TrainStats {
            steps,
            loss,
            solves,
            seconds,
            memory,
            ..TrainStats::default()
        })
    }

    fn score() -> impl Strategy<Value = Score> {
        let correct = |predictions: u64| prop_oneof![30 => 0..=predictions, 1 => any::<u64>()];
        let counts = whole().prop_flat_map(move |predictions| (Just(predictions), correct(predictions)));
        (counts, number()).prop_map(|((predictions, correct), loss)| Score { predictions, correct, loss })
    }

    fn scores() -> impl Strategy<Value = Scores> {
        let theory = prop::array::uniform3(number()).prop_map(|[lagrangian, stationarity, head_gradient]| Theory {
            lagrangian,
            stationarity,
            head_gradient,
        });
        let found = (prop::array::uniform5(whole()), prop::array::uniform3(number())).prop_map(
            |([samples, several, answers_differ, unsettled, unstable], [distance, radius, largest_radius])| FixedPoints {
                samples,
                several,
                answers_differ,
                unsettled,
                unstable,
                distance,
                radius,
                largest_radius,
            },
        );
        let parts = (score(), prop::option::of(score()), prop::option::of(score()), whole(), number(), number());
        (parts, prop::option::of(theory), prop::option::of(found)).prop_map(
            |((local, shared, validation, participations, gap, dual_norm), theory, fixed_points)| Scores {
                local,
                shared,
                validation,
                participations,
                gap,
                dual_norm,
                theory,
                fixed_points,
                ..Scores::default()
            },
        )
    }

    /// Whether a value is the same after its way through a journal: JSON has no word for what is not finite, and writes `null`.
    fn is_writable<V: Serialize + for<'de> Deserialize<'de>>(value: &V) -> bool {
        serde_json::to_string(value).is_ok_and(|text| serde_json::from_str::<V>(&text).is_ok())
    }

    proptest! {
        #[test]
        fn what_is_accepted_of_an_update_can_be_summed_averaged_and_written(
            (value, mean, variance) in (small(), small(), small()),
            samples in whole(),
            gap in number(),
            stats in stats(),
        ) {
            let update = Update { weights: weights(value, mean, variance).into(), samples, gap, stats };
            let accepted = STRICT.check(&Reply::Update(update.clone()), &request(ClientTask::Train), &FedAvg::default());
            if accepted.is_ok() {
                prop_assert!(samples > 0 && variance >= 0.0);
                let updates = vec![update; 1000];
                let total: f64 = updates.iter().map(|update| update.samples as f64).sum();
                let items: Vec<_> = updates.iter().map(|update| (update.weights.like(), update.samples as f64)).collect();
                prop_assert!(total.is_finite() && Weights::mean(items).is_finite());
                let result = RoundResult { cohort: (0..1000).collect(), updates, ..RoundResult::default() };
                prop_assert!(is_writable(&result.report(0, None, Traffic::default(), Traffic::default())));
            }
        }

        #[test]
        fn what_is_accepted_of_scores_can_be_put_together_and_written(scores in scores(), measured in any::<bool>()) {
            let task = if measured { ClientTask::Measure } else { ClientTask::Evaluate };
            for algorithm in [&FedEq::default() as &dyn Algorithm, &Local::default()] {
                let reply = Reply::Scores(Box::new(scores.clone()));
                if STRICT.check(&reply, &request(task), algorithm).is_ok() {
                    prop_assert_eq!(scores.shared.is_some(), algorithm.shared_view(&ClientInfo::default()).is_some());
                    prop_assert_eq!(scores.theory.is_some(), measured);
                    let clients = vec![Some(scores.clone()); 1000];
                    prop_assert!(is_writable(&Evaluation::of(0, &clients, Vec::new(), Traffic::default())));
                }
            }
        }
    }

    #[test]
    fn the_reason_for_a_rejection_names_what_is_wrong() {
        let sound = Update { weights: weights(0.5, 0.0, 1.0).into(), samples: 7, gap: 0.1, stats: TrainStats::default() };
        let like = |weights: Weights| Update { weights: weights.into(), ..sound.clone() };
        let lies = [
            (like(Weights::default()), "`theta` is missing"),
            (like(weights(f32::NAN, 0.0, 1.0)), "`theta` holds the value `NaN`"),
            (like(weights(f32::INFINITY, 0.0, 1.0)), "`theta` holds the value `inf`"),
            (like(weights(1e30, 0.0, 1.0)), "`theta` holds the value `1e30`"),
            (like(weights(0.0, 0.0, -1.0)), "`norm.variance` holds the value `-1e0`, which is negative"),
            (like(weights(9.0, 0.0, 1.0)), "its distance from the weights that were sent out is 9.000e0, more than 5.000e0"),
            (Update { samples: 0, ..sound.clone() }, "`samples` is `0`"),
            (Update { samples: u64::MAX, ..sound.clone() }, "`samples` is `18446744073709551615`"),
            (Update { gap: -1.0, ..sound.clone() }, "`gap` is `-1e0`"),
            (Update { gap: 2e9, ..sound.clone() }, "`gap` is `2e9`, no number from 0 to 1e9"),
            (Update { stats: TrainStats { loss: f64::NAN, ..TrainStats::default() }, ..sound.clone() }, "`loss` is `NaN`"),
        ];
        let near = Acceptance { limits: Some(Limits { distance: 5.0, fixed_points: false }), ..STRICT };
        let check = |update: &Update| near.check(&Reply::Update(update.clone()), &request(ClientTask::Train), &FedAvg::default());
        assert_eq!(check(&sound), Ok(()));
        for (lie, reason) in lies {
            let found = check(&lie).expect_err(reason);
            assert!(found.starts_with(reason), "{found}, not {reason}");
        }
        let other = near.check(&Reply::Done(TrainStats::default()), &request(ClientTask::Train), &FedAvg::default());
        assert_eq!(other, Err("it was asked to `train` and replied with `done`".into()));
    }

    #[test]
    fn one_liar_of_a_hundred_moves_the_numbers_of_the_journal_by_a_hundredth_of_the_largest_at_most() {
        let update = |loss: f64| {
            let stats = TrainStats { loss, ..TrainStats::default() };
            Update { weights: weights(0.5, 0.0, 1.0).into(), samples: 7, gap: loss, stats }
        };
        let scores = |loss: f64| {
            let local = Score { predictions: 10, correct: 5, loss: 10.0 * loss };
            Scores { local, shared: Some(local), participations: 1, gap: loss, dual_norm: loss, ..Scores::default() }
        };
        let evaluate = request(ClientTask::Evaluate);
        let (train, method) = (request(ClientTask::Train), FedEq::default());
        for (lie, counts) in [(1e9, true), (1.01e9, false), (1e100, false)] {
            assert_eq!(STRICT.check(&Reply::Update(update(lie)), &train, &method).is_ok(), counts, "{lie}");
            assert_eq!(STRICT.check(&Reply::Scores(Box::new(scores(lie))), &evaluate, &method).is_ok(), counts, "{lie}");
        }
        let updates = (0..100).map(|client| update(if client == 3 { 1e9 } else { 0.5 })).collect();
        let result = RoundResult { cohort: (0..100).collect(), updates, ..RoundResult::default() };
        let round = result.report(0, None, Traffic::default(), Traffic::default());
        assert!(round.loss < 1.01e7 && round.gap < 1.01e7, "{round:?}");
        let clients: Vec<_> = (0..100).map(|client| Some(scores(if client == 3 { 1e9 } else { 0.5 }))).collect();
        let Evaluation { local, gap, dual_norm, .. } = Evaluation::of(0, &clients, Vec::new(), Traffic::default());
        assert!([local.loss, local.mean_loss, gap, dual_norm].iter().all(|value| *value < 1.01e7), "{local:?} {gap} {dual_norm}");
    }

    #[test]
    fn reasons_are_short_lines_that_can_be_shown() {
        let nasty = format!("a\n\u{1b}[2J\u{202e}{}", "x".repeat(100_000));
        let Dropped { reason, .. } = Dropped::new(3, &nasty);
        assert!(reason.starts_with("a  [2J x") && reason.ends_with("...") && reason.chars().count() == LONGEST_REASON + 3);
        assert_eq!(Dropped::new(3, "é".repeat(LONGEST_REASON).as_str()).reason.chars().count(), LONGEST_REASON);
    }

    #[test]
    fn a_quorum_is_a_share_of_those_who_were_asked_and_never_none() {
        let dropped: Vec<Dropped> = (5..8).map(|client| Dropped::new(client, "no reply")).collect();
        let holds = |quorum: f64, counted: usize| {
            Acceptance { quorum, limits: None }.require_quorum("replied", counted, &dropped).is_ok()
        };
        assert!(holds(0.5, 3) && !holds(0.6, 3) && !holds(1.0, 100) && holds(0.01, 1) && !holds(0.01, 0));
        assert!(Acceptance::default().require_quorum("replied", 0, &[]).is_ok(), "a cohort without clients is complete");
        assert!(Acceptance { quorum: f64::NAN, limits: None }.validate().is_err());
    }
}
