//! Partitions as users write them.
use fedeq_data::partition::{HoldOut, Partition, Pick, Split};
use serde_json::json;

fn parse(value: serde_json::Value) -> Result<Partition, serde_json::Error> {
    serde_json::from_value(value)
}

#[test]
fn each_rule_is_written_and_read_by_its_name() {
    for partition in [
        Partition::Natural { clients: Some(200), pick: Pick::Random, minimum: 10 },
        Partition::LabelShards { clients: 100, shards: 5 },
        Partition::DistinctLabels { clients: 100, labels: 5 },
        Partition::Dirichlet { clients: 100, alpha: 0.3, minimum: 10 },
        Partition::QuantitySkew { clients: 100, alpha: 0.3, minimum: 10 },
        Partition::Temporal { clients: 100 },
        Partition::Iid { clients: 100 },
    ] {
        let written = serde_json::to_value(&partition).unwrap();
        assert_eq!(written["rule"], partition.rule());
        assert_eq!(parse(written).unwrap(), partition);
    }
}

#[test]
fn what_has_an_obvious_value_may_be_left_out() {
    let natural = Partition::Natural { clients: None, pick: Pick::First, minimum: 1 };
    assert_eq!(parse(json!({ "rule": "natural" })).unwrap(), natural);
    let dirichlet = Partition::Dirichlet { clients: 9, alpha: 0.5, minimum: 1 };
    assert_eq!(parse(json!({ "rule": "dirichlet", "clients": 9, "alpha": 0.5 })).unwrap(), dirichlet);
    assert_eq!(serde_json::from_value::<Split>(json!({})).unwrap(), Split::default());
}

#[test]
fn unknown_and_missing_keys_are_refused() {
    assert!(parse(json!({ "rule": "iid", "clients": 9, "alpha": 0.5 })).is_err());
    assert!(parse(json!({ "rule": "natural", "client": 9 })).is_err());
    assert!(parse(json!({ "rule": "dirichlet", "clients": 9 })).is_err());
    assert!(parse(json!({ "rule": "by-colour" })).is_err());
    assert!(serde_json::from_value::<Split>(json!({ "train": 0.8 })).is_err());
}

#[test]
fn clients_are_held_out_by_fraction_or_by_count() {
    assert_eq!(serde_json::from_value::<HoldOut>(json!({ "fraction": 0.1 })).unwrap(), HoldOut::Fraction(0.1));
    assert_eq!(serde_json::from_value::<HoldOut>(json!({ "count": 10 })).unwrap(), HoldOut::Count(10));
}
