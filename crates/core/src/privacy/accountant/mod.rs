//! How much is spent: Rényi differential privacy (RDP) of rounds of noisy sums, and the `(epsilon, delta)` that follows.
//!
//! A mechanism is `(alpha, r)`-RDP if outputs on neighbouring federations differ by at most `r` in the Rényi divergence of order `alpha` (Mironov 2017).
//! Rounds add up, order by order, also where a round depends on what earlier ones gave. What "neighbouring" means is the [`Relation`].
//!
//! # Layout
//! - this file: rounds put together, and what they come to
//! - `poisson`: one round of Poisson sampling: every client takes part independently
//! - `fixed_size`: one round of so many clients out of all
//! - `logarithm`: sums of numbers too large and too small for a float
mod fixed_size;
mod logarithm;
mod poisson;

use std::fmt;

/// Which two federations an adversary must not be able to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// One has a client more than the other. A client changes the sum by at most the clipping norm.
    AddOrRemove,
    /// Both have the same number of clients, and one client's data are others. A client changes the sum by at most twice the clipping norm.
    Replace,
}

impl fmt::Display for Relation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AddOrRemove => "a client added or removed",
            Self::Replace => "a client's data replaced",
        })
    }
}

/// How the clients of a round are drawn, as far as the account goes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Drawn {
    /// Every client by itself with this probability; the relation is [`Relation::AddOrRemove`].
    Poisson(f64),
    /// This share of all, a fixed number of them, none twice; the relation is [`Relation::Replace`].
    FixedSize(f64),
}

impl Drawn {
    /// Which federations are neighbours.
    pub fn relation(self) -> Relation {
        match self {
            Self::Poisson(_) => Relation::AddOrRemove,
            Self::FixedSize(_) => Relation::Replace,
        }
    }
}

/// The account of rounds that are all alike: in each, some clients are drawn, their clipped updates are summed, and Gaussian noise is added.
///
/// ```
/// use fedeq_core::{Accountant, Drawn};
/// let accountant = Accountant::new(Drawn::Poisson(0.01), 1.1);
/// let spent = accountant.epsilon(1_000, 1e-5);
/// assert!((spent - 1.71).abs() < 0.01);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Accountant {
    /// The divergence of one round, one for each of the [orders].
    round: Vec<f64>,
}

impl Accountant {
    /// Rounds with noise of `multiplier` times the clipping norm, in every coordinate of the sum.
    pub fn new(drawn: Drawn, multiplier: f64) -> Self {
        let usable = multiplier > 0.0 && multiplier.is_finite();
        let round = match drawn {
            _ if !usable => vec![f64::INFINITY; orders().count()],
            Drawn::Poisson(rate) => orders().map(|order| poisson::divergence(rate, multiplier, order)).collect(),
            // Whoever is replaced changes the sum by what leaves and by what comes: two clipping norms.
            Drawn::FixedSize(share) => {
                let sampled = fixed_size::Sampled::new(share, multiplier / 2.0);
                orders().map(|order| sampled.divergence(order)).collect()
            }
        };
        Self { round }
    }

    /// The smallest known `epsilon` of so many rounds for a `delta`: Canonne, Kamath and Steinke 2020, Proposition 12, over all orders.
    pub fn epsilon(&self, rounds: u64, delta: f64) -> f64 {
        if rounds == 0 {
            return 0.0;
        }
        let of_order = |(order, divergence): (f64, &f64)| converted(order, rounds as f64 * divergence, delta);
        orders().zip(&self.round).map(of_order).fold(f64::INFINITY, f64::min).max(0.0)
    }

    /// How many rounds, and at most this many, stay within an `epsilon`.
    pub fn affordable(&self, epsilon: f64, delta: f64, most: u64) -> u64 {
        let (mut fits, mut exceeds) = (0, most.saturating_add(1));
        while exceeds - fits > 1 {
            let middle = fits + (exceeds - fits) / 2;
            if self.epsilon(middle, delta) <= epsilon { fits = middle } else { exceeds = middle }
        }
        fits
    }

    /// The least noise multiplier whose rounds stay within an `epsilon`, to a thousandth and never below; nothing where no noise would do.
    pub fn multiplier_for(drawn: Drawn, rounds: u64, epsilon: f64, delta: f64) -> Option<f64> {
        let fits = |multiplier: f64| Self::new(drawn, multiplier).epsilon(rounds, delta) <= epsilon;
        let [mut below, mut enough] = SEARCHED;
        if !fits(enough) {
            return None;
        }
        while enough / below > 1.001 {
            let middle = (below * enough).sqrt();
            if fits(middle) { enough = middle } else { below = middle }
        }
        // Few digits, so that what is told is what is used.
        let unit = 10f64.powi(libm::log10(enough).floor() as i32 - 4);
        Some((enough / unit).ceil() * unit)
    }
}

