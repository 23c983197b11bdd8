//! Some clients have much and others little of the same.
use rand::seq::SliceRandom;

use super::dirichlet::{check_request, counts, out_of_luck, proportions};
use crate::{Result, Seed};

/// How often shares are drawn before a minimum is given up.
const DRAWS: u64 = 100;

/// Each client's share of all samples, drawn from a symmetric Dirichlet distribution.
pub(super) struct Sizes(Vec<f64>);

impl Sizes {
    /// The first draw that leaves every client at least `minimum` of so many samples.
    pub(super) fn draw(samples: usize, clients: usize, alpha: f64, minimum: usize, seed: Seed) -> Result<Self> {
        check_request(clients, alpha, minimum, samples)?;
        let mut closest = 0;
        for draw in 0..DRAWS {
            let shares = proportions(clients, alpha, &mut seed.derive("draw", [draw]).rng());
            let poorest = counts(&shares, samples).into_iter().min().unwrap_or(0);
            if poorest >= minimum {
                return Ok(Self(shares));
            }
            closest = closest.max(poorest);
        }
        Err(out_of_luck(clients, alpha, minimum, closest))
    }

    pub(super) fn clients(&self) -> usize {
        self.0.len()
    }

    /// Shuffles the pool and cuts it where the shares say.
    pub(super) fn deal(&self, pool: &[u32], seed: Seed) -> Vec<Vec<u32>> {
        let mut shuffled = pool.to_vec();
        shuffled.shuffle(&mut seed.rng());
        let mut rest = shuffled.as_slice();
        let mut hands = Vec::with_capacity(self.0.len());
        for count in counts(&self.0, pool.len()) {
            let (own, others) = rest.split_at(count);
            hands.push(own.to_vec());
            rest = others;
        }
        hands
    }
}
