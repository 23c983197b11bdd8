//! Clients that training never meets.
use fedeq_data::Seed;
use fedeq_data::partition::{ClientIndices, ClientSplits, HoldOut, Partition};

use crate::support::{assign, balanced};

fn hundred() -> ClientSplits {
    assign(&Partition::Iid { clients: 100 }, &balanced(10, 20, 10), 0)
}

#[test]
fn whole_clients_move_and_none_is_lost() {
    let before = hundred();
    let after = before.clone().hold_out(HoldOut::Fraction(0.1), Seed::new(1)).unwrap();
    assert_eq!((after.clients.len(), after.unseen.len()), (90, 10));
    let mut together: Vec<ClientIndices> = after.clients.into_iter().chain(after.unseen).collect();
    together.sort_by(|a, b| a.name.cmp(&b.name));
    assert_eq!(together, before.clients);
}

#[test]
fn both_sides_stay_in_order_and_the_draw_depends_on_the_seed_alone() {
    let hold_out = |seed| hundred().hold_out(HoldOut::Count(20), Seed::new(seed)).unwrap();
    assert_eq!(hold_out(1), hold_out(1));
    assert_ne!(hold_out(1).unseen, hold_out(2).unseen);
    assert!(hold_out(1).clients.is_sorted_by(|a, b| a.name < b.name));
    assert!(hold_out(1).unseen.is_sorted_by(|a, b| a.name < b.name));
}

#[test]
fn a_fraction_that_floating_point_puts_just_below_a_whole_number_means_that_number() {
    assert_eq!(hundred().hold_out(HoldOut::Fraction(0.29), Seed::new(0)).unwrap().unseen.len(), 29);
}

#[test]
fn no_client_is_held_out_where_none_is_asked_for() {
    for none in [HoldOut::Count(0), HoldOut::Fraction(0.0)] {
        assert_eq!(hundred().hold_out(none, Seed::new(0)).unwrap(), hundred());
    }
}

#[test]
fn amounts_that_cannot_be_held_out_are_refused() {
    for (amount, offender) in [
        (HoldOut::Count(100), "`100`"),
        (HoldOut::Count(usize::MAX), "`18446744073709551615`"),
        (HoldOut::Fraction(1.0), "`1`"),
        (HoldOut::Fraction(-0.5), "`-0.5`"),
        (HoldOut::Fraction(f64::NAN), "`NaN`"),
        (HoldOut::Fraction(0.001), "`0.001`"),
    ] {
        let error = hundred().hold_out(amount, Seed::new(0)).unwrap_err();
        assert!(error.to_string().contains(offender), "{error}");
        assert!(!error.hint().is_empty());
    }
}
