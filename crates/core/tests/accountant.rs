//! What rounds of noisy sums come to, against public accountants. `privacy/make.py` wrote their figures.
use fedeq_core::{Accountant, Drawn};
use serde::Deserialize;

#[derive(Deserialize)]
struct Accounts {
    poisson: Vec<Poisson>,
    fixed_size: Vec<FixedSize>,
}

#[derive(Debug, Deserialize)]
struct Poisson {
    rate: f64,
    multiplier: f64,
    rounds: u64,
    delta: f64,
    /// Google's accountant by RDP.
    rdp: f64,
    /// Google's accountant by privacy loss distributions, which is tighter: nothing true lies much below it.
    pld: f64,
    /// Opacus by RDP.
    opacus: f64,
}

#[derive(Debug, Deserialize)]
struct FixedSize {
    size: f64,
    clients: f64,
    multiplier: f64,
    rounds: u64,
    delta: f64,
    rdp: f64,
}

fn accounts() -> Accounts {
    serde_json::from_str(include_str!("privacy/accounts.json")).expect("figures")
}

fn is_close(found: f64, expected: f64) -> bool {
    (found - expected).abs() <= 0.01 * expected
}

#[test]
fn poisson_sampling_costs_what_public_accountants_say() {
    for case in accounts().poisson {
        let spent = Accountant::new(Drawn::Poisson(case.rate), case.multiplier).epsilon(case.rounds, case.delta);
        assert!(is_close(spent, case.rdp) && is_close(spent, case.opacus), "{spent} {case:?}");
        assert!(spent >= case.pld, "less than a tight account says: {spent} {case:?}");
    }
}

#[test]
fn sampling_of_a_fixed_size_costs_what_a_public_accountant_says() {
    for case in accounts().fixed_size {
        let drawn = Drawn::FixedSize(case.size / case.clients);
        let spent = Accountant::new(drawn, case.multiplier).epsilon(case.rounds, case.delta);
        assert!(is_close(spent, case.rdp), "{spent} {case:?}");
    }
}
