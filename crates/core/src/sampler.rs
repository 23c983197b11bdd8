//! Who takes part in a round.
use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the clients of a round are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// The share of clients that take part, rounded down.
    #[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))]
    pub fraction: f64,
    /// Whether a client can be drawn twice (and then counts twice).
    pub replacement: bool,
    /// Poisson sampling: each client takes part independently with probability `fraction`, instead of a fixed number of clients drawn together. Cohorts then differ in size, and
    /// one may be empty: its round trains no client.
    #[serde(skip_serializing_if = "is_off")]
    #[schemars(extend("default" = false))]
    pub poisson: bool,
}

/// What is off is not written, so that experiments of earlier versions stay the same to the byte.
fn is_off(setting: &bool) -> bool {
    !setting
}

impl Default for Sampling {
    fn default() -> Self {
        Self { fraction: 0.1, replacement: false, poisson: false }
    }
}

impl Sampling {
    /// Refuses settings that contradict each other.
    pub fn validate(&self) -> Result<()> {
        if !(self.poisson && self.replacement) {
            return Ok(());
        }
        let problem = "`plan.sampling.poisson` draws no client twice, and `plan.sampling.replacement` is `true`";
        Err(Error::invalid(problem, "leave out one of the two"))
    }

    /// How many take part; where sizes differ, how many are expected, rounded, and at least one.
    pub fn cohort_size(&self, clients: usize) -> Result<usize> {
        if self.poisson {
            return self.expected(clients).map(|expected| (expected.round() as usize).max(1));
        }
        let size = (self.fraction * clients as f64 + 1e-9).floor();
        if !(0.0..=1.0).contains(&self.fraction) {
            let problem = format!("`plan.sampling.fraction = {}` is no share of the clients", self.fraction);
            return Err(Error::invalid(problem, which_fractions(clients)));
        }
        if size >= 1.0 {
            return Ok(size as usize);
        }
        let all = if clients == 1 { "client" } else { "clients" };
        let problem = format!("`plan.sampling.fraction = {}` of `{clients}` {all} selects no client", self.fraction);
        Err(Error::invalid(problem, which_fractions(clients)))
    }

    /// How many take part on average.
    pub fn expected(&self, clients: usize) -> Result<f64> {
        if !self.poisson {
            return self.cohort_size(clients).map(|size| size as f64);
        }
        if self.fraction > 0.0 && self.fraction <= 1.0 {
            return Ok(self.fraction * clients as f64);
        }
        let problem = format!("`plan.sampling.fraction = {}` is no probability of taking part", self.fraction);
        Err(Error::invalid(problem, "give a number above 0 and at most 1"))
    }

    /// The cohort of a round, in order of their numbers.
    pub fn draw(&self, clients: usize, seed: Seed, round: u64) -> Result<Vec<usize>> {
        if self.poisson {
            return self.toss(clients, seed, round);
        }
        let size = self.cohort_size(clients)?;
        let mut rng = seed.derive("cohort", [round]).rng();
        let mut below = |bound: usize| ((u128::from(rng.next_u64()) * bound as u128) >> 64) as usize;
        let mut cohort: Vec<usize> = if self.replacement {
            (0..size).map(|_| below(clients)).collect()
        } else {
            let mut all: Vec<usize> = (0..clients).collect();
            (0..size).for_each(|at| all.swap(at, at + below(clients - at)));
            all.truncate(size);
            all
        };
        cohort.sort_unstable();
        Ok(cohort)
    }

