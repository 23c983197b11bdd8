//! The settings made live: what is drawn, what is spent, and when training ends.
use std::fmt;

use fedeq_data::Seed;
use fedeq_data::draws::standard_normal;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::{Accountant, Drawn, NoiseBy, Privacy};
use crate::aggregation::{Clipping, distances_to};
use crate::algorithm::Algorithm;
use crate::error::{Error, Result};
use crate::plan::Plan;

/// What every round adds, and what all of them come to, for a plan and a number of clients.
#[derive(Clone, Debug)]
pub struct Mechanism {
    privacy: Privacy,
    accountant: Accountant,
    drawn: Drawn,
    /// All noise of a round, as the account has it: `z`.
    multiplier: f64,
    /// The noise in the sum of changes, in clipping norms: all of it, or what the count leaves.
    in_sum: f64,
    /// The noise in the count of changes that were not clipped, where the bound adapts.
    in_count: f64,
    delta: f64,
    /// What sums are divided by, whichever clients take part.
    denominator: f64,
    /// No bound exceeds this one, which is not about privacy.
    ceiling: f64,
    rounds: u64,
}

/// One client's part of the noise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct NoiseShare {
    /// The bound on its change.
    pub(crate) bound: f64,
    /// The standard deviation of its noise.
    pub(crate) deviation: f64,
    /// What sums are divided by, whichever clients take part.
    pub(crate) denominator: f64,
    /// How many clients have all of the noise.
    pub(crate) fewest: usize,
}

/// What has been spent after a round, and what the round was like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PrivacySpent {
    /// Spent by all rounds so far.
    pub epsilon: f64,
    /// For this `delta`.
    pub delta: f64,
    /// The bound on clients' changes in this round.
    pub clip: f64,
    /// The standard deviation of the noise in every shared parameter.
    pub deviation: f64,
}

/// What a run promises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PrivacySummary {
    /// Spent by all rounds.
    pub epsilon: f64,
    /// For this `delta`.
    pub delta: f64,
    /// All noise of a round, in clipping norms.
    pub noise_multiplier: f64,
    /// Who added it.
    pub noise: NoiseBy,
    /// Which federations cannot be told apart: those that differ by this.
    pub neighbours: String,
    /// Whether it counts that clients were drawn, and who they were stays secret: if not, it holds also against those who know.
    pub secret_cohorts: bool,
}

impl fmt::Display for PrivacySummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { epsilon, delta, noise_multiplier, noise, neighbours, secret_cohorts } = self;
        let by = match noise {
            NoiseBy::Server => "by the server",
            NoiseBy::Clients => "by the clients",
        };
        let cohorts = if *secret_cohorts { ", if it stays secret who took part in which round" } else { "" };
        write!(f, "epsilon {epsilon:.2}, delta {delta:.1e} ({neighbours}{cohorts}); noise multiplier {noise_multiplier:.3}, {by}")
    }
}

impl Mechanism {
    /// What a plan does with so many clients; nothing where it does not care for privacy. The plan has been validated for the method.
    pub fn of(plan: &Plan, algorithm: &dyn Algorithm, clients: usize) -> Result<Option<Self>> {
        let Some(privacy) = plan.privacy else { return Ok(None) };
        let takes_all = algorithm.takes_all_clients();
        let denominator = if takes_all { clients as f64 } else { plan.sampling.expected(clients)? };
        let drawn = drawn(plan, &privacy, algorithm, denominator / clients as f64);
        let delta = delta(&privacy, clients)?;
        let multiplier = match (privacy.noise_multiplier, privacy.epsilon) {
            (Some(multiplier), _) => multiplier,
            (None, epsilon) => searched(drawn, plan.rounds, epsilon.unwrap_or_default(), delta)?,
        };
        let [in_sum, in_count] = shared_out(&privacy, multiplier, denominator)?;
        let accountant = Accountant::new(drawn, multiplier);
        let rounds = match privacy.budget.or(privacy.epsilon) {
            Some(budget) => affordable(&accountant, budget, delta, plan.rounds)?,
            None => plan.rounds,
        };
        let ceiling = match plan.aggregation.clip {
            Some(Clipping::Fixed(bound)) => bound,
            _ => f64::INFINITY,
        };
        Ok(Some(Self { privacy, accountant, drawn, multiplier, in_sum, in_count, delta, denominator, ceiling, rounds }))
    }

    /// Rounds that are trained: those of the plan, or fewer where the budget is spent before.
    pub fn rounds(&self) -> u64 {
        self.rounds
    }

    /// Whether clients add the noise.
    pub(crate) fn is_by_clients(&self) -> bool {
        self.privacy.noise == NoiseBy::Clients
    }

    /// What sums of changes are divided by, whichever clients take part.
    pub(crate) fn denominator(&self) -> f64 {
        self.denominator
    }

    /// What each client adds, where clients add the noise.
    pub(crate) fn share(&self) -> NoiseShare {
        let bound = self.bound(None);
        let deviation = self.deviation() * bound / self.denominator.sqrt();
        NoiseShare { bound, deviation, denominator: self.denominator, fewest: self.fewest() }
    }

