//! Each class shared out in proportions drawn from a Dirichlet distribution.
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::classes::Classes;
use super::plan::{check_clients, check_minimum};
use crate::draws::{above_zero, gamma};
use crate::{Error, Result, Seed};

/// How often proportions are drawn before a minimum is given up.
const DRAWS: u64 = 100;

/// Each client's share of every class.
pub(super) struct Shares {
    /// A row a class, a column a client; rows sum to one.
    rows: Vec<Vec<f64>>,
    clients: usize,
}

impl Shares {
    /// The first draw that leaves every client at least `minimum` samples of `pool`.
    pub(super) fn draw(classes: &Classes, pool: &[u32], clients: usize, alpha: f64, minimum: usize, seed: Seed) -> Result<Self> {
        check_request(clients, alpha, minimum, pool.len())?;
        let sizes = classes.sizes(pool);
        let mut closest = 0;
        for draw in 0..DRAWS {
            let shares = Self::sample(sizes.len(), clients, alpha, seed.derive("draw", [draw]));
            let poorest = shares.totals(&sizes).into_iter().min().unwrap_or(0);
            if poorest >= minimum {
                return Ok(shares);
            }
            closest = closest.max(poorest);
        }
        Err(out_of_luck(clients, alpha, minimum, closest))
    }

    fn sample(classes: usize, clients: usize, alpha: f64, seed: Seed) -> Self {
        let rows = (0..classes).map(|class| proportions(clients, alpha, &mut seed.derive("class", [class as u64]).rng()));
        Self { rows: rows.collect(), clients }
    }

    pub(super) fn clients(&self) -> usize {
        self.clients
    }

    /// Shuffles each class and cuts it where the shares say.
    pub(super) fn deal(&self, strata: Vec<Vec<u32>>, seed: Seed) -> Vec<Vec<u32>> {
        let mut hands = vec![Vec::new(); self.clients];
        for (class, (mut samples, shares)) in strata.into_iter().zip(&self.rows).enumerate() {
            samples.shuffle(&mut seed.derive("class", [class as u64]).rng());
            let mut rest = samples.as_slice();
            for (hand, count) in hands.iter_mut().zip(counts(shares, samples.len())) {
                let (own, others) = rest.split_at(count);
                hand.extend_from_slice(own);
                rest = others;
            }
        }
        hands
    }

    /// How many samples each client would receive of classes of these sizes.
    fn totals(&self, sizes: &[usize]) -> Vec<usize> {
        let mut totals = vec![0; self.clients];
        for (shares, &size) in self.rows.iter().zip(sizes) {
            totals.iter_mut().zip(counts(shares, size)).for_each(|(total, count)| *total += count);
        }
        totals
    }
}

/// A draw from the symmetric Dirichlet distribution: independent gamma variates over their sum.
///
/// Computed with logarithms, as most gamma variates of a small shape are too small for a float:
/// `gamma(alpha) = gamma(alpha + 1) * u^(1 / alpha)`.
pub(super) fn proportions(clients: usize, alpha: f64, rng: &mut ChaCha8Rng) -> Vec<f64> {
    let logarithm = |rng: &mut ChaCha8Rng| {
        let uniform = above_zero(rng);
        libm::log(gamma(alpha + 1.0, rng)) + libm::log(uniform) / alpha
    };
    let logarithms: Vec<f64> = (0..clients).map(|_| logarithm(rng)).collect();
    let largest = logarithms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = logarithms.iter().map(|logarithm| libm::exp(logarithm - largest)).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|weight| weight / sum).collect()
}

/// Whole numbers that sum to `size`, as near to the shares as cuts at rounded cumulative shares come.
pub(super) fn counts(shares: &[f64], size: usize) -> Vec<usize> {
    let (mut cumulative, mut given) = (0.0, 0);
    let mut counts: Vec<usize> = shares
        .iter()
        .map(|share| {
            cumulative += share;
            let count = ((cumulative * size as f64).round() as usize).clamp(given, size) - given;
            given += count;
            count
        })
        .collect();
    if let Some(last) = counts.last_mut() {
        *last += size - given;
    }
    counts
}

pub(super) fn check_request(clients: usize, alpha: f64, minimum: usize, samples: usize) -> Result<()> {
    check_clients(clients, samples)?;
    check_minimum(minimum)?;
    // Beyond these the logarithms of gamma variates are lost to rounding.
    if !(1e-9..=1e9).contains(&alpha) {
        let problem = format!("`{alpha}` is no concentration of a Dirichlet distribution");
        return Err(Error::unmeetable(problem, "set `alpha` to a number above 0, from 1e-9 to 1e9; 0.1 to 1 is usual"));
    }
    if clients.saturating_mul(minimum) > samples {
        let problem =
            format!("`{clients}` clients with at least `{minimum}` samples each need more than the `{samples}` there are");
        let remedy = format!("set `minimum` to at most {}, or ask for fewer clients", samples / clients);
        return Err(Error::unmeetable(problem, remedy));
    }
    Ok(())
}

pub(super) fn out_of_luck(clients: usize, alpha: f64, minimum: usize, closest: usize) -> Error {
    let problem = format!(
        "`{DRAWS}` draws with alpha `{alpha}` did not give each of `{clients}` clients `{minimum}` training samples; \
         in the best of them the poorest client had `{closest}`"
    );
    Error::unmeetable(problem, "raise `alpha`, lower `minimum`, or ask for fewer clients")
}