    /// One draw for each client: a uniform number of 53 bits below the fraction.
    fn toss(&self, clients: usize, seed: Seed, round: u64) -> Result<Vec<usize>> {
        self.expected(clients)?;
        let mut rng = seed.derive("coins", [round]).rng();
        let mut uniform = || (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        Ok((0..clients).filter(|_| uniform() < self.fraction).collect())
    }
}

/// Which fractions select anybody.
fn which_fractions(clients: usize) -> String {
    let Some(least) = (clients > 1).then(|| just_enough(clients)) else { return "give 1: the only client in every round".into() };
    format!("give a fraction between {least} and 1: the former is one of {clients} clients, the latter all in every round")
}

/// The smallest short number that is one client's share or more: `0.034` of 30.
fn just_enough(clients: usize) -> f64 {
    let share = 1.0 / clients.max(1) as f64;
    // Two digits are enough to tell it from the next smaller number of clients' share of all.
    let unit = 10f64.powi(libm::log10(share).floor() as i32 - 1);
    let rounded = (share / unit - 1e-9).ceil() * unit;
    // Through text, so that it is the number that people read.
    format!("{rounded:.12}").parse().unwrap_or(share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_fraction_is_told_in_few_digits_and_is_enough() {
        assert_eq!([1, 2, 3, 10, 30, 100, 1_797].map(just_enough), [1.0, 0.5, 0.34, 0.1, 0.034, 0.01, 0.00056]);
        for clients in 1..2_000 {
            let least = Sampling { fraction: just_enough(clients), ..Sampling::default() };
            assert_eq!(least.cohort_size(clients).expect("enough"), 1, "{clients}");
        }
    }

    #[test]
    fn what_selects_no_client_is_refused_with_a_fraction_that_does() {
        let told = |fraction, clients| {
            let wrong = Sampling { fraction, ..Sampling::default() };
            let error = wrong.cohort_size(clients).expect_err("refused");
            [error.to_string(), error.hint()]
        };
        assert_eq!(
            told(0.1, 1),
            ["`plan.sampling.fraction = 0.1` of `1` client selects no client", "give 1: the only client in every round"]
        );
        let [problem, hint] = told(0.1, 4);
        assert!(
            problem.ends_with("of `4` clients selects no client") && hint.starts_with("give a fraction between 0.25 and 1:"),
            "{hint}"
        );
        for fraction in [-0.1, 1.5, f64::NAN] {
            assert!(told(fraction, 4)[0].ends_with("is no share of the clients"), "{fraction}");
        }
    }

    #[test]
    fn coins_are_tossed_for_each_client_and_each_round_by_itself() {
        let poisson = Sampling { fraction: 0.2, replacement: false, poisson: true };
        let (clients, rounds) = (50, 2_000u64);
        let draw = |round| poisson.draw(clients, Seed::new(7), round).expect("sound");
        let sizes: Vec<f64> = (0..rounds).map(|round| draw(round).len() as f64).collect();
        let mean = sizes.iter().sum::<f64>() / rounds as f64;
        let variance = sizes.iter().map(|size| (size - mean).powi(2)).sum::<f64>() / rounds as f64;
        // A binomial distribution: mean 10, variance 8; within five standard errors.
        assert!((mean - 10.0).abs() < 5.0 * (8.0 / rounds as f64).sqrt(), "{mean}");
        assert!((variance - 8.0).abs() < 5.0 * 8.0 * (2.0 / rounds as f64).sqrt(), "{variance}");
        let often = (0..rounds).filter(|&round| draw(round).contains(&3)).count() as f64 / rounds as f64;
        assert!((often - 0.2).abs() < 5.0 * (0.16 / rounds as f64).sqrt(), "{often}");
        assert_eq!(draw(5), draw(5));
        assert_eq!(Sampling { fraction: 1.0, ..poisson }.draw(3, Seed::new(7), 0).expect("sound"), [0, 1, 2]);
        let rare = Sampling { fraction: 1e-9, ..poisson };
        assert!(rare.draw(3, Seed::new(7), 0).expect("no client takes part").is_empty());
        assert_eq!(rare.cohort_size(3).expect("no client is expected"), 1);
    }

    #[test]
    fn what_is_no_probability_is_refused_and_so_are_coins_with_replacement() {
        for fraction in [0.0, -0.1, 1.1, f64::NAN] {
            let wrong = Sampling { fraction, replacement: false, poisson: true };
            assert!(wrong.draw(3, Seed::new(7), 0).is_err() && wrong.cohort_size(3).is_err(), "{fraction}");
        }
        assert!(Sampling { replacement: true, poisson: true, ..Sampling::default() }.validate().is_err());
    }
}