    /// How many clients have all of the noise, where clients add it.
    fn fewest(&self) -> usize {
        (self.denominator * (1.0 - self.privacy.dropouts) - 1e-9).ceil() as usize
    }

    /// Refuses a round in which so many replied that their noise is less than the account has.
    pub(crate) fn ensure_enough(&self, replied: usize) -> Result<()> {
        let least = self.fewest();
        if self.privacy.noise == NoiseBy::Server || replied >= least {
            return Ok(());
        }
        let problem = format!("`{replied}` clients replied, and the noise of at least {least} is what `plan.privacy` counts on");
        Err(Error::invalid(problem, "raise `plan.privacy.dropouts`, or set `plan.privacy.noise=server`"))
    }

    /// What has been spent after so many rounds, of which the last began with the bound that the server kept.
    pub(crate) fn spent(&self, rounds: u64, kept: Option<f64>) -> PrivacySpent {
        let clip = self.bound(kept);
        let deviation = self.deviation() * clip / self.denominator;
        PrivacySpent { epsilon: self.accountant.epsilon(rounds, self.delta), delta: self.delta, clip, deviation }
    }

    /// What a run of so many rounds promises.
    pub fn summary(&self, rounds: u64) -> PrivacySummary {
        PrivacySummary {
            epsilon: self.accountant.epsilon(rounds, self.delta),
            delta: self.delta,
            noise_multiplier: self.multiplier,
            noise: self.privacy.noise,
            neighbours: self.drawn.relation().to_string(),
            secret_cohorts: matches!(self.drawn, Drawn::Poisson(share) | Drawn::FixedSize(share) if share < 1.0),
        }
    }

    /// The bound of a round; `kept` is what the server kept.
    pub(crate) fn bound(&self, kept: Option<f64>) -> f64 {
        let bound = match self.privacy.clip {
            Clipping::Fixed(bound) => bound,
            Clipping::Adaptive(adaptive) => kept.or(adaptive.initial).unwrap_or(self.ceiling),
        };
        bound.min(self.ceiling)
    }

    /// What a client sends in place of its parameters where clients add the noise: its change from `origin`, shortened to the bound, with its part of the noise. `seed` must
    /// be the client's secret and serve once.
    pub(crate) fn protect(&self, values: &[f32], origin: &[f32], seed: Seed) -> Vec<f32> {
        let bound = self.bound(None);
        let norm = distances_to(origin, &[values])[0];
        let scale = if norm > bound { bound / norm } else { 1.0 };
        let mut sent = clipped_sum(&[values.to_vec()], origin, &[scale]);
        draw(seed, self.deviation() * bound / self.denominator.sqrt(), &mut sent);
        sent.into_iter().zip(origin).map(|(change, origin)| (f64::from(*origin) + change) as f32).collect()
    }

    /// The noise that is added to the sum, in clipping norms: more than is accounted for, where drop-outs are provided for.
    fn deviation(&self) -> f64 {
        self.in_sum / (1.0 - self.privacy.dropouts).sqrt()
    }
}

/// How the account has the sampling. What is proved about cohorts of a fixed size takes a client's update for a function of its data and of what it received.
/// A head, a dual or the error of a codec that a client keeps also depends on the rounds it took part in, and so do those of others: then nothing is gained by sampling.
/// Under Poisson sampling clients may keep what they like. A server that must not be trusted knows whom it asks.
fn drawn(plan: &Plan, privacy: &Privacy, algorithm: &dyn Algorithm, share: f64) -> Drawn {
    match (plan.sampling.poisson, privacy.noise) {
        (true, _) => Drawn::Poisson(share),
        (false, NoiseBy::Server) if algorithm.sends_without_memory() && plan.compression.is_none() => Drawn::FixedSize(share),
        (false, _) => Drawn::FixedSize(1.0),
    }
}

fn delta(privacy: &Privacy, clients: usize) -> Result<f64> {
    let most = 1.0 / clients as f64;
    let delta = privacy.delta.unwrap_or(0.1 * most);
    if delta > 0.0 && delta < most {
        return Ok(delta);
    }
    let problem =
        format!("`plan.privacy.delta` is `{delta}`, which for `{clients}` clients is no promise: one of them could be published");
    Err(Error::invalid(problem, format!("give a number above 0 and below {most}, or leave it out")))
}

fn searched(drawn: Drawn, rounds: u64, epsilon: f64, delta: f64) -> Result<f64> {
    Accountant::multiplier_for(drawn, rounds, epsilon, delta).ok_or_else(|| {
        let problem = format!("`plan.privacy.epsilon` is `{epsilon}`, which no noise keeps to over `{rounds}` rounds");
        Error::invalid(problem, "give a larger one, or fewer rounds")
    })
}

