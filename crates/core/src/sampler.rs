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
        Err(Error::invalid(
            format!("`sampling.fraction = {}` of `{clients}` clients selects nobody", self.fraction),
            format!("give a fraction between {} and 1", 1.0 / clients.max(1) as f64),
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