/// Between which multipliers one is searched.
const SEARCHED: [f64; 2] = [0.01, 1e6];

/// The orders at which divergences are kept: those of Google's accountant.
fn orders() -> impl Iterator<Item = f64> {
    (1..100).map(|tenth| 1.0 + f64::from(tenth) / 10.0).chain((11..64).chain([128, 256, 512, 1024]).map(f64::from))
}

/// From RDP of one order to an `epsilon`.
fn converted(order: f64, divergence: f64, delta: f64) -> f64 {
    // delta <= sqrt(1 - exp(-KL)), and KL is at most the divergence: nothing can be told apart at all.
    if delta * delta + libm::expm1(-divergence) > 0.0 {
        return 0.0;
    }
    divergence + libm::log1p(-1.0 / order) - libm::log(delta * order) / (order - 1.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn drawn() -> impl Strategy<Value = Drawn> {
        prop_oneof![(0.001f64..=1.0).prop_map(Drawn::Poisson), (0.001f64..=1.0).prop_map(Drawn::FixedSize)]
    }

    /// The same sampling with more clients.
    fn more(drawn: Drawn, factor: f64) -> Drawn {
        match drawn {
            Drawn::Poisson(rate) => Drawn::Poisson((rate * factor).min(1.0)),
            Drawn::FixedSize(share) => Drawn::FixedSize((share * factor).min(1.0)),
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]
        #[test]
        fn more_rounds_less_noise_and_more_clients_a_round_cost_more(
            drawn in drawn(), multiplier in 0.3f64..20.0, rounds in 1u64..5_000, factor in 1.0f64..3.0,
        ) {
            let epsilon = |drawn, multiplier, rounds| Accountant::new(drawn, multiplier).epsilon(rounds, 1e-5);
            let spent = epsilon(drawn, multiplier, rounds);
            prop_assert!(spent.is_finite() && spent >= 0.0);
            let least = spent * (1.0 - 1e-9);
            prop_assert!(epsilon(drawn, multiplier, (rounds as f64 * factor) as u64) >= least);
            prop_assert!(epsilon(drawn, multiplier / factor, rounds) >= least);
            prop_assert!(epsilon(more(drawn, factor), multiplier, rounds) >= least);
            // Sampling never costs more than no sampling.
            let all = more(drawn, f64::INFINITY);
            prop_assert!(spent <= epsilon(all, multiplier, rounds) * (1.0 + 1e-9));
        }

        #[test]
        fn a_multiplier_that_is_searched_keeps_to_its_target_and_not_much_less_would(
            drawn in drawn(), rounds in 1u64..2_000, epsilon in 0.1f64..20.0,
        ) {
            let multiplier = Accountant::multiplier_for(drawn, rounds, epsilon, 1e-5).expect("noise enough");
            prop_assert!(Accountant::new(drawn, multiplier).epsilon(rounds, 1e-5) <= epsilon);
            prop_assert!(Accountant::new(drawn, multiplier / 1.002).epsilon(rounds, 1e-5) > epsilon || multiplier < 0.0101);
        }
    }

    #[test]
    fn the_gaussian_mechanism_has_its_closed_form() {
        let (all, replaced) = (Accountant::new(Drawn::Poisson(1.0), 4.0), Accountant::new(Drawn::FixedSize(1.0), 8.0));
        assert_eq!(all, replaced, "a replaced client counts twice");
        for (order, divergence) in orders().zip(&all.round) {
            assert_eq!(*divergence, order / 32.0);
        }
    }

    #[test]
    fn no_round_costs_nothing_and_no_noise_protects_nothing() {
        assert_eq!(Accountant::new(Drawn::Poisson(0.1), 1.0).epsilon(0, 1e-5), 0.0);
        for multiplier in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert_eq!(Accountant::new(Drawn::Poisson(0.1), multiplier).epsilon(1, 1e-5), f64::INFINITY, "{multiplier}");
        }
        assert_eq!(Accountant::multiplier_for(Drawn::Poisson(1.0), 1_000_000, 1e-9, 1e-300), None);
    }

    #[test]
    fn the_rounds_that_fit_into_a_budget_are_all_that_fit() {
        let accountant = Accountant::new(Drawn::Poisson(0.05), 1.0);
        let rounds = accountant.affordable(3.0, 1e-4, 100_000);
        assert!(accountant.epsilon(rounds, 1e-4) <= 3.0 && accountant.epsilon(rounds + 1, 1e-4) > 3.0, "{rounds}");
        assert_eq!(accountant.affordable(3.0, 1e-4, 7), 7);
        assert_eq!(accountant.affordable(0.01, 1e-4, 100), 0);
    }
}