/// How much noise the sum of changes and the count of unclipped ones have: `1 / z^2 = 1 / z_sum^2 + 1 / (2 z_count)^2` (Andrew et al., 2021). A
/// client changes the count by a half, since it is taken around a half.
fn shared_out(privacy: &Privacy, multiplier: f64, denominator: f64) -> Result<[f64; 2]> {
    if let Clipping::Fixed(_) = privacy.clip {
        return Ok([multiplier, 0.0]);
    }
    let in_count = privacy.count_noise.unwrap_or(denominator / 20.0);
    let inverse_square = |z: f64| 1.0 / (z * z);
    let left = inverse_square(multiplier) - inverse_square(2.0 * in_count);
    if left > 0.0 {
        return Ok([1.0 / left.sqrt(), in_count]);
    }
    let problem = format!(
        "`plan.privacy.count_noise` is `{in_count}`, which leaves no privacy for the changes at a noise multiplier of `{multiplier}`"
    );
    Err(Error::invalid(problem, format!("give more than {}", multiplier / 2.0)))
}

fn affordable(accountant: &Accountant, budget: f64, delta: f64, most: u64) -> Result<u64> {
    match accountant.affordable(budget, delta, most) {
        0 => {
            let first = accountant.epsilon(1, delta);
            let problem = format!("`plan.privacy.budget` is `{budget}`, and the first round costs {first:.3}");
            Err(Error::invalid(problem, "give a larger one, or a larger `plan.privacy.noise_multiplier`"))
        }
        rounds => Ok(rounds),
    }
}

/// The mechanism in one round, with the randomness of that round.
pub(crate) struct PrivateRound<'a> {
    pub(crate) mechanism: &'a Mechanism,
    pub(crate) seed: Seed,
    /// Whether clients elsewhere have clipped their changes and added their parts of the noise before they sent them.
    pub(crate) arrives_noisy: bool,
}

impl PrivateRound<'_> {
    /// The noisy mean of clipped changes, and the bound that the next round begins with. `norms` are those of `rows` from `origin`; `kept` is the bound that the
    /// server kept. All of it in double precision: rounding to `f32` comes last, when there is nothing left to protect.
    pub(crate) fn mean(&self, rows: &[Vec<f32>], origin: &[f32], norms: &[f64], kept: Option<f64>) -> (Vec<f64>, Option<f64>) {
        let mechanism = self.mechanism;
        let bound = mechanism.bound(kept);
        if self.arrives_noisy {
            let mut sum = clipped_sum(rows, origin, &vec![1.0; rows.len()]);
            sum.iter_mut().for_each(|value| *value /= mechanism.denominator);
            return (sum, kept);
        }
        let scales: Vec<f64> = norms.iter().map(|norm| if *norm > bound { bound / norm } else { 1.0 }).collect();
        let mut sum = clipped_sum(rows, origin, &scales);
        self.add_noise("noise", rows.len(), mechanism.deviation() * bound, &mut sum);
        sum.iter_mut().for_each(|value| *value /= mechanism.denominator);
        let within = norms.iter().filter(|norm| **norm <= bound).count();
        (sum, self.next(bound, within as f64, norms.len()))
    }

    /// The count is noisy, and taken around a half: whoever takes part then changes it by no more than a half.
    fn next(&self, bound: f64, within: f64, clients: usize) -> Option<f64> {
        let mut count = [within - 0.5 * clients as f64];
        self.add_noise("count", clients, self.mechanism.in_count / (1.0 - self.mechanism.privacy.dropouts).sqrt(), &mut count);
        self.mechanism.privacy.clip.next(bound, 0.5 + count[0] / self.mechanism.denominator)
    }

    /// Noise of a standard deviation, from one source or in equal parts from all clients.
    fn add_noise(&self, what: &str, clients: usize, deviation: f64, values: &mut [f64]) {
        match self.mechanism.privacy.noise {
            NoiseBy::Server => draw(self.seed.derive(what, []), deviation, values),
            NoiseBy::Clients => {
                let part = deviation / self.mechanism.denominator.sqrt();
                (0..clients as u64).for_each(|client| draw(self.seed.derive(what, [client]), part, values));
            }
        }
    }
}

fn draw(seed: Seed, deviation: f64, values: &mut [f64]) {
    let mut rng = seed.rng();
    values.iter_mut().for_each(|value| *value += deviation * standard_normal(&mut rng));
}

/// Coordinates that are worked on together.
const BLOCK: usize = 2048;

/// Every coordinate is summed in the order of the rows, whoever does it.
fn clipped_sum(rows: &[Vec<f32>], origin: &[f32], scales: &[f64]) -> Vec<f64> {
    let mut sum = vec![0.0; origin.len()];
    sum.par_chunks_mut(BLOCK).enumerate().for_each(|(block, sum)| {
        let origin = &origin[block * BLOCK..][..sum.len()];
        for (row, scale) in rows.iter().zip(scales) {
            let row = &row[block * BLOCK..][..sum.len()];
            let changes = row.iter().zip(origin).map(|(value, origin)| f64::from(*value) - f64::from(*origin));
            sum.iter_mut().zip(changes).for_each(|(sum, change)| *sum += scale * change);
        }
    });
    sum
}
