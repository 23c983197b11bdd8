//! Who takes part in a round.
use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How the clients of a round are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sampling {
    /// The share of clients that take part, rounded down.
    pub fraction: f64,
    /// Whether a client can be drawn twice (and then counts twice).
    pub replacement: bool,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { fraction: 0.1, replacement: false }
    }
}

impl Sampling {
    /// How many take part.
    pub fn cohort_size(&self, clients: usize) -> Result<usize> {
        let size = (self.fraction * clients as f64 + 1e-9).floor();
        if (0.0..=1.0).contains(&self.fraction) && size >= 1.0 {
            return Ok(size as usize);
        }
        let all = if clients == 1 { "client" } else { "clients" };
        Err(Error::invalid(
            format!("`plan.sampling.fraction = {}` of `{clients}` {all} selects no client", self.fraction),
            format!("give a fraction between {} and 1: the former is one of {clients} {all}", just_enough(clients)),
        ))
    }

    /// The cohort of a round, in order of their numbers.
    pub fn draw(&self, clients: usize, seed: Seed, round: u64) -> Result<Vec<usize>> {
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
}

/// The smallest short number that is one client's share or more: `0.034` of 30.
fn just_enough(clients: usize) -> f64 {
    let share = 1.0 / clients.max(1) as f64;
    // Two digits are enough to tell it from the next smaller number of clients' share of all.
    let unit = 10f64.powi(share.log10().floor() as i32 - 1);
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
            let least = Sampling { fraction: just_enough(clients), replacement: false };
            assert_eq!(least.cohort_size(clients).expect("enough"), 1, "{clients}");
        }
    }
}
