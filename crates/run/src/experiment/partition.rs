//! Who holds what, where nobody says otherwise.
use fedeq_data::partition::{Partition, Pick};
use fedeq_data::source::Source;

/// The partition of the paper's runs.
pub(super) fn usual(source: &Source) -> Partition {
    let rule = match source {
        Source::Digits {} | Source::Cifar10 {} | Source::Cifar100 {} => "label-shards",
        _ => "natural",
    };
    by_rule(rule, source).unwrap_or(Partition::Iid { clients: clients(source) })
}

/// A rule with its usual settings for a data set; nothing if there is no such rule.
pub(super) fn by_rule(rule: &str, source: &Source) -> Option<Partition> {
    let clients = clients(source);
    let labels = if matches!(source, Source::Digits {}) { 2 } else { 5 };
    match rule {
        "natural" => Some(Partition::Natural { clients: natural_clients(source), pick: Pick::First, minimum: 1 }),
        "label-shards" => Some(Partition::LabelShards { clients, shards: labels }),
        "distinct-labels" => Some(Partition::DistinctLabels { clients, labels }),
        "dirichlet" => Some(Partition::Dirichlet { clients, alpha: 0.5, minimum: 1 }),
        "iid" => Some(Partition::Iid { clients }),
        "own" => Some(Partition::Own { clients, here: None }),
        _ => None,
    }
}

fn clients(source: &Source) -> usize {
    if matches!(source, Source::Digits {}) { 30 } else { 100 }
}

/// The published sets have more writers and roles than the paper takes; one's own data has those it has.
fn natural_clients(source: &Source) -> Option<usize> {
    match source {
        Source::Femnist {} => Some(100),
        Source::Shakespeare(_) => Some(200),
        _ => None,
    }
}
